"""Tables, 8: a table of 100,000,000 files, a warehouse of 1,000,000 tables: requests. Ours alone.

The files and tables are made up: a snapshot with references to manifests, a list with names. What
is counted are the requests of one client, so that they hold for any storage.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from benchmarks import harness, tables
from benchmarks.catalog import list_names, make_tables
from benchmarks.counting_store import CountingStore
from benchmarks.layers import FAST, Layer
from benchmarks.question import Action, Case, Question, Size

FILES = (1_000_000, 10_000_000, 100_000_000)
PART = {"full": 1, "quick": 100, "tiny": 50_000}
"""Smaller runs have one in so many of these files."""
PER_MANIFEST = {"full": 32_768, "quick": 4_096, "tiny": 600}
"""Manifests hold 8,193 to 65,536 entries once small ones were merged."""
NAMES = {"full": 1_000_000, "quick": 10_000, "tiny": 100}
TABLES = {"full": 1_000, "quick": 50, "tiny": 5}
SCHEMA = pa.schema({"day": pa.int32(), "id": pa.int64()})
FILE_BYTES = 128_000_000


def with_files(path: str, files: int, per_manifest: int) -> None:
    """A table with one manifest for each day; that of day 1 is there, the others only by name."""
    from fermion_table import Table
    from fermion_table.metadata.manifest import FieldStatistics, reference_to
    from fermion_table.metadata.manifest_store import MetadataWriter
    from fermion_table.metadata.snapshot import Totals, encode_snapshot
    from fermion_table.storage.location import open_store
    from fermion_table.storage.paths import MAIN, snapshot_path
    from tests.kit.stores import made_up_entry

    table = Table.create(path, SCHEMA, partition_by="day", durability="fast")
    table.append(pa.table({"day": [0, 0], "id": [0, 9]}, SCHEMA))
    store = open_store(path, durability="fast")
    statistics = next(iter(table.snapshot.tail[0].stats.values()))
    ids = [field.id for field in table.schema.fields]
    random = Random(tables.SEED)
    entries = [
        made_up_entry(
            f"{random.getrandbits(128):032x}",
            partition=(1,),
            size=FILE_BYTES,
            added_snapshot=1,
            sequence_start=1,
            row_id_base=number,
            stats={
                ids[0]: FieldStatistics(1, 1, 0, statistics.flags),
                ids[1]: FieldStatistics(number * 10, number * 10 + 9, 0, statistics.flags),
            },
        )
        for number in range(per_manifest)
    ]
    stored = MetadataWriter(store).write_manifest(entries)
    first = reference_to(
        entries, path=stored.path, hash=stored.hash, size=stored.size, kind=stored.kind
    )
    references = tuple(
        msgspec.structs.replace(
            first, partition=msgspec.structs.replace(first.partition, min=(day,), max=(day,))
        )
        for day in range(1, files // per_manifest + 2)
    )
    snapshot = msgspec.structs.replace(
        table.snapshot,
        manifests=references,
        totals=Totals(
            files=1 + sum(reference.entries for reference in references),
            rows=2 + sum(reference.rows for reference in references),
            bytes=sum(reference.bytes for reference in references),
        ),
    )
    target = Path(path, snapshot_path(table.snapshot.id, MAIN))
    target.write_bytes(encode_snapshot(snapshot))


def stored_files(size: Size, files: int) -> str:
    """The path of such a table; made once."""
    count = files // PART[size]
    return tables.stored(
        FAST,
        size,
        f"{count}-by-reference",
        lambda path: with_files(path, count, PER_MANIFEST[size]),
    )


def copied_store(size: Size, files: int) -> CountingStore:
    """A copy of it, whose calls are counted."""
    target = tables.copy_of(FAST, size, stored_files(size, files), lambda path: None)
    return CountingStore(target, durability="fast")


def counted(store: CountingStore) -> dict[str, int]:
    """What was asked of storage."""
    return {
        "reads": store.reads,
        "listings": store.calls["list"],
        "writes": sum(store.calls[name] for name in ("write", "create_if_absent")),
        "read_bytes": store.bytes_read,
        "written_bytes": store.bytes_written,
    }


def open_table(files: int) -> Case:
    """Open the table as a process that never saw it."""

    def prepare(layer: Layer, size: Size) -> Action:
        path = stored_files(size, files)

        def run() -> dict[str, int]:
            store = CountingStore(path)
            store.open()
            return counted(store)

        return run

    return Case(prepare)


def plan_day(files: int) -> Case:
    """Plan the reading of one day of an open table."""

    def prepare(layer: Layer, size: Size) -> Action:
        store = CountingStore(stored_files(size, files))
        table = store.open()

        def run() -> dict[str, int]:
            store.forget()
            splits = table.scan(filter="day = 1 and id < 1000").plan().splits
            return {"files": len(splits), **counted(store)}

        return run

    return Case(prepare)


def append_one(files: int) -> Case:
    """Append a file to an open table."""

    def prepare(layer: Layer, size: Size) -> Action:
        store = copied_store(size, files)
        table = store.open()
        rows = pa.table({"day": [0], "id": [1]}, SCHEMA)
        table.append(rows)

        def run() -> dict[str, int]:
            store.forget()
            table.append(rows)
            return counted(store)

        return run

    return Case(prepare)


def counting_catalog(path: str) -> tuple[Any, CountingStore]:
    """A catalog, and what all its stores are asked for."""
    from fermion_table import Catalog
    from fermion_table.catalog.warehouse import Warehouse

    total = CountingStore(path)

    class Counting(Warehouse):
        def store(self, path: str) -> Any:
            return CountingStore(super().store(path), counted_by=total)

    return Catalog(Counting(path, durability="fast")), total


def create_table(layer: Layer, size: Size) -> Action:
    """Make a table where the list has a million names."""
    count = NAMES[size]
    stored = tables.stored(FAST, size, f"names-{count}", lambda path: list_names(path, count))
    catalog, total = counting_catalog(tables.copy_of(FAST, size, stored, lambda path: None))
    catalog.create_table("db.second", SCHEMA)

    def run() -> dict[str, int]:
        total.forget()
        catalog.create_table("db.third", SCHEMA)
        return counted(total)

    return run


def keep_tables(layer: Layer, size: Size) -> Action:
    """Make a snapshot of a thousand tables."""
    count = TABLES[size]
    stored = tables.stored(FAST, size, f"tables-{count}", lambda path: make_tables(path, count))
    target = tables.fresh(FAST, size)
    shutil.copytree(stored, target)
    catalog, total = counting_catalog(target)

    def run() -> dict[str, int]:
        total.forget()
        kept = catalog.snapshots.create("all").table_count
        return {"files": kept, **counted(total)}

    return run


QUESTION = Question(
    module="benchmarks.table_limits",
    title="Tables 8  100,000,000 files, 1,000,000 tables: requests",
    cases={
        f"{what}, {files:,} files": make(files)
        for files in FILES
        for what, make in (("open", open_table), ("plan a day", plan_day), ("append", append_one))
    }
    | {
        "create a table, 1,000,000 names": Case(create_table),
        "snapshot of 1,000 tables": Case(keep_tables),
    },
    libraries=(FAST,),
    rounds={"full": 3},
    metrics=("files", "reads", "listings", "writes", "read_bytes", "written_bytes"),
    notes="Files and tables are made up. Reads, listings and writes are requests of the table's "
    "metadata; the ranges of a packed manifest come on top: two requests, one after the other.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
