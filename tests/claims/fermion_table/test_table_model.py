"""A table against a plain list of dicts, through random histories."""

from __future__ import annotations

from tests.kit.table_machine import CheckedTableMachine

test_any_history_agrees_with_the_model = CheckedTableMachine.TestCase
