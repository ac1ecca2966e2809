"""Target 8: a thousand random rows of TPC-H lineitem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import data, harness
from benchmarks.files import size_of
from benchmarks.formats import (
    FERMION,
    FERMION_MAPPED,
    FERMION_RANDOM,
    LANCE,
    PARQUET_ZSTD,
    VORTEX,
    VORTEX_MAPPED,
    Format,
)
from benchmarks.lineitem_read import THREE, stored
from benchmarks.question import Action, Case, Question, Size, Target

TOTAL = {"full": 6_001_215, "quick": 299_814, "tiny": 5_000}


def take(columns: Sequence[str] | None) -> Case:
    """Open the file and take the rows."""

    def prepare(library: Format, size: Size) -> Action:
        path = stored(library, size)
        rows = data.random_rows(TOTAL[size])

        def taken() -> dict[str, int]:
            table = library.take(path, rows, columns)
            return {
                "rows": table.num_rows,
                "columns": table.num_columns,
                "file_bytes": size_of(Path(path)),
            }

        return taken

    return Case(prepare)


QUESTION = Question(
    module="benchmarks.random_rows",
    title="8  TPC-H lineitem: take 1,000 random rows",
    cases={"all columns": take(None), "3 columns": take(THREE)},
    libraries=(FERMION, FERMION_MAPPED, FERMION_RANDOM, VORTEX_MAPPED, VORTEX, LANCE, PARQUET_ZSTD),
    targets=(
        Target("all columns", 1.0, measured=FERMION_MAPPED.name, of=VORTEX_MAPPED.name),
        Target("3 columns", 1.0, measured=FERMION_MAPPED.name, of=VORTEX_MAPPED.name),
    ),
    metrics=("file_bytes",),
    notes="Opening the file is part of it. The random profile's file is larger: see its size.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
