"""Tables, 1: small appends, and what a hundred of them cost readers and compaction."""

from __future__ import annotations

import statistics
import time

from benchmarks import harness, tables
from benchmarks.layers import DELTA, FAST, FULL, ICEBERG, LANCE_TABLE, PAIMON, Layer
from benchmarks.question import Action, Case, Question, Size, Target

COMMITS = {"full": 1_000, "quick": 30, "tiny": 8}
SLOW_COMMITS = 200  # of a layer whose thousand would take minutes
ROWS = 1_000
FILES = {"full": 100, "quick": 20, "tiny": 6}


def appends(layer: Layer, size: Size) -> Action:
    """Append again and again; the figures are those of single appends."""
    count = COMMITS[size]
    if layer.name == ICEBERG.name:
        count = min(count, SLOW_COMMITS)
    path = tables.fresh(layer, size)
    layer.create(path, tables.rows(0).schema)
    data = tables.rows(ROWS)

    def run() -> dict[str, float]:
        table, times = layer.open(path), []
        for _ in range(count):
            start = time.perf_counter()
            table = layer.append(table, data)
            times.append(time.perf_counter() - start)
        part = max(count // 10, 1)
        first, last = statistics.median(times[:part]), statistics.median(times[-part:])
        return {
            "seconds": statistics.median(times),
            "p99_seconds": sorted(times)[min(int(count * 0.99), count - 1)],
            "last_to_first": last / first,
            "commits": count,
        }

    return run


def stored(layer: Layer, size: Size) -> str:
    """A table of a hundred appends."""
    return tables.appended(layer, size, commits=FILES[size], each=ROWS)


def read_files(layer: Layer, size: Size) -> Action:
    """Open and read all of it."""
    path = stored(layer, size)
    return lambda: layer.read(layer.open(path))


def travel(layer: Layer, size: Size) -> Action:
    """Open and read the table as it was after half of the commits."""
    path = stored(layer, size)
    version = FILES[size] // 2
    return lambda: layer.read(layer.open(path, version))


def copied(layer: Layer, size: Size) -> str:
    """The same table, to be changed."""
    return tables.copy_of(
        layer,
        size,
        stored(layer, size),
        lambda path: tables.append_all(layer, path, FILES[size], ROWS),
    )


def compact(layer: Layer, size: Size) -> Action:
    """Make one file of the hundred."""
    path = copied(layer, size)
    return lambda: layer.compact(layer.open(path))


def read_compacted(layer: Layer, size: Size) -> Action:
    """Open and read all of it afterwards."""
    path = copied(layer, size)
    layer.compact(layer.open(path))
    return lambda: layer.read(layer.open(path))


QUESTION = Question(
    module="benchmarks.table_commits",
    title="Tables 1  Appends of 1,000 rows; then 100 such files read, at half time, compacted",
    cases={
        "append": Case(appends),
        "read 100 files": Case(read_files),
        "read commit 50": Case(travel),
        "compact": Case(compact),
        "read compacted": Case(read_compacted),
    },
    libraries=(FULL, FAST, LANCE_TABLE, DELTA, PAIMON, ICEBERG),
    targets=(
        Target("append", 0.006, measured=FAST.name),
        Target("append", 0.015, measured=FAST.name, metric="p99_seconds"),
        Target("append", 0.020),
        Target("append", 0.060, metric="p99_seconds"),
        Target("append", 1.2, metric="last_to_first", measured=FAST.name),
        Target("append", 1.2, metric="last_to_first"),
        Target("read 100 files", 0.045),
        Target("read commit 50", 0.025),
        Target("compact", 0.080),
        Target("read compacted", 0.010),
    ),
    rounds={"full": 3},
    metrics=("p99_seconds", "last_to_first", "commits"),
    notes="append: median and 99th percentile over 1,000 commits (pyiceberg: 200); last to first: "
    "median of the last tenth over that of the first. fermion calls fsync for every file and "
    "folder, its fast form and the rivals do not, or not all.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
