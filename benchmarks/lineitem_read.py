"""Targets 5 and 6: reading TPC-H lineitem: all of it, three columns, one month."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import data, harness
from benchmarks.formats import (
    ARROW,
    FEATHER,
    FERMION,
    LANCE,
    ORC,
    PARQUET_ZSTD,
    POLARS,
    VORTEX,
    VORTEX_COMPACT,
    VORTEX_MAPPED,
    VORTEX_STRINGS,
    Format,
)
from benchmarks.question import Action, Case, Question, Size, Target

THREE = ["l_orderkey", "l_extendedprice", "l_shipdate"]


def stored(library: Format, size: Size) -> str:
    """The file."""
    return library.stored("lineitem-files", size, lambda: data.lineitem(size))


def read(columns: Sequence[str] | None) -> Case:
    """All rows."""

    def prepare(library: Format, size: Size) -> Action:
        path = stored(library, size)
        return lambda: library.read(path, columns)

    return Case(prepare)


def one_month(columns: Sequence[str] | None) -> Case:
    """The rows shipped in March 1995: one in eighty-three, spread over the whole file."""

    def prepare(library: Format, size: Size) -> Action:
        path = stored(library, size)
        return lambda: library.where(path, data.in_month("l_shipdate"), columns)

    return Case(prepare)


QUESTION = Question(
    module="benchmarks.lineitem_read",
    title="5, 6  TPC-H lineitem: read all, 3 columns, one month",
    cases={
        "read all": read(None),
        "3 columns": read(THREE),
        "one month, all columns": one_month(None),
        "one month, 3 columns": one_month(THREE),
    },
    libraries=(
        FERMION,
        VORTEX_STRINGS,
        VORTEX,
        VORTEX_MAPPED,
        VORTEX_COMPACT,
        POLARS,
        FEATHER,
        ORC,
        LANCE,
        PARQUET_ZSTD,
        ARROW,
    ),
    targets=(
        Target("read all", 1.0, of=VORTEX_STRINGS.name),
        Target("3 columns", 1.0, of=VORTEX_STRINGS.name),
        Target("one month, all columns", 1.0, of=VORTEX_MAPPED.name),
        Target("one month, 3 columns", 1.0, of=VORTEX_MAPPED.name),
    ),
    rounds={"full": 3},
    notes="The plain Vortex libraries give string views, all others strings.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
