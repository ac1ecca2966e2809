"""Tables: thousands of commits of ten rows, then aggregates of all of them, then a compaction."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from benchmarks import harness, tables
from benchmarks.layers import (
    DELTA,
    DUCKLAKE,
    DUCKLAKE_POSTGRES,
    FAST,
    FULL,
    LANCE_TABLE,
    MERGING,
    Layer,
)
from benchmarks.question import Action, Case, Question, Size, Target

COMMITS = {"full": 30_000, "quick": 1_000, "tiny": 8}
SLOW_COMMITS, SLOW = 3_000, (DUCKLAKE, DUCKLAKE_POSTGRES, LANCE_TABLE, DELTA)
"""Of layers whose commits take the longer the more there are."""
ROWS = 10
DATA, METADATA = (".fermion", ".parquet", ".lance"), ("manifest", "_delta_log")
"""Endings of data files, and directories in which files with such endings hold metadata."""
AGGREGATES = {"id": ("min", "max", "sum", "count"), "value": ("min", "max", "sum", "mean", "count")}


def small(layer: Layer, size: Size) -> Action:
    """Append; open and aggregate all; compact. The time is that of a commit."""
    is_slow = layer.name in {each.name for each in SLOW}
    count = min(COMMITS[size], SLOW_COMMITS if is_slow else 10**9)
    path = tables.fresh(layer, size)
    layer.create(path, tables.rows(0).schema)
    data = [tables.rows(ROWS, number * ROWS) for number in range(100)]

    def run() -> dict[str, float]:
        table, times, cpu = layer.open(path), [], time.process_time()
        for number in range(count):
            start = time.perf_counter()
            table = layer.append(table, data[number % len(data)])
            times.append(time.perf_counter() - start)
        cpu = time.process_time() - cpu
        sizes = {each: each.stat().st_size for each in Path(path).rglob("*") if each.is_file()}
        start, aggregate_cpu = time.perf_counter(), time.process_time()
        rows = layer.read(layer.open(path))
        for column, names in AGGREGATES.items():
            for name in names:
                getattr(pc, name)(rows[column])
        aggregated, aggregate_cpu = time.perf_counter(), time.process_time() - aggregate_cpu
        layer.compact(layer.open(path))
        return {
            "seconds": statistics.median(times),
            "p99_seconds": sorted(times)[min(int(count * 0.99), count - 1)],
            "commit_cpu_seconds": cpu / count,
            "commits": count,
            "commit_bytes": sum(sizes.values()) / count,
            "commit_metadata_bytes": _without_data(sizes) / count,
            "commit_files": len(sizes) / count,
            "aggregate_seconds": aggregated - start,
            "aggregate_cpu_seconds": aggregate_cpu,
            "compact_seconds": time.perf_counter() - aggregated,
        }

    return run


def _without_data(sizes: Mapping[Path, int]) -> int:
    is_data = {path: path.suffix in DATA and path.parent.name not in METADATA for path in sizes}
    return sum(size for path, size in sizes.items() if not is_data[path])


QUESTION = Question(
    module="benchmarks.small_commits",
    title="Tables  Commits of 10 rows, nine aggregates of all of them, one compaction",
    cases={"commits of 10 rows": Case(small)},
    libraries=tuple(replace(layer, seconds_max=3600.0) for layer in (FULL, FAST, MERGING, *SLOW)),
    targets=(
        Target("commits of 10 rows", 0.005, measured=MERGING.name),
        Target("commits of 10 rows", 2, measured=MERGING.name, metric="aggregate_seconds"),
        Target("commits of 10 rows", 2, measured=MERGING.name, metric="compact_seconds"),
        Target("commits of 10 rows", 3_000, measured=MERGING.name, metric="commit_metadata_bytes"),
    ),
    rounds={"full": 1},
    metrics=(
        "p99_seconds",
        "commit_cpu_seconds",
        "commits",
        "commit_bytes",
        "commit_metadata_bytes",
        "commit_files",
        "aggregate_seconds",
        "aggregate_cpu_seconds",
        "compact_seconds",
    ),
    notes="ducklake, lance and deltalake: 3,000 commits instead of 30,000. commit_bytes: all that "
    "is stored, rows included, for each commit; commit_metadata_bytes: without data files. fermion "
    "calls fsync for every file, its fast form, lance and deltalake do not; SQLite and PostgreSQL "
    "do, for ducklake, and the processor time of PostgreSQL's processes is not counted. fermion "
    "merging: the fast form, with compaction.min.file_num=10.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
