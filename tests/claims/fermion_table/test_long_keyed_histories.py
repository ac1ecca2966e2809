"""The state machine of primary-key tables, with more and longer histories."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.kit.keyed_machine import CheckedKeyedMachine


class LongKeyedMachine(CheckedKeyedMachine):
    """The same, for long."""


LongKeyedMachine.TestCase.settings = settings(
    max_examples=1000, stateful_step_count=30, deadline=None
)
test_any_long_history_agrees_with_the_model = pytest.mark.slow(
    pytest.mark.timeout(24 * 3600)(LongKeyedMachine.TestCase)
)
