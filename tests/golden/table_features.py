"""Tables that have, between them, every feature of the table format; one golden table each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from fermion_table import Table, lit
from fermion_table.commit import next_snapshot
from fermion_table.metadata import manifest_store
from fermion_table.storage import json_codec
from fermion_table.writing import index_writer
from tests.golden.keyed_features import KEYED

Maker = Callable[[Path], Table]

ROWS = pa.schema([("k", pa.string()), ("v", pa.int64())])


def appended(path: Path) -> Table:
    """Three appends, a property of one commit."""
    table = Table.create(path, ROWS, message="made")
    table.append({"k": ["a", "b", None], "v": [1, None, 3]})
    table.append({"k": [], "v": []}, message="nothing", properties={"job": "1"})
    table.append({"k": ["ü"], "v": [2**62]}, commit_user="u", commit_identifier=7)
    return table


def batches(path: Path) -> Table:
    """Rows in batches."""
    table = Table.create(path, ROWS)
    table.append_batches([(5, {"k": ["a"] * 3, "v": range(3)}), (9, {"k": ["b"], "v": [3]})])
    table.append_batch(7, {"k": ["c"], "v": [4]})
    return table


def changed_rows(path: Path) -> Table:
    """Deletion vectors, an update, an overwrite of some rows, a compaction."""
    table = Table.create(path, ROWS)
    table.append({"k": ["a"] * 10, "v": range(10)})
    table.append({"k": ["b"] * 10, "v": range(10, 20)})
    table.delete("v IN (3, 15)")
    table.update("v = 4", {"k": lit("changed")})
    table.overwrite({"k": ["new"], "v": [100]}, filter="v BETWEEN 6 AND 8")
    table.delete("v = 12")
    table.compact()
    table.delete("v = 13")
    return table


def partitions(path: Path) -> Table:
    """Transforms, nulls, values that paths can't hold, dynamic overwriting."""
    schema = pa.schema([("d", pa.date32()), ("s", pa.string()), ("n", pa.int32())])
    by = ["month(d)", "bucket(4, n)", "truncate(2, s)"]
    table = Table.create(path, schema, partition_by=by)
    days = [date(1969, 12, 31), date(2024, 2, 29), None, date(2024, 2, 1)]
    table.append({"d": days, "s": ["a/b", "=%", None, "../.."], "n": [1, -5, 7, None]})
    table.overwrite({"d": days[1:2], "s": ["=%x"], "n": [-5]}, dynamic=True)
    return table


def evolved_schema(path: Path) -> Table:
    """Columns added with a default, renamed, widened, dropped, reused by name; nested ones too."""
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    table = Table.create(path, pa.schema([("a", pa.int32()), ("s", inner), ("gone", pa.int8())]))
    table.append({"a": [1], "s": [{"x": 1, "y": ["p", None]}], "gone": [1]})
    with table.update_schema(message="several") as update:
        update.alter_column("a", type=pa.int64())
        update.rename_column(("s", "x"), "z")
        update.drop_column("gone")
        update.add_column("f", pa.float64(), default=0.5)
    table.append({"a": [2**40], "s": [{"z": 2, "y": None}], "f": [None]})
    table.add_columns({"gone": pa.string()})
    table.append(pa.table({"a": [3], "more": [True]}), schema_mode="merge")
    return table


def versions(path: Path) -> Table:
    """Tags, branches with commits, a restored state, a fast-forward."""
    table = Table.create(path, ROWS)
    table.append({"k": ["a"], "v": [1]})
    table.tags.create("first", message="why")
    table.append({"k": ["b"], "v": [2]})
    table.branches.create("side", version=1)
    Table.open(path, branch="side").append({"k": ["s"], "v": [3]})
    table.branches.create("ahead")
    Table.open(path, branch="ahead").append({"k": ["h"], "v": [4]})
    table.branches.fast_forward("ahead")
    table.restore(1)
    return table


def branch_commits(path: Path) -> Table:
    """Fast-forwards that bring identified commits, one over two branches."""
    table = Table.create(path, ROWS)
    table.branches.create("dev")
    dev = Table.open(path, branch="dev")
    dev.append({"k": ["a"], "v": [1]}, commit_user="job", commit_identifier=1)
    dev.append({"k": ["b"], "v": [2]}, commit_user="job", commit_identifier="two")
    dev.branches.create("inner", version="dev")
    inner = Table.open(path, branch="inner")
    inner.append({"k": ["c"], "v": [3]}, commit_user="other", commit_identifier=3)
    dev.branches.fast_forward("inner")
    table.branches.fast_forward("dev")
    return table


def merged_branch(path: Path) -> Table:
    """A branch merged twice, whose parent has changed its schema, and rows of its own."""
    table = Table.create(path, ROWS)
    table.append({"k": ["a", "b"], "v": [1, 2]})
    table.branches.create("dev")
    dev = Table.open(path, branch="dev")
    dev.append({"k": ["c", "d"], "v": [3, 4]}, commit_user="job", commit_identifier=1)
    dev.delete("k = 'a' OR k = 'd'")
    table.add_columns({"w": pa.int64()})
    table.append({"k": ["e"], "v": [5], "w": [6]})
    table.branches.merge("dev", message="first")
    dev.append({"k": ["f"], "v": [7]})
    table.branches.merge("dev")
    return table


def manifests(path: Path) -> Table:
    """Manifests that were merged, one compressed, with dead entries."""
    schema = pa.schema([("p", pa.string()), *((f"c{number}", pa.int64()) for number in range(9))])
    table = Table.create(path, schema, partition_by="p")
    values = {f"c{number}": range(70) for number in range(9)}
    with mock.patch.object(json_codec, "COMPRESS_ABOVE_BYTES", 10_000):
        table.append({"p": [f"value {number} of many" for number in range(70)], **values})
    with mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1):
        for number in range(10):
            table.append({"p": ["x"], "c0": [1_000 + number]})
    table.delete("c0 IN (3, 5, 60, 1003)")
    return table


def manifest_lists(path: Path) -> Table:
    """Lists of manifests: one with dead positions, one that was given up; manifests beside them."""
    table = Table.create(path, pa.schema([("p", pa.int32()), ("v", pa.int64())]), partition_by="p")
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1),
        mock.patch.object(next_snapshot, "MERGE_INPUT_ENTRIES_MAX", 0),
        mock.patch.object(next_snapshot, "LISTED_MANIFESTS_MIN", 3),
        mock.patch.object(next_snapshot, "LISTED_MANIFESTS_MAX", 5),
    ):
        for number in range(16):
            table.append({"p": [number % 3], "v": [number]})
        table.delete("v IN (0, 1, 6)")
        table.append({"p": [7], "v": [70]})
    return table


def expired(path: Path) -> Table:
    """Early snapshots have expired; a tag keeps one of them."""
    table = Table.create(path, ROWS)
    for number in range(5):
        table.append({"k": ["a"], "v": [number]})
        table.delete(f"v = {number - 1}")
        if number == 1:
            table.tags.create("kept")
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=2)
    return table


def expired_branch(path: Path) -> Table:
    """Early snapshots of a branch have expired; it has a branch itself, and has moved main."""
    table = Table.create(path, ROWS)
    table.append({"k": ["a"], "v": [0]})
    table.branches.create("dev")
    dev = Table.open(path, branch="dev")
    for number in range(1, 6):
        dev.append({"k": ["b"], "v": [number]})
        dev.delete(f"v = {number - 1}")
        if number == 2:
            dev.branches.create("fix")
    dev.expire_snapshots(older_than=timedelta(days=-1), retain_last=3)
    dev.expire_snapshots(older_than=timedelta(days=-1), retain_last=2)
    Table.open(path).branches.fast_forward("dev")
    return Table.open(path)


def sorted_rows(path: Path) -> Table:
    """A sort order, settings of the table."""
    table = Table.create(
        path, ROWS, sort_by="v", properties={"profile": "compact", "target_file_size": "1MB"}
    )
    table.append({"k": ["b", "a", "c"], "v": [3, 1, 2]})
    table.set_properties({"statistics_columns": "k"})
    return table


def file_ids(path: Path) -> Table:
    """Entries hold the identities of their files: in a manifest, in the tail, after compaction."""
    table = Table.create(path, ROWS)
    with mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 2):
        for number in range(4):
            table.append({"k": ["a", "b"], "v": [number, 10 + number]})
    table.branches.create("whole")
    Table.open(path, branch="whole").compact()
    table.delete("v = 12")
    return table


def column_files(path: Path) -> Table:
    """Columns computed and filled in beside deleted rows and batches, then renamed and widened."""
    table = Table.create(path, ROWS)
    table.append({"k": ["a", "b", "c"], "v": [1, 2, None]})
    table.append_batches([(3, {"k": ["d"] * 2, "v": [4, 5]}), (8, {"k": ["e"], "v": [6]})])
    table.delete("k = 'b'")
    more = pa.schema([("w", pa.int32()), ("s", pa.struct([("x", pa.string())])), ("n", pa.int8())])

    def computed(rows: pa.RecordBatch) -> pa.RecordBatch:
        inner = pa.StructArray.from_arrays([rows["k"]], ["x"])
        return pa.record_batch(
            [rows["v"].cast(pa.int32()), inner, pa.nulls(len(rows), pa.int8())], schema=more
        )

    table.add_columns_with(computed, read=["k", "v"], schema=more)
    table.append({"k": ["f"], "v": [7], "w": [70]})
    with mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1):
        table.fill_columns({"k": ["a", "e"], "v": [-1, None], "f": [0.5, 1.5]}, on="k")
    with table.update_schema() as update:
        update.rename_column("w", "wide")
        update.alter_column("wide", type=pa.int64())
        update.drop_column("n")
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1),
        mock.patch.object(manifest_store, "PACK_ENTRIES_MIN", 1),
    ):
        table.fill_columns({"_row_id": [0, 4], "wide": [2**40, None]})
    table.delete("k = 'c'")
    return table


def consumed(path: Path) -> Table:
    """Two programs follow the table, and keep snapshots that would have expired."""
    table = Table.create(path, ROWS)
    for number in range(5):
        table.append({"k": ["a"], "v": [number]})
        if number == 2:
            table.consumers.record("report")
    table.consumers.record("copy")
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    return table


def indexed(path: Path) -> Table:
    """Indexes of both kinds, made before and after their files, stale, dropped, and packed."""
    schema = pa.schema([*ROWS, ("s", pa.struct([("x", pa.float64())])), ("gone", pa.string())])
    table = Table.create(path, schema, properties={"index.rows_min": "1"})

    def rows(first: int) -> dict[str, list[Any]]:
        numbers = range(first, first + 20)
        inner = [{"x": [None, float("nan"), -0.0, each / 2][each % 4]} for each in numbers]
        keys = [None if each % 7 == 0 else f"k{each % 3}" for each in numbers]
        return {"k": keys, "v": list(numbers), "s": inner, "gone": keys}

    table.append(rows(0))
    table.indexes.create("v")
    table.indexes.create("k", kind="bitmap")
    table.indexes.create("s.x")
    table.indexes.create("gone", kind="bitmap")
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1),
        mock.patch.object(manifest_store, "PACK_ENTRIES_MIN", 1),
    ):
        table.append(rows(20))
        table.delete("v IN (3, 25)")
    table.fill_columns({"v": [4], "k": ["filled"]}, on="v")
    table.rename_column("k", "key")
    table.indexes.drop("gone")
    return table


def bloom_indexed(path: Path) -> Table:
    """Bloom indexes of strings and of floats, with nulls and NaN, of two parts of a file."""
    table = Table.create(path, ROWS, properties={"index.rows_min": "1"})
    values = [None if each % 5 == 0 else each for each in range(20)]
    table.append({"k": [None if each % 7 == 0 else f"k{each}" for each in range(20)], "v": values})
    with mock.patch.object(index_writer, "BLOOM_ROWS", 16):
        table.indexes.create("k", kind="bloom")
        table.indexes.create("v", kind="bloom")
    table.delete("v = 3")
    return table


def key_statistics(path: Path) -> Table:
    """Statistics of keys of maps, under two names of a map; one of them in a column file."""
    schema = pa.schema([("k", pa.string()), ("m", pa.map_(pa.string(), pa.float64()))])
    keys = {"fermion.shred.m": "all", "fermion.stats.keys": "m['a'], m['b,c']"}
    table = Table.create(path, schema, properties=keys)
    table.append({"k": ["a", "b"], "m": [[("a", 1.0), ("b,c", -0.0)], None]})
    table.rename_column("m", "n")
    table.append({"k": ["c", "d"], "n": [[("a", 5.0)], [("z", 7.0)]]})
    table.update("k IN ('c', 'd')", {"n": lambda rows: rows["n"]})
    table.set_properties({"fermion.stats.keys": "n['z'], n['a']"})
    table.append({"k": ["e"], "n": [[("z", 9.0), ("a", None)]]})
    return table


def blobs(path: Path) -> Table:
    """Blobs in blob files and in columns, deleted and updated rows, batches, a compaction."""
    image = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
    table = Table.create(path, pa.schema([pa.field("k", pa.string()), image]))
    table.append({"k": ["a", "b", "c"], "image": [b"a" * 5000, b"short", None]})
    table.append({"k": ["d", "e"], "image": [b"d" * 6000, b""]})
    table.delete("k = 'b'")
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 1),
        mock.patch.object(manifest_store, "PACK_ENTRIES_MIN", 1),
    ):
        table.compact()
        table.update("k = 'c'", {"image": lit(b"c" * 7000)})
    table.append_batch(3, {"k": ["f"], "image": [b"f" * 5000]})
    return table


TABLES: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        appended, batches, changed_rows, partitions, evolved_schema, versions, manifests,
        manifest_lists,
        expired, expired_branch, sorted_rows, file_ids, branch_commits,
        merged_branch, column_files, blobs, consumed, indexed, bloom_indexed,
        key_statistics, *KEYED,
    )
}  # fmt: skip
