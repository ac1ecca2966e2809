"""Target 11: the memory that reading takes beyond what the import took."""

from __future__ import annotations

from benchmarks import data, harness, lineitem_read, open_wide
from benchmarks.formats import (
    FEATHER,
    FERMION,
    LANCE,
    ORC,
    PARQUET_ZSTD,
    POLARS,
    VORTEX_STRINGS,
    Format,
)
from benchmarks.question import Action, Case, Question, Size, Target


def full_read(library: Format, size: Size) -> Action:
    """All of TPC-H lineitem."""
    path = lineitem_read.stored(library, size)
    return lambda: library.read(path)


def ten_columns(library: Format, size: Size) -> Action:
    """Ten of many columns."""
    columns = 60 if size == "tiny" else 10_000
    path = open_wide.stored(library, columns, size)
    names = data.some_names(columns)
    return lambda: library.read(path, names)


QUESTION = Question(
    module="benchmarks.peak_memory",
    title="11  Peak memory beyond the import's",
    cases={"lineitem, read all": Case(full_read), "10 of 10,000 columns": Case(ten_columns)},
    libraries=(FERMION, FEATHER, VORTEX_STRINGS, POLARS, ORC, LANCE, PARQUET_ZSTD),
    targets=(
        Target("lineitem, read all", 1.3, metric="extra_bytes", per="arrow_bytes"),
        Target("10 of 10,000 columns", 2e6, metric="extra_bytes"),
    ),
    rounds={"full": 3},
    metrics=("arrow_bytes",),
    isolated=True,
    notes="Peak resident size while reading, less the resident size before: the result counts too. "
    "Two rows are read before: modules that are loaded with the first read are no part of it.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
