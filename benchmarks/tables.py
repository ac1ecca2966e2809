"""Rows for table benchmarks, and tables in the cache; what changes a table works on a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.files import CACHE, edition, made, remove
from benchmarks.layers import Layer
from benchmarks.question import Size

SEED = 20_260_101


def rows(count: int, start: int = 0) -> pa.Table:
    """Rows with rising ids: ``id``, ``value``, ``name``."""
    random = np.random.default_rng(SEED + start)
    words = np.array([f"name {n}" for n in range(1000)])
    return pa.table(
        {
            "id": np.arange(start, start + count, dtype=np.int64),
            "value": np.round(random.normal(size=count), 3),
            "name": pa.array(words[random.integers(0, 1000, count)], pa.string()),
        }
    )


def appended(layer: Layer, size: Size, *, commits: int, each: int) -> str:
    """The path of a table made by so many appends of so many rows; made once, then kept.

    A layer whose tables hold absolute paths gets its table made where it is used.
    """
    return stored(
        layer, size, f"{commits}x{each}", lambda path: append_all(layer, path, commits, each)
    )


def append_all(layer: Layer, path: str, commits: int, each: int) -> None:
    """Create a table and append to it."""
    layer.create(path, rows(0).schema)
    table = layer.open(path)
    for number in range(commits):
        table = layer.append(table, rows(each, number * each))


def stored(layer: Layer, size: Size, name: str, make: Callable[[str], None]) -> str:
    """The path of a table in the cache, made once for each edition of its layer."""
    label = f"{layer.name.replace(' ', '-')}-{edition(layer.package)}"
    folder = CACHE / size / "tables" / name
    if layer.movable:
        return str(made(folder, label, lambda path: make(str(path))))
    target = folder / label
    if not (target / "complete").exists():
        remove(target)
        folder.mkdir(parents=True, exist_ok=True)
        make(str(target))
        (target / "complete").touch()
    return str(target)


def fresh(layer: Layer, size: Size) -> str:
    """A path where no table is yet; what an earlier process left there is gone."""
    path = CACHE / size / "tables" / "fresh" / layer.name.replace(" ", "-")
    remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)


def copy_of(layer: Layer, size: Size, path: str, make: Callable[[str], None]) -> str:
    """A table to change: a copy of a stored one, or made anew where tables cannot move."""
    target = fresh(layer, size)
    if layer.movable:
        shutil.copytree(path, target)
    else:
        make(target)
    return target
