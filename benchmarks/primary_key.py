"""Tables, 7: primary keys. Upserts into 2,000,000 rows, reads after them, lookups of keys."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness, tables
from benchmarks.files import size_of
from benchmarks.key_race import race
from benchmarks.keyed_layers import (
    DELTA,
    FAST,
    FULL,
    KEY,
    LANCE,
    PAIMON,
    PARQUET,
    PART,
    KeyedFermion,
    KeyedLayer,
)
from benchmarks.keyed_paimon_spark import PAIMON_SPARK
from benchmarks.question import Action, Case, NotOffered, Question, Size, Target

ROWS = {"full": 2_000_000, "quick": 100_000, "tiny": 1_000}
UPSERT_ROWS = {"full": 40_000, "quick": 2_000, "tiny": 50}
UPSERTS = 5
PARTS = 20
PARTITIONED_ROWS = {"full": 5_000_000, "quick": 100_000, "tiny": 2_000}
SMALL_ROWS = {"full": 200_000, "quick": 20_000, "tiny": 500}
SMALL_UPSERTS = {"full": 200, "quick": 10, "tiny": 6}
SHARES = (0, 20, 50, 100)
RUNS = 10
RUN_BYTES = {"full": 500_000_000, "quick": 10_000_000, "tiny": 100_000}
PAYLOAD_BYTES = 200
ROW_BYTES = 222
"""Of a row with a payload in a file, about."""
LONG: tuple[Size, ...] = ("full", "tiny")
"""Sizes of cases that take too long for quick runs."""


def rows_of(keys: np.ndarray, seed: int) -> pa.Table:
    """Eight columns for keys."""
    random = np.random.default_rng(tables.SEED + seed)
    count = len(keys)
    words = np.array([f"name {n}" for n in range(1000)])
    return pa.table(
        {
            KEY: keys.astype(np.int64),
            "price": np.round(random.uniform(0, 1000, count), 2),
            "quantity": random.integers(1, 100, count).astype(np.int32),
            "stock": random.integers(0, 10**6, count),
            "name": pa.array(words[random.integers(0, 1000, count)], pa.string()),
            "place": pa.array(words[random.integers(0, 50, count)], pa.string()),
            "seen": random.integers(1_700_000_000, 1_800_000_000, count),
            "weight": np.round(random.normal(50, 10, count), 3),
        }
    )


def upsert_of(number: int, stored: int, count: int) -> pa.Table:
    """The rows of one of several upserts: nine in ten replace a row, the others are new."""
    random = np.random.default_rng(tables.SEED + 100 + number)
    new = count // 10
    first = stored + (number - 1) * new
    old = random.choice(stored, count - new, replace=False)
    return rows_of(random.permutation(np.concatenate([old, np.arange(first, first + new)])), number)


def upserts_of(layer: KeyedLayer, size: Size) -> list[pa.Table]:
    """The rows of each of the five upserts."""
    stored, count = ROWS[size] // layer.one_in, UPSERT_ROWS[size] // layer.one_in
    return [upsert_of(number, stored, count) for number in range(1, UPSERTS + 1)]


def loaded(layer: KeyedLayer, path: str, rows: pa.Table) -> Any:
    """A table of rows that need no merging."""
    layer.create(path, rows.schema)
    table = layer.upsert(layer.open(path), rows)
    if layer.own:
        layer.compact_fully(table)
    return table


def make_base(layer: KeyedLayer, size: Size, path: str) -> None:
    """The table before the upserts."""
    loaded(layer, path, rows_of(np.arange(ROWS[size] // layer.one_in), 0))


def base(layer: KeyedLayer, size: Size) -> str:
    """The path of the table before the upserts, in the cache."""
    return tables.stored(layer, size, "keyed", lambda path: make_base(layer, size, path))


def upserted(layer: KeyedLayer, size: Size) -> str:
    """The path of the table after five upserts, in the cache."""

    def make(path: str) -> None:
        make_base(layer, size, path)
        table = layer.open(path)
        for rows in upserts_of(layer, size):
            table = layer.upsert(table, rows)

    return tables.stored(layer, size, "keyed-upserted", make)


def compacted(layer: KeyedLayer, size: Size) -> str:
    """The path of that table after full compaction, in the cache."""
    source = upserted(layer, size)

    def make(path: str) -> None:
        shutil.copytree(source, path)
        layer.compact_fully(layer.open(path))

    return tables.stored(layer, size, "keyed-compacted", make)


def upsert(layer: KeyedLayer, size: Size) -> Action:
    """Five upserts, each timed."""
    stored = base(layer, size)
    path = tables.copy_of(layer, size, stored, lambda target: make_base(layer, size, target))
    changes = upserts_of(layer, size)
    table = layer.open(path)

    def five() -> dict[str, float]:
        current, times = table, []
        for rows in changes:
            start = time.perf_counter()
            current = layer.upsert(current, rows)
            times.append(time.perf_counter() - start)
        median = statistics.median(times)
        return {"seconds": median, "slowest_factor": max(times) / median}

    return five


def read(path_of: Callable[[KeyedLayer, Size], str]) -> Callable[[KeyedLayer, Size], Action]:
    """Open the table and read all of it."""

    def prepare(layer: KeyedLayer, size: Size) -> Action:
        path = path_of(layer, size)
        return lambda: layer.read(layer.open(path))

    return prepare


def lookup(count: int) -> Callable[[KeyedLayer, Size], Action]:
    """Look keys up in a table that is open and was asked before."""

    def prepare(layer: KeyedLayer, size: Size) -> Action:
        table = layer.open(upserted(layer, size))
        random = np.random.default_rng(tables.SEED)
        stored = ROWS[size] // layer.one_in
        keys = random.choice(stored, min(count, stored), replace=False).tolist()
        layer.lookup(table, keys)
        return lambda: layer.lookup(table, keys)

    return prepare


def share(percent: int, *, marks: bool = False) -> Callable[[KeyedLayer, Size], Action]:
    """Read 3 columns with a filter, after a tenth of some partitions' rows was replaced.

    With `marks` a compaction has marked the rows that were replaced as deleted.
    """

    def make(layer: KeyedLayer, size: Size, path: str) -> None:
        keys = np.arange(PARTITIONED_ROWS[size] // layer.one_in)
        table = loaded(layer, path, with_part(rows_of(keys, 0)))
        touched = keys[(keys % PARTS < PARTS * percent // 100) & (keys // PARTS % 10 == 0)]
        if len(touched):
            layer.upsert(table, with_part(rows_of(touched, 1)))
        if marks:
            layer.compact(table)

    def prepare(layer: KeyedLayer, size: Size) -> Action:
        name = f"keyed-share-{percent}"
        if marks:
            if not isinstance(layer, KeyedFermion):
                raise NotOffered("no such setting")
            marking = ("deletion_vectors.enabled", "true")
            layer, name = replace(layer, settings=(*layer.settings, marking)), f"{name}-marked"
        path = tables.stored(layer, size, name, lambda target: make(layer, size, target))
        return lambda: layer.select(layer.open(path), [KEY, "name", "stock"], 800.0)

    return prepare


def with_part(rows: pa.Table) -> pa.Table:
    """Rows with the partition that their key is in."""
    part = (rows[KEY].to_numpy() % PARTS).astype(np.int32)
    return rows.add_column(0, PART, pa.array(part))


def amplification(**settings: str) -> Callable[[KeyedLayer, Size], Action]:
    """Many small upserts, a compaction after each; what was written in all, and what is read."""

    def prepare(layer: KeyedLayer, size: Size) -> Action:
        if layer.reference:
            raise NotOffered("keeps nothing that it wrote before, or never compacts")
        if isinstance(layer, KeyedFermion):
            layer = replace(layer, settings=(*layer.settings, *settings.items()))
        elif settings:
            raise NotOffered("no such setting")
        count, stored = SMALL_UPSERTS[size], SMALL_ROWS[size]
        path = tables.fresh(layer, size)
        loaded(layer, path, rows_of(np.arange(stored), 0))
        changes = [upsert_of(number, stored, stored // 100) for number in range(1, count + 1)]
        before = size_of(Path(path))

        def many() -> dict[str, float]:
            table, flush = layer.open(path), 0
            for rows in changes:
                table = layer.upsert(table, rows)
                flush = flush or size_of(Path(path)) - before
                if layer.own:
                    layer.compact(table)
            found = {
                "written_bytes": size_of(Path(path)) - before,
                "files_read": layer.plan(layer.open(path), None),
            }
            if isinstance(layer, KeyedFermion):
                found |= bounds(layer, before, flush, count)
            return found

        return many

    return prepare


def bounds(layer: KeyedFermion, stored: int, flush: int, count: int) -> dict[str, float]:
    """What the rules for picking runs write and leave at most, if the sizes of runs just add up.

    Rows of one key that are merged make runs smaller than that.

    Parameters
    ----------
    stored, flush
        Bytes before, and of each upsert.
    count
        Number of upserts.
    """
    # Not at the top: workers of other libraries lack what it needs.
    from fermion_table.compaction.universal import Run, UniversalOptions, pick

    settings = dict(layer.settings)
    buckets = int(settings["bucket"])
    trigger = int(settings.get("num_sorted_run.compaction_trigger", "5"))
    ratio = int(settings.get("compaction.size_ratio", "1"))
    options = UniversalOptions(trigger=trigger, size_ratio=ratio, num_levels=trigger + 1)
    runs, written = [Run(trigger, stored // buckets)], 0
    for _ in range(count):
        runs.insert(0, Run(0, flush // buckets))
        written += flush // buckets
        unit = pick(runs, options)
        if unit is not None:
            merged = sum(run.size for run in runs[: unit.run_count])
            runs[: unit.run_count] = [Run(unit.output_level, merged)]
            written += merged
    return {"written_bound": written * buckets, "files_bound": trigger * buckets}


def run_of(number: int, size: Size) -> pa.Table:
    """Rows of a run that overlaps others: every twentieth key, and bytes that do not compress."""
    count = RUN_BYTES[size] // ROW_BYTES
    random = np.random.default_rng(tables.SEED + number)
    keys = np.sort(random.choice(2 * RUNS * count, count, replace=False))
    ends = np.arange(0, PAYLOAD_BYTES * count + 1, PAYLOAD_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(random.bytes(PAYLOAD_BYTES * count))]
    payload = pa.Array.from_buffers(pa.binary(), count, buffers)
    return rows_of(keys, number).append_column("payload", payload)


def merge(layer: KeyedLayer, size: Size) -> Action:
    """Compact a tree of ten runs of one size, which overlap in all of their keys."""
    if layer.name != FULL.name:
        raise NotOffered("Fermion's own target, with full durability")
    one = replace(FULL, settings=(("bucket", "1"), ("write_buffer_size", "4 GB")))

    def make(path: str) -> None:
        one.create(path, run_of(0, size).schema)
        table = one.open(path)
        for number in range(RUNS):
            one.upsert(table, run_of(number, size))

    path = tables.copy_of(one, size, tables.stored(one, size, "keyed-runs", make), make)
    table = one.open(path)
    stored = size_of(Path(path))

    def compact() -> dict[str, float]:
        one.compact_fully(table)
        return {"input_gb": stored / 1e9}

    return compact


MARKED = "updates in 100 % of partitions, marked by compaction"
RACE = "16 processes upsert for a minute beside a compactor"
AFTER, COMPACTED = "read all after 5 upserts", "read all, fully compacted"
MERGED = "merge 10 runs of 500 MB"
QUESTION = Question(
    module="benchmarks.primary_key",
    title="Tables 7  Primary keys: 2,000,000 rows of 8 columns, then 5 upserts of 40,000 rows",
    cases={
        "upsert": Case(upsert),
        AFTER: Case(read(upserted), calls=3),
        COMPACTED: Case(read(compacted), calls=3),
        "1 key": Case(lookup(1), calls=5),
        "1,000 keys": Case(lookup(1_000), calls=5),
        **{
            f"updates in {percent} % of partitions": Case(share(percent), calls=3, sizes=LONG)
            for percent in SHARES
        },
        MARKED: Case(share(100, marks=True), calls=3, sizes=LONG),
        MERGED: Case(merge, sizes=LONG, rounds=1),
        "200 upserts": Case(amplification(), sizes=LONG, rounds=1),
        "200 upserts, trigger 10": Case(
            amplification(**{"num_sorted_run.compaction_trigger": "10"}), sizes=LONG, rounds=1
        ),
        "200 upserts, size ratio 50": Case(
            amplification(**{"compaction.size_ratio": "50"}), sizes=LONG, rounds=1
        ),
        RACE: Case(race, sizes=LONG, rounds=1),
    },
    libraries=(FULL, FAST, LANCE, DELTA, PAIMON, PAIMON_SPARK, PARQUET),
    targets=(
        Target("upsert", 0.5, measured=FAST.name, of=LANCE.name),
        Target("upsert", 3.0, metric="slowest_factor", measured=FAST.name),
        Target(AFTER, 1.0, of=LANCE.name),
        Target(AFTER, 1.5, of=COMPACTED),
        Target("1 key", 0.005),
        Target("1,000 keys", 0.040),
        Target("updates in 20 % of partitions", 1.25, of="updates in 0 % of partitions"),
        Target("updates in 100 % of partitions", 2.5, of="updates in 0 % of partitions"),
        Target(MARKED, 1.15, of="updates in 0 % of partitions"),
        Target(MERGED, 512 * 2**20, metric="peak_bytes"),
        Target(MERGED, 1 / 0.15, per="input_gb"),
        Target(RACE, 0, metric="failed_upserts", measured=FAST.name),
        Target(RACE, 0, metric="lost_rows", measured=FAST.name),
    ),
    rounds={"full": 2},
    metrics=(
        *("slowest_factor", "written_bytes", "written_bound", "files_read", "files_bound"),
        *("input_gb", "upserts", "compactions"),
    ),
    notes=(
        "A tenth of the rows of an upsert is new. The partitioned table has 5,000,000 rows in 20 "
        "partitions; a tenth of the rows of some of them was replaced (where the case says so, a "
        "compaction of level 0 has marked them in deletion vectors). 200 upserts: 2,000 rows each "
        "into 200,000, Fermion's with compact() after each; written bytes hold the rewritten ones, "
        "and their bound is what the rules of compaction give for sizes that only add up. "
        "The 10 runs hold a column of 200 random bytes, and are merged on two cores. "
        "The processes write keys of their own, and keys that all of them write, into one bucket. "
        "pypaimon gets a tenth of all rows, and a minute for each process, as it merges slowly; it "
        "does not compact; paimon (Spark) is its Java engine, and the memory without the JVM's; "
        "Lance has no partitions, and no index here."
    ),
)

if __name__ == "__main__":
    harness.main(QUESTION)
