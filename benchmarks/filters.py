"""Filters that keep few of 1,000,000 rows: by distinct strings, floats and ids, in no order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data, harness
from benchmarks.conditions import Condition
from benchmarks.files import made
from benchmarks.formats import (
    DUCKDB,
    FERMION,
    FERMION_MAPPED,
    LANCE,
    PARQUET_ZSTD,
    POLARS,
    VORTEX,
    VORTEX_MAPPED,
    VORTEX_STRINGS,
    Format,
)
from benchmarks.question import Action, Case, Question, Size, Target

ROWS = {"full": 1_000_000, "quick": 50_000, "tiny": 2_000}


def people(size: Size) -> pa.Table:
    """The table, made once."""

    def write(path: Path) -> None:
        pq.write_table(data.people(ROWS[size]), path)

    return pq.read_table(made(data.scaled(size), "people.parquet", write))


@cache
def some(column: str, size: Size, count: int) -> tuple[str | int, ...]:
    """Values of rows anywhere."""
    rows = data.random_rows(ROWS[size], count)
    return tuple(people(size)[column].take(rows).to_pylist())


def where(condition: Callable[[Size], Condition]) -> Case:
    """All columns of the rows that meet a condition."""

    def prepare(library: Format, size: Size) -> Action:
        path = library.stored("people", size, lambda: people(size))
        chosen = condition(size)
        return lambda: library.where(path, chosen, None)

    return Case(prepare)


CASES = {
    "one name": where(lambda size: Condition("name", "in", some("name", size, 1))),
    "100 names": where(lambda size: Condition("name", "in", some("name", size, 100))),
    "names with a prefix": where(lambda size: Condition("name", "prefix", ("dort.1f3",))),
    "one percent by a float": where(lambda size: Condition("score", "between", (110.0, 110.48))),
    "1,000 ids": where(lambda size: Condition("id", "in", some("id", size, 1_000))),
}

QUESTION = Question(
    module="benchmarks.filters",
    title="14  Few of 1,000,000 rows, by distinct strings, floats and ids",
    cases=CASES,
    libraries=(
        FERMION,
        FERMION_MAPPED,
        VORTEX_MAPPED,
        VORTEX_STRINGS,
        VORTEX,
        LANCE,
        PARQUET_ZSTD,
        POLARS,
        DUCKDB,
    ),
    targets=(
        *(Target(case, 1.0, of=VORTEX_STRINGS.name) for case in CASES),
        *(Target(case, 1.0, measured=FERMION_MAPPED.name, of=VORTEX_MAPPED.name) for case in CASES),
    ),
    rounds={"full": 3},
    notes="The file is opened each time. It has no index: Lance scans, too.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
