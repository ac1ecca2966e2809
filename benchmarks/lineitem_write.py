"""Target 7: the CPU time that writing TPC-H lineitem takes."""

from __future__ import annotations

from benchmarks import data, harness
from benchmarks.formats import (
    FERMION,
    FERMION_COMPACT,
    LANCE,
    PARQUET_SNAPPY,
    PARQUET_ZSTD,
    VORTEX,
    VORTEX_COMPACT,
    Format,
)
from benchmarks.question import Action, Case, Question, Size, Target


def write(library: Format, size: Size) -> Action:
    """Write a table that lies in memory."""
    return library.writing(data.lineitem(size), size)


QUESTION = Question(
    module="benchmarks.lineitem_write",
    title="7  TPC-H lineitem: write",
    cases={"write": Case(write)},
    libraries=(
        FERMION,
        FERMION_COMPACT,
        PARQUET_ZSTD,
        PARQUET_SNAPPY,
        LANCE,
        VORTEX,
        VORTEX_COMPACT,
    ),
    targets=(Target("write", 4.6, metric="cpu_seconds"),),
    rounds={"full": 3},
    metrics=("file_bytes",),
)

if __name__ == "__main__":
    harness.main(QUESTION)
