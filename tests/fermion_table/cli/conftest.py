"""Lets the program find its commands, whether the project is installed or not."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def found_by_the_program(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point as the project declares it, whether installed or not."""
    declared = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    points = [
        EntryPoint(name, value, group)
        for group, entries in declared["project"]["entry-points"].items()
        for name, value in entries.items()
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [point for point in points if point.group == group],
    )
