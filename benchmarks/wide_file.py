"""Target 3: a wide file: read all of it, or a few of its rows; write it; and how large it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import data, harness
from benchmarks.files import size_of
from benchmarks.formats import (
    FEATHER,
    FERMION,
    FERMION_COMPACT,
    LANCE,
    ORC,
    PARQUET_SNAPPY,
    PARQUET_ZSTD,
    POLARS,
    VORTEX,
    VORTEX_COMPACT,
    Format,
)
from benchmarks.question import Action, Case, NotOffered, Question, Size, Target

FEW = 256
SHAPE = {"full": (10_000, 2_000), "quick": (500, 2_000), "tiny": (60, 50)}


def wide(size: Size) -> data.pa.Table:
    """The table."""
    return data.wide(*SHAPE[size])


def stored(library: Format, size: Size) -> Path:
    """Its file."""
    columns, rows = SHAPE[size]
    return Path(library.stored(f"wide-{columns}x{rows}", size, lambda: wide(size)))


def read_all(library: Format, size: Size) -> Action:
    """Read every column."""
    path = stored(library, size)
    return lambda: {"file_bytes": size_of(path), **_shape(library.read(str(path)))}


def _shape(table: data.pa.Table) -> dict[str, int]:
    return {"rows": table.num_rows, "columns": table.num_columns, "arrow_bytes": table.nbytes}


def take(rows: Callable[[int], np.ndarray]) -> Case:
    """Every column of some rows, by their numbers."""

    def prepare(library: Format, size: Size) -> Action:
        path, wanted = stored(library, size), rows(SHAPE[size][1])
        return lambda: _shape(library.take(str(path), wanted, None))

    return Case(prepare)


def middle(rows: int) -> np.ndarray:
    """Rows side by side."""
    first = max(rows // 2 - FEW // 2, 0)
    return np.arange(first, min(first + FEW, rows))


def scattered(rows: int) -> np.ndarray:
    """Rows anywhere."""
    return data.random_rows(rows, FEW)


def in_batches(library: Format, size: Size) -> Action:
    """Read every column, some rows at a time."""
    path = stored(library, size)

    def read() -> dict[str, int]:
        rows = columns = 0
        for batch in library.batches(str(path), FEW):
            rows, columns = rows + batch.num_rows, batch.num_columns
        return {"rows": rows, "columns": columns}

    return read


def write(library: Format, size: Size) -> Action:
    """Write a table that lies in memory."""
    if library.name in {POLARS.name, VORTEX_COMPACT.name}:
        raise NotOffered("measured by its reading alone")
    return library.writing(wide(size), size)


QUESTION = Question(
    module="benchmarks.wide_file",
    title="3  10,000 columns x 2,000 rows: read all, read few rows, write, size",
    cases={
        "read all": Case(read_all),
        "256 rows in the middle": take(middle),
        "256 scattered rows": take(scattered),
        "in batches of 256 rows": Case(in_batches),
        "write": Case(write),
    },
    libraries=(
        FERMION,
        FERMION_COMPACT,
        POLARS,
        FEATHER,
        VORTEX,
        VORTEX_COMPACT,
        LANCE,
        ORC,
        PARQUET_ZSTD,
        PARQUET_SNAPPY,
    ),
    targets=(
        Target("read all", 0.400),
        Target("256 rows in the middle", 0.15, of="read all"),
        Target("256 scattered rows", 0.25, of="read all"),
        Target("in batches of 256 rows", 1.1, of="read all"),
        Target("write", 1.4),
        Target("read all", 1.0, metric="file_bytes", of="best rival"),
    ),
    rounds={"full": 3},
    metrics=("file_bytes",),
)

if __name__ == "__main__":
    harness.main(QUESTION)
