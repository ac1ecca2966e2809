"""The commands of the program as `pyproject.toml` declares them, installed or not."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint

from tests.kit.documents import PROJECT


def declared_commands(group: str) -> list[EntryPoint]:
    """In place of `importlib.metadata.entry_points`."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    entries = declared["project"]["entry-points"].get(group, {})
    return [EntryPoint(name, value, group) for name, value in entries.items()]
