"""A table against a plain list of dicts, through random histories."""

from __future__ import annotations

from tests.kit.table_machine import CheckedImagesMachine, CheckedTableMachine

test_any_history_agrees_with_the_model = CheckedTableMachine.TestCase
test_any_history_of_images_agrees_with_the_model = CheckedImagesMachine.TestCase
