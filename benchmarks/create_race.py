"""Many processes create tables of one catalog of 1,000,000 names at once, each in its namespace.

``python -m benchmarks.create_race DIRECTORY [PROCESSES TABLES]`` prints one line; local disk.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.catalog import NAMES, SCHEMA, list_names, open_catalog


def create(path: str, first: int, count: int, client: int) -> float:
    """Create so many tables: seconds of processor."""
    catalog, began = open_catalog(path), time.process_time()
    for number in range(first, first + count):
        catalog.create_table(f"db{20 * client}x.t{number}", SCHEMA)
    return time.process_time() - began


def race(path: str, processes: int, tables: int) -> str:
    """Let processes create tables, and see that all are listed.

    Raises AssertionError: A table is not listed.
    """
    list_names(path, NAMES["full"])
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(create, path, 0, 3), range(processes)))  # started
        began = time.perf_counter()
        spent = sum(pool.map(partial(create, path, 3, tables), range(processes)))
        seconds = time.perf_counter() - began
    listed = {name for name in open_catalog(path).tables() if "x." in name}
    assert len(listed) == processes * (tables + 3)
    made = processes * tables
    return f"{made / seconds:,.1f} creates a second, {1000 * spent / made:.1f} ms of CPU each"


if __name__ == "__main__":
    counts = [int(each) for each in sys.argv[2:]] or [4, 150]
    print(race(str(Path(sys.argv[1], f"creates-{time.time_ns()}")), *counts))
