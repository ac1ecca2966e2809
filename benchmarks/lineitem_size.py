"""Target 4: how large TPC-H lineitem is in each format."""

from __future__ import annotations

from pathlib import Path

from benchmarks import data, harness
from benchmarks.files import size_of
from benchmarks.formats import (
    FEATHER,
    FERMION,
    FERMION_COMPACT,
    FERMION_RANDOM,
    LANCE,
    ORC,
    PARQUET_SNAPPY,
    PARQUET_ZSTD,
    VORTEX,
    VORTEX_COMPACT,
    Format,
)
from benchmarks.question import Action, Case, Question, Size, Target


def file_size(library: Format, size: Size) -> Action:
    """Only look at the file."""
    path = Path(library.stored("lineitem-files", size, lambda: data.lineitem(size)))
    return lambda: {"file_bytes": size_of(path)}


QUESTION = Question(
    module="benchmarks.lineitem_size",
    title="4  TPC-H lineitem: file size",
    cases={"size": Case(file_size)},
    libraries=(
        FERMION,
        FERMION_COMPACT,
        FERMION_RANDOM,
        VORTEX_COMPACT,
        VORTEX,
        ORC,
        PARQUET_ZSTD,
        PARQUET_SNAPPY,
        LANCE,
        FEATHER,
    ),
    targets=(
        Target("size", 0.85, metric="file_bytes", of=VORTEX.name),
        Target("size", 118e6, metric="file_bytes", measured=FERMION_COMPACT.name),
    ),
    rounds={"full": 1},
    headline="file_bytes",
    metrics=("file_bytes",),
)

if __name__ == "__main__":
    harness.main(QUESTION)
