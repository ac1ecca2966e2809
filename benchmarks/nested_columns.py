"""Target 10: reading nested columns, and the size of their files."""

from __future__ import annotations

from pathlib import Path

from benchmarks import data, harness
from benchmarks.files import size_of
from benchmarks.formats import (
    ARROW,
    FEATHER,
    FERMION,
    FERMION_RANDOM,
    LANCE,
    PARQUET_ZSTD,
    VORTEX,
    VORTEX_STRINGS,
    Fermion,
    Format,
)
from benchmarks.question import Action, Case, Question, Size, Target

ROWS = {"full": 500_000, "quick": 50_000, "tiny": 100}
FERMION_FAST = Fermion("fermion fast", profile="fast")
SECONDS = {"vectors": 0.390, "structs": 0.080, "maps": 0.088, "lists": 0.044}


def read_all(kind: str) -> Case:
    """Read the whole file of one kind."""

    def prepare(library: Format, size: Size) -> Action:
        rows = ROWS[size]
        path = library.stored(f"nested-{kind}", size, lambda: data.nested(kind, rows))

        def read() -> dict[str, int]:
            table = library.read(path)
            return {
                "rows": table.num_rows,
                "columns": table.num_columns,
                "arrow_bytes": table.nbytes,
                "file_bytes": size_of(Path(path)),
            }

        return read

    return Case(prepare)


QUESTION = Question(
    module="benchmarks.nested_columns",
    title="10  Nested columns of 500,000 rows: read all",
    cases={kind: read_all(kind) for kind in data.NESTED},
    libraries=(
        FERMION,
        FERMION_FAST,
        FERMION_RANDOM,
        VORTEX,
        VORTEX_STRINGS,
        FEATHER,
        LANCE,
        PARQUET_ZSTD,
        ARROW,
    ),
    targets=(
        *(Target(kind, SECONDS[kind]) for kind in data.NESTED),
        *(Target(kind, 1.0, metric="file_bytes", of="best rival") for kind in data.NESTED),
    ),
    rounds={"full": 3},
    metrics=("file_bytes",),
    notes="vectors: List<float32> of 128; structs: List<Struct<int64, string>>; maps: "
    "Map<string, double>; lists: List<List<int64>>. Size is held against the smallest rival file, "
    "which is stricter than the file of the fastest.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
