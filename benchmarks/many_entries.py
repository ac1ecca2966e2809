"""100,000,000 real entries in manifests on disk: plans, a small commit, expiry, orphan files.

``python -m benchmarks.many_entries DIRECTORY [ENTRIES]`` makes the table, 20 bytes an entry, unless
it is there, and measures each step in a process of its own. The data files are not there.
"""

from __future__ import annotations

import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.counting_store import CountingStore
from fermion_table.metadata.history import latest
from fermion_table.storage.paths import DATA_DIRECTORY, data_path
from fermion_table.storage.store import StoredObject

PER_MANIFEST = 32_768
"""Entries of each; each is a day."""
SCHEMA = pa.schema({"day": pa.int32(), "id": pa.int64()})
FILE_BYTES = 128_000_000
FILE_ROWS = 10
SEED = 20_261_128


def names(day: int) -> pa.Array:
    """Paths of the data files of a day, with 16 random bytes each."""
    count = PER_MANIFEST
    unique = np.random.default_rng((SEED, day, 1)).bytes(16 * count)
    made = np.frombuffer((data_path("0" * 32) * count).encode(), np.uint8).reshape(count, -1).copy()
    start = data_path("0" * 32).index("0")
    made[:, start : start + 32] = np.frombuffer(unique.hex().encode(), np.uint8).reshape(count, 32)
    ends = np.arange(count + 1, dtype=np.int32) * made.shape[1]
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(made))


def manifest_table(day: int, ids: list[int], flags: list[int]) -> pa.Table:
    """The entries of a day as columns; ids and flags of the statistics of the two fields."""
    count = PER_MANIFEST
    random = np.random.default_rng((SEED, day))
    first = np.arange(count, dtype=np.int64) + day * count

    def numbers(values: object) -> pa.Array:
        return pa.array(np.broadcast_to(np.asarray(values, np.int64), count))

    sizes = random.integers(FILE_BYTES * 9 // 10, FILE_BYTES, count)
    columns = {
        "path": names(day),
        "source": pa.array(["append"] * count),
        "partition": pa.array([f"[{day}]"] * count),
        "size": numbers(sizes),
        "rows": numbers(FILE_ROWS),
        "tail_length": numbers(2_000),
        "schema_id": numbers(0),
        "level": numbers(0),
        "delete_rows": numbers(0),
        "sequence_offset": numbers(0),
        "sequence_start": numbers(1),
        "row_offset": numbers(0),
        "row_id_base": numbers(first * FILE_ROWS),
        "added_snapshot": numbers(1),
        "created_ms": numbers(1_700_000_000_000 + first),
    }
    bounds = ((day, day), (first * FILE_ROWS, first * FILE_ROWS + FILE_ROWS - 1))
    for field_id, flag, (low, high) in zip(ids, flags, bounds, strict=True):
        for name, values in (("min", low), ("max", high), ("null_count", 0), ("flags", flag)):
            columns[f"stats.{field_id}.{name}"] = numbers(values)
    return pa.table(columns)


def write_day(path: str, day: int, ids: list[int], flags: list[int]) -> tuple[str, str, int, int]:
    """Write the manifest of a day: path, hash, size, and bytes of its data files."""
    from fermion_table.metadata.packed_manifest import write_packed
    from fermion_table.storage import json_codec
    from fermion_table.storage.paths import manifest_index_path, unique_name

    table = manifest_table(day, ids, flags)
    data = write_packed(table)
    name = manifest_index_path(unique_name())
    Path(path, name).write_bytes(data)
    total = int(table.column("size").to_numpy().sum())
    return name, json_codec.content_hash(data), len(data), total


def make(path: str, entries: int) -> None:
    """A table with so many entries, one manifest a day."""
    from fermion_table import Table
    from fermion_table.metadata.manifest import reference_to
    from fermion_table.metadata.snapshot import Totals, encode_snapshot
    from fermion_table.storage.paths import MAIN, snapshot_path

    table = Table.create(path, SCHEMA, partition_by="day", durability="fast")
    table.append(pa.table({"day": [0], "id": [0]}, SCHEMA))
    Path(path, "manifest").mkdir(exist_ok=True)
    entry = table.snapshot.tail[0]
    ids = [field.id for field in table.schema.fields]
    flags = [int(entry.stats[each].flags) for each in ids]
    days = range(1, entries // PER_MANIFEST + 1)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        written = list(
            pool.map(
                write_day,
                *zip(*((path, day, ids, flags) for day in days), strict=True),
                chunksize=8,
            )
        )
    first = reference_to([entry], path="", hash="", size=0, kind="packed")
    references = tuple(
        msgspec.structs.replace(
            first,
            path=name,
            hash=content,
            size=size,
            entries=PER_MANIFEST,
            rows=PER_MANIFEST * FILE_ROWS,
            bytes=total,
            partition=msgspec.structs.replace(first.partition, min=(day,), max=(day,)),
        )
        for day, (name, content, size, total) in zip(days, written, strict=True)
    )
    snapshot = msgspec.structs.replace(
        table.snapshot,
        manifests=references,
        row_id_next=(len(days) + 1) * PER_MANIFEST * FILE_ROWS,
        totals=Totals(
            files=1 + sum(each.entries for each in references),
            rows=1 + sum(each.rows for each in references),
            bytes=entry.size + sum(each.bytes for each in references),
        ),
    )
    Path(path, snapshot_path(snapshot.id, MAIN)).write_bytes(encode_snapshot(snapshot))


def plan_day(store: CountingStore) -> str:
    """Plan one partition of an open table."""
    table, found = store.open(), []
    for day in range(1, 8):
        began = time.process_time()
        splits = table.scan(filter=f"day = {day}").plan().splits
        found.append(f"{1000 * (time.process_time() - began):.0f}")
    return f"{len(splits):,} files in {', '.join(found)} ms of processor"


def parts(store: CountingStore) -> str:
    """Divide a scan of everything into parts."""
    table = store.open()
    began = time.perf_counter()
    found = table.scan().parts()
    files, count = next(found).files, 1
    first = time.perf_counter() - began
    for part in found:
        files, count = files + part.files, count + 1
    return f"{count:,} of {files:,} files, the first after {1000 * first:.0f} ms"


def one_part(store: CountingStore) -> str:
    """Plan a part as whoever reads it does."""
    part = pickle.loads(pickle.dumps(next(store.open().scan().parts())))
    began = time.process_time()
    tasks = part.scan().plan().tasks()
    return f"{len(tasks):,} tasks in {1000 * (time.process_time() - began):.0f} ms of processor"


def full_plan(store: CountingStore) -> str:
    """Plan a scan of everything, file by file: not more than 1,000,000 of them."""
    table = store.open()
    if table.snapshot.totals.files > 1_100_000:
        return "left out"
    return f"{len(table.scan().plan().tasks()):,} tasks"


def append_one(store: CountingStore) -> str:
    """Append a row a few times."""
    table, rows, found = store.open(), pa.table({"day": [0], "id": [1]}, SCHEMA), []
    for _ in range(20):
        store.forget()
        began = time.perf_counter()
        table.append(rows)
        found.append(f"{store.bytes_written:,} B {1000 * (time.perf_counter() - began):.0f} ms")
    return "; ".join(found)


def expire(store: CountingStore) -> str:
    """Expire all snapshots but the newest, so that all manifests have to be read."""
    result = store.open().expire_snapshots(retain_last=1, older_than="0d")
    return f"{result.objects} objects"


class ListingStore(CountingStore):
    """A store that lists up to 2,000,000 data files, which the manifests name, and two others."""

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every file below a directory."""
        if directory != DATA_DIRECTORY:
            yield from super().list(directory)
            return
        days = min(2_000_000, latest(self).totals.files) // PER_MANIFEST
        for day in range(1, days + 1):
            for path in names(day).to_pylist():
                yield StoredObject(path, FILE_BYTES, 0)
        for number in range(2):
            yield StoredObject(data_path(f"{number:032x}"), FILE_BYTES, 0)


def orphans(store: CountingStore) -> str:
    """Look for orphan files."""
    listing = ListingStore(store)
    result = listing.open().remove_orphan_files(dry_run=True)
    return f"{len(result.paths)} paths"


STEPS: dict[str, Callable[[CountingStore], str]] = {
    each.__name__: each
    for each in (plan_day, parts, one_part, full_plan, append_one, expire, orphans)
}


def measure(path: str, step: str) -> None:
    """Run a step: its seconds of wall clock and processor, and the peak of its memory."""
    store = CountingStore(path, durability="fast")
    began, spent = time.perf_counter(), time.process_time()
    said = STEPS[step](store)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{step}: {said}; {time.perf_counter() - began:.2f} s, "
        f"{time.process_time() - spent:.2f} s of processor, peak {peak} MB",
        flush=True,
    )


def main(directory: str, entries: int, steps: list[str]) -> None:
    """Make the table unless it is there, and measure."""
    path = str(Path(directory, f"entries-{entries}"))
    if not Path(path).exists():
        began = time.perf_counter()
        make(path, entries)
        size = sum(each.stat().st_size for each in Path(path, "manifest").iterdir())
        print(
            f"made in {time.perf_counter() - began:.0f} s, {size:,} bytes of manifests", flush=True
        )
    for step in steps or STEPS:
        process = get_context("spawn").Process(target=measure, args=(path, step))
        process.start()
        process.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100_000_000, sys.argv[3:])
