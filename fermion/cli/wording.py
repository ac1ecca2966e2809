"""Numbers and sizes as text for people, and rows as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fermion.columns.value_text import json_value
from fermion.display import counted

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int) -> str:
    """Bytes as people read them: ``917 bytes``, ``1.4 MiB``."""
    if size < 1024:
        return counted(size, "byte")
    value = float(size)
    for unit in _UNITS:
        value /= 1024
        if value < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"


def rows_json(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows as JSON objects."""
    names = _unique_names(table.column_names)
    columns = [[json_value(each) for each in column] for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _unique_names(names: Sequence[str]) -> list[str]:
    """The names; one that was there before gets its ordinal, so that no value is lost."""
    seen: set[str] = set()
    unique = []
    for ordinal, name in enumerate(names):
        unique.append(f"{name}#{ordinal}" if name in seen else name)
        seen.add(name)
    return unique
