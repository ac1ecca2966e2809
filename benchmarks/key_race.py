"""Many processes that upsert into one bucket beside a compactor: what failed, and what was lost."""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pyarrow as pa

from benchmarks import tables
from benchmarks.keyed_layers import FAST, KEY, KeyedFermion, KeyedLayer
from benchmarks.question import Action, NotOffered, Size

WRITERS = {"full": 16, "quick": 4, "tiny": 2}
SECONDS = {"full": 60.0, "quick": 5.0, "tiny": 0.5}
ROWS_EACH = 1_000_000
"""Keys of a writer: from its number times this on; those below are written by all."""
SHARED = 100
STOPS_AFTER = 5.0
"""The compactor goes on for so many seconds longer than the writers, at most."""


def race(layer: KeyedLayer, size: Size) -> Action:
    """One bucket; each upsert has new keys of its writer and all keys that are shared."""
    if not isinstance(layer, KeyedFermion):
        raise NotOffered("does not let writers upsert at once without retries")
    if size == "full" and layer.name != FAST.name:
        raise NotOffered("measured with fast durability")
    path = tables.fresh(layer, size)
    layer.create(path, rows_of(0, 0).schema)
    layer.open(path).set_properties({"bucket": "1"})

    def run() -> dict[str, float]:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(WRITERS[size] + 1, mp_context=spawned) as pool:
            begins = time.time() + 0.25 * WRITERS[size]  # when all have started
            ends = begins + SECONDS[size]
            compactor = pool.submit(compact, layer, path, begins, ends)
            every = [
                pool.submit(write, layer, path, number, begins, ends)
                for number in range(1, WRITERS[size] + 1)
            ]
            written = [each.result() for each in every]
            compacted = compactor.result()
        acknowledged = sum(count for count, _ in written)
        return {
            "upserts": acknowledged,
            "failed_upserts": sum(failed for _, failed in written),
            "lost_rows": lost(layer, path, [count for count, _ in written]),
            **compacted,
        }

    return run


def rows_of(number: int, count: int) -> pa.Table:
    """The rows of a writer's next upsert: a key of its own, and those of all."""
    keys = [number * ROWS_EACH + count, *range(SHARED)]
    return pa.table({KEY: keys, "price": [float(count)] * len(keys)})


def write(layer: KeyedLayer, path: str, number: int, begins: float, ends: float) -> tuple[int, int]:
    """Upsert until the end: how many upserts were acknowledged, and how many failed."""
    table, count, failed = layer.open(path), 0, 0
    time.sleep(max(0.0, begins - time.time()))
    while time.time() < ends or not count:
        try:
            table = layer.upsert(table, rows_of(number, count))
            count += 1
        except Exception as error:  # noqa: BLE001 - failures are what is counted
            print(f"writer {number}: {error!r}", file=sys.stderr)
            failed += 1
            if time.time() > ends + STOPS_AFTER:
                break
    return count, failed


def compact(layer: KeyedLayer, path: str, begins: float, ends: float) -> dict[str, float]:
    """Compact until the end, each tenth time fully: how often, and how often others came first."""
    table, done, dropped = layer.open(path), 0, 0
    time.sleep(max(0.0, begins - time.time()))
    rounds = 0
    while time.time() < ends:
        rounds += 1
        result: Any = table.compact(full=rounds % 10 == 0)
        done += result.groups - result.groups_dropped
        dropped += result.groups_dropped
        time.sleep(0.05)
    return {"compactions": done, "compactions_dropped": dropped}


def lost(layer: KeyedLayer, path: str, counts: list[int]) -> int:
    """How many acknowledged rows are missing, or have another value, or should not be there."""
    found = layer.read(layer.open(path))
    values = dict(zip(found[KEY].to_pylist(), found["price"].to_pylist(), strict=True))
    expected = {
        number * ROWS_EACH + n: float(n)
        for number, count in enumerate(counts, 1)
        for n in range(count)
    }
    wrong = sum(values.get(key) != value for key, value in expected.items())
    wrong += sum(key not in values for key in range(SHARED))
    return wrong + abs(found.num_rows - len(expected) - SHARED)
