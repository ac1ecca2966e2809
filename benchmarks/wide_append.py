"""Tables 9: append few rows of many columns, and compact ten such files."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from benchmarks import harness, tables
from benchmarks.formats import FEATHER, PARQUET_ZSTD, Format
from benchmarks.layers import FULL, Layer
from benchmarks.question import Action, Case, Library, NotOffered, Question, Size, Target

SHAPE = {"full": (10_000, 100), "quick": (1_000, 100), "tiny": (20, 10)}
WIDER = 5
FILES = 10


@lru_cache(maxsize=1)
def features(columns: int, rows: int, seed: int = tables.SEED) -> pa.Table:
    """Columns of floats in which no encoding finds anything."""
    random = np.random.default_rng(seed)
    return pa.table({f"feature_{n:05d}": random.standard_normal(rows) for n in range(columns)})


def append(times: int) -> Case:
    """Append rows of so many times the columns to a table; of formats, write them to a file."""

    def prepare(library: Library, size: Size) -> Action:
        columns, rows = SHAPE[size]
        data = features(times * columns, rows)
        if isinstance(library, Format):
            return library.writing(data, size)
        assert isinstance(library, Layer)
        path = tables.fresh(library, size)
        library.create(path, data.schema)
        table = library.append(library.open(path), data)
        return lambda: library.append(table, data)

    return Case(prepare)


def compact(*, alike: bool) -> Case:
    """Open a table of ten such files, of the same or of other rows each, and compact it."""

    def prepare(library: Library, size: Size) -> Action:
        if not isinstance(library, Layer):
            raise NotOffered("a format has no tables")

        def fill(path: str) -> None:
            library.create(path, features(*SHAPE[size]).schema)
            table = library.open(path)
            for file in range(FILES):
                seed = tables.SEED + (0 if alike else file)
                table = library.append(table, features(*SHAPE[size], seed))

        name = f"wide-{FILES}" if alike else f"wide-{FILES}-others"
        path = tables.stored(library, size, name, fill)
        copy = tables.copy_of(library, size, path, fill)
        return lambda: library.compact(library.open(copy))

    return Case(prepare)


QUESTION = Question(
    module="benchmarks.wide_append",
    title="Tables 9  100 rows x 10,000 float64 columns: append, compact ten files",
    cases={
        "append": append(1),
        "append, five times the columns": append(WIDER),
        "compact": compact(alike=True),
        "compact, other rows in each file": compact(alike=False),
    },
    libraries=(FULL, FEATHER, PARQUET_ZSTD),
    targets=(
        Target("append", 0.3),
        Target("append, five times the columns", 1.5),
        Target("compact", 2.0),
        Target("compact, other rows in each file", 2.0),
    ),
    rounds={"full": 3},
    notes="Feather and Parquet write the same rows to a file, without a table.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
