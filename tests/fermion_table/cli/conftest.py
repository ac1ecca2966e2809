"""Lets the program find its commands, whether the project is installed or not."""

from __future__ import annotations

import pytest

from tests.kit.declared_commands import declared_commands


@pytest.fixture(autouse=True)
def found_by_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point as the project declares it, whether installed or not."""
    monkeypatch.setattr("importlib.metadata.entry_points", declared_commands)
