"""Many processes append to one table at once: commits a minute, retries, and whether all are there.

``python -m benchmarks.commit_race DIRECTORY [PROCESSES COMMITS]`` prints one line; local disk.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

SCHEMA = pa.schema({"writer": pa.int32(), "id": pa.int64()})


def append(path: str, writer: int, commits: int) -> tuple[int, float]:
    """Append one row so many times: retries in all, and seconds of processor."""
    from fermion_table import Table

    table, began, retries = Table.open(path), time.process_time(), 0
    for number in range(commits):
        done = table.append(
            {"writer": [writer], "id": [number]},
            commit_user=f"writer {writer}",
            commit_identifier=number,
        )
        retries += done.effort.retries
    return retries, time.process_time() - began


def race(path: str, processes: int, commits: int) -> dict[str, float]:
    """Let processes append, and count what is there afterwards.

    Raises AssertionError: A commit is lost, or there twice.
    """
    from fermion_table import Table

    first = Table.create(path, SCHEMA).snapshot.id
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(append, [path] * processes, range(processes), [0] * processes))  # started
        began = time.perf_counter()
        done = list(
            pool.map(append, *zip(*((path, n, commits) for n in range(processes)), strict=True))
        )
        seconds = time.perf_counter() - began
    table = Table.open(path)
    rows = table.to_arrow()
    expected = {(n, each) for n in range(processes) for each in range(commits)}
    found = list(zip(rows["writer"].to_pylist(), rows["id"].to_pylist(), strict=True))
    assert sorted(found) == sorted(expected)
    assert table.snapshot.id - first == len(expected), "one snapshot for each commit"
    return {
        "commits": len(expected),
        "seconds": seconds,
        "retries": sum(retries for retries, _ in done),
        "processor_seconds": sum(spent for _, spent in done),
    }


if __name__ == "__main__":
    counts = [int(each) for each in sys.argv[2:]] or [16, 100]
    found = race(str(Path(sys.argv[1], f"race-{time.time_ns()}")), *counts)
    per_minute = 60 * found["commits"] / found["seconds"]
    print(f"{per_minute:,.0f} commits a minute; {found}")
