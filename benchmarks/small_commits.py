"""Tables: thousands of commits of ten rows, then aggregates of all of them, then a compaction."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from benchmarks import harness, tables
from benchmarks.files import size_of
from benchmarks.layers import DELTA, DUCKLAKE, FAST, FULL, LANCE_TABLE, MERGING, Layer
from benchmarks.question import Action, Case, Question, Size, Target

COMMITS = {"full": 30_000, "quick": 1_000, "tiny": 8}
SLOW_COMMITS, SLOW = 3_000, ("ducklake", "lance", "deltalake")
"""Of layers whose commits take the longer the more there are."""
ROWS = 10
AGGREGATES = {"id": ("min", "max", "sum", "count"), "value": ("min", "max", "sum", "mean", "count")}


def small(layer: Layer, size: Size) -> Action:
    """Append; open and aggregate all; compact. The time is that of a commit."""
    count = min(COMMITS[size], SLOW_COMMITS if layer.name in SLOW else 10**9)
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
        stored, files = size_of(Path(path)), sum(each.is_file() for each in Path(path).rglob("*"))
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
            "commit_bytes": stored / count,
            "commit_files": files / count,
            "aggregate_seconds": aggregated - start,
            "aggregate_cpu_seconds": aggregate_cpu,
            "compact_seconds": time.perf_counter() - aggregated,
        }

    return run


QUESTION = Question(
    module="benchmarks.small_commits",
    title="Tables  Commits of 10 rows, nine aggregates of all of them, one compaction",
    cases={"commits of 10 rows": Case(small)},
    libraries=tuple(
        replace(layer, seconds_max=3600.0)
        for layer in (FULL, FAST, MERGING, DUCKLAKE, LANCE_TABLE, DELTA)
    ),
    targets=(
        Target("commits of 10 rows", 0.005, measured=MERGING.name),
        Target("commits of 10 rows", 2, measured=MERGING.name, metric="aggregate_seconds"),
        Target("commits of 10 rows", 2, measured=MERGING.name, metric="compact_seconds"),
    ),
    rounds={"full": 1},
    metrics=(
        "p99_seconds",
        "commit_cpu_seconds",
        "commits",
        "commit_bytes",
        "commit_files",
        "aggregate_seconds",
        "aggregate_cpu_seconds",
        "compact_seconds",
    ),
    notes="ducklake, lance and deltalake: 3,000 commits instead of 30,000. commit_bytes: all that "
    "is stored, rows included, for each commit. fermion calls fsync for every file, its fast form, "
    "lance and deltalake do not; SQLite does, for ducklake. fermion merging: the fast form, with "
    "compaction.min.file_num=10.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
