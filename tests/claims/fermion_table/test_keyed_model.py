"""Primary-key tables against a plain list of rows, through random histories."""

from __future__ import annotations

from tests.kit.keyed_machine import CheckedKeyedBlobsMachine, CheckedKeyedMachine

test_any_history_agrees_with_the_model = CheckedKeyedMachine.TestCase
test_any_history_of_blobs_agrees_with_the_model = CheckedKeyedBlobsMachine.TestCase
