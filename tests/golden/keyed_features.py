"""Tables with a primary key that have, between them, every feature of such tables."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from fermion_table import Table, lit

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.int64()), ("s", pa.string())])


def keyed_rows(path: Path) -> Table:
    """Upserts, deletions and updates in two buckets; runs at level 0 and at the top."""
    settings = {"bucket": "2", "num-sorted-run.compaction-trigger": "3"}
    table = Table.create(path, SCHEMA, primary_key="id", properties=settings)
    table.upsert({"id": range(-20, 20), "v": range(40), "s": ["first"] * 40})
    table.compact(full=True)
    table.tags.create("full")
    for number in range(5):
        ids = range(number, 20, 3)
        table.upsert({"id": ids, "v": [number] * len(ids), "s": [f"run {number}"] * len(ids)})
        if number == 2:
            table.compact()
    table.delete_keys([-5, 5, 999])
    table.delete("v = 30")
    table.update("id = -1", {"s": lit("set")})
    table.rename_column("id", "key")
    table.alter_column("key", type=pa.int64())
    table.upsert({"key": [2**40, -20], "v": [1, None], "s": ["wide", None]})
    return table


def keyed_partitions(path: Path) -> Table:
    """A key of several columns, transforms, every type of change in one write, an overwrite."""
    schema = pa.schema(
        [("d", pa.date32()), ("k", pa.string()), ("b", pa.bool_()), ("n", pa.decimal128(9, 2))]
    )
    table = Table.create(path, schema, primary_key=["d", "k", "b"], partition_by="month(d)")
    days = [date(2024, 1, 31), date(2024, 2, 1), date(2024, 2, 1), date(2024, 2, 1)]
    rows = {"d": days, "k": ["a\0b", "", "é", ""], "b": [True, False, True, False]}
    table.upsert({**rows, "n": list(map(Decimal, ["1.00", "2.00", "3.00", "4.00"]))})
    kinds = ["-U", "+U", "-D", "+I"]
    changes = {**rows, "n": list(map(Decimal, ["1.00", "5.00", "3.00", "6.00"])), "kind": kinds}
    table.upsert(changes, change_type="kind")
    table.overwrite({"d": days[:1], "k": ["x"], "b": [False], "n": [None]}, dynamic=True)
    return table


def keyed_sequence(path: Path) -> Table:
    """Late rows; retractions that stay in the oldest run."""
    settings = {"sequence.field": "v", "bucket": "1"}
    table = Table.create(path, SCHEMA, primary_key="id", properties=settings)
    table.upsert({"id": [1, 2, 3], "v": [5, 5, None], "s": ["a", "b", "c"]})
    table.upsert(
        {"id": [1, 2], "v": [9, 1], "s": ["x", "late"], "kind": ["-D", "+I"]}, change_type="kind"
    )
    table.compact(full=True)
    table.upsert({"id": [1, 3], "v": [8, 0], "s": ["late", "d"]})
    return table


def keyed_aggregates(path: Path) -> Table:
    """Functions of columns, and rows of a key side by side in a file."""
    schema = SCHEMA.append(pa.field("l", pa.list_(pa.int64())))
    settings = {
        "merge_engine": "aggregation",
        "fields.v.aggregate_function": "sum",
        "fields.s.aggregate_function": "max",
        "fields.l.aggregate_function": "collect",
        "fields.s.ignore_retract": "true",
    }
    table = Table.create(path, schema, primary_key="id", properties=settings)
    table.upsert({"id": [1, 2], "v": [1, 2**62], "s": ["a", "b"], "l": [[1], [2]]})
    rows = {"id": [1, 1, 2, 2], "v": [5, 1, 2**62, 2**62], "s": ["z", "b", None, "c"]}
    kinds = ["+I", "-U", "+I", "-D"]
    table.upsert({**rows, "l": [[7], [1], [], [2]], "kind": kinds}, change_type="kind")
    table.upsert({"id": [2], "v": [1], "s": ["a"], "l": [None]})
    return table


def keyed_parts(path: Path) -> Table:
    """Rows filled from parts, with a sequence group; a branch."""
    schema = SCHEMA.append(pa.field("g", pa.int64())).append(pa.field("x", pa.string()))
    settings = {"merge_engine": "partial_update", "fields.g.sequence_group": "x"}
    table = Table.create(path, schema, primary_key="id", properties=settings)
    table.upsert({"id": [1, 2], "v": [1, None], "g": [3, 3], "x": ["x3", "y3"]})
    table.upsert({"id": [1, 2], "s": ["s", "t"], "g": [2, None], "x": ["x2", "ignored"]})
    table.compact(full=True)
    table.branches.create("dev")
    Table.open(path, branch="dev").upsert({"id": [1], "v": [9], "g": [4], "x": [None]})
    return table


def keyed_firsts(path: Path) -> Table:
    """The first row of each key."""
    settings = {"merge_engine": "first_row", "bucket": "2"}
    table = Table.create(path, SCHEMA, primary_key="id", properties=settings)
    table.upsert({"id": [1, 2, 1], "v": [1, 2, 3], "s": ["a", "b", "c"]})
    table.upsert({"id": [2, 3], "v": [8, 9], "s": ["no", "d"]})
    return table


def keyed_vectors(path: Path) -> Table:
    """Rows of a large file that compaction has marked as deleted."""
    settings = {"deletion_vectors.enabled": "true"}
    table = Table.create(path, SCHEMA, primary_key="id", properties=settings)
    values = [number**5 % 99_991 for number in range(500)]
    table.upsert({"id": range(500), "v": values, "s": [None] * 500})
    table.compact(full=True)
    table.upsert({"id": [5, 6, 500], "v": [1, 2, 3], "s": ["a", "b", "c"]})
    table.delete_keys([7])
    table.compact()
    table.upsert({"id": [5], "v": [9], "s": ["newest"]})
    table.delete("id >= 20 AND id < 490")
    return table


def keyed_buckets(path: Path) -> Table:
    """Partitions of other numbers of buckets than the property says, and of the same."""
    schema = SCHEMA.append(pa.field("p", pa.int8()))
    table = Table.create(
        path, schema, primary_key=["p", "id"], partition_by="p", properties={"bucket": "2"}
    )
    rows = {"id": range(9), "v": range(9), "s": ["two"] * 9}
    for partition in (1, 2):
        table.upsert({**rows, "p": [partition] * 9})
    table.set_properties({"bucket": "5"})
    table.upsert({**rows, "p": [1] * 9, "s": ["still two"] * 9})
    table.upsert({**rows, "p": [3] * 9, "s": ["five"] * 9})
    table.overwrite({**rows, "p": [2] * 9, "s": ["now five"] * 9}, filter="p = 2")
    table.delete("id = 3")
    table.compact(full=True)
    table.set_properties({"bucket": "2"})
    return table


def changelog(path: Path, producer: str, **settings: str) -> Table:
    """Every kind of change, folded and not, before and after compactions."""
    settings = {"changelog_producer": producer, "bucket": "2", **settings}
    table = Table.create(path, SCHEMA, primary_key="id", properties=settings)
    table.upsert({"id": range(8), "v": range(8), "s": ["a"] * 8})
    table.upsert({"id": [1, 1, 9], "v": [10, 11, 9], "s": ["b", "c", "d"]})
    table.compact(full=True)
    kinds = ["-U", "+U", "-D", "+I"]
    changes = {"id": [2, 2, 3, 10], "v": [2, 20, 3, 10], "s": ["a", "e", "a", "f"]}
    table.upsert({**changes, "kind": kinds}, change_type="kind")
    table.compact(full=True)
    table.delete_keys([4])
    table.overwrite({"id": [1, 2], "v": [1, 20], "s": ["g", "e"]})
    table.upsert({"id": range(100), "v": [0] * 100, "s": ["h"] * 100})
    return table


def keyed_given_changes(path: Path) -> Table:
    """Changes as writers were given them."""
    return changelog(path, "input")


def keyed_looked_up_changes(path: Path) -> Table:
    """Changes of what compactions merge."""
    return changelog(path, "lookup", target_file_size="1kb")


def keyed_compacted_changes(path: Path) -> Table:
    """Changes of the top level."""
    return changelog(path, "full_compaction")


def keyed_blobs(path: Path) -> Table:
    """Runs and changelog files that refer to the same blobs, a merge, an expired changelog."""
    image = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
    settings = {"changelog_producer": "input", "merge_engine": "partial_update"}
    settings["partial_update.remove_record_on_delete"] = "true"
    table = Table.create(path, SCHEMA.append(image), primary_key="id", properties=settings)
    rows = {"id": [1, 2, 3, 3], "image": [b"a" * 5000, b"short", b"gone" * 2000, b"c" * 6000]}
    table.upsert(rows)
    table.upsert({"id": [2, 4], "v": [2, 4], "image": [b"b" * 5000, None]})
    table.compact(full=True)
    source = pa.table({"id": [1, 5], "s": ["moved", "new"], "image": [b"", b"e" * 7000]})
    merge = table.merge(source, on="id").when_matched_update({"s": "source.s"})
    merge.when_not_matched_insert({"id": "source.id", "image": "source.image"}).execute()
    table.delete_keys([4])
    table.tags.create("referred")
    table.delete("id = 3")
    table.compact(full=True)
    table.set_properties({"changelog_producer": "lookup"})
    table.upsert({"id": [5], "v": [5]})
    table.compact()
    return table


KEYED = (
    keyed_rows, keyed_partitions, keyed_sequence, keyed_aggregates, keyed_parts, keyed_firsts,
    keyed_vectors, keyed_buckets, keyed_given_changes, keyed_looked_up_changes,
    keyed_compacted_changes, keyed_blobs,
)  # fmt: skip
