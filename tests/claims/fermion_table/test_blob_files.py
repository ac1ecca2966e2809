"""Blobs of tables: read as bytes and as handles, referred to by compaction, kept while needed."""

from __future__ import annotations

import pickle
import random
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion.blobs import handle
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.io.source import LocalSource
from fermion_table import MissingDataFile, Table, lit
from fermion_table.commit import next_snapshot
from fermion_table.compaction import run
from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.metadata import manifest_store, snapshot
from fermion_table.metadata.manifest import Entry
from fermion_table.planning.plan import splits_of

IMAGE = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
SCHEMA = pa.schema([pa.field("k", pa.int64()), IMAGE])
MAX_OF_IMAGES = {"merge_engine": "aggregation", "fields.image.aggregate_function": "max"}
AT_ONCE = timedelta(days=-1)
SIZES = (0, 10, 5_000, 70_000, 600_000)


def value(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def entries(table: Table) -> list[Entry]:
    return table.scan().entries[0]


def blob_files(path: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in path.glob("data/*.blob")}


def check(table: Table, model: dict[int, bytes | None]) -> None:
    """Both forms give the rows of a model."""
    assert dict(zip(*table.scan().to_arrow().to_pydict().values(), strict=True)) == model
    handles = table.scan(blobs="handles").to_arrow().to_pylist()
    read = {row["k"]: None if row["image"] is None else row["image"].read() for row in handles}
    assert read == model


def made(path: Path, files: int = 3) -> tuple[Table, dict[int, bytes | None]]:
    table, model = Table.create(path, SCHEMA, durability="fast"), dict[int, bytes | None]()
    for number in range(files):
        rows = {number * 10 + at: value(number * 10 + at, size) for at, size in enumerate(SIZES)}
        rows[number * 10 + 9] = None
        table.append({"k": list(rows), "image": list(rows.values())})
        model |= rows
    return table, model


def test_a_history_of_rows_with_blobs_agrees_with_a_dict(tmp_path: Path) -> None:
    """Random appends, deletes, updates, overwrites and compactions; inline or in manifests."""
    draw = random.Random(5)
    table, model = made(tmp_path / "t", 1)
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 2),
        mock.patch.object(manifest_store, "PACK_ENTRIES_MIN", 2),
    ):
        for step in range(1, 30):
            known = draw.choice(sorted(model))
            match draw.choice(["append", "append", "delete", "update", "overwrite", "compact"]):
                case "append":
                    rows = {1000 * step + at: value(step + at, draw.choice(SIZES)) for at in (0, 1)}
                    table.append({"k": list(rows), "image": list(rows.values())})
                    model |= rows
                case "delete" if len(model) > 1:
                    table.delete(f"k = {known}")
                    del model[known]
                case "update":
                    model[known] = value(step, draw.choice(SIZES))
                    table.update(f"k = {known}", {"image": lit(model[known])})
                case "overwrite":
                    model[known] = value(step, 9_000)
                    table.overwrite({"k": [known], "image": [model[known]]}, filter=f"k = {known}")
                case "compact":
                    table.compact()
            check(table, model)
    assert table.verify().ok
    with table.update_schema() as update:
        update.rename_column("image", "picture")
    assert table.scan(columns=["picture"], blobs="handles").to_arrow().num_rows == len(model)


def test_compaction_copies_references(tmp_path: Path) -> None:
    table, model = made(tmp_path / "t")
    before = blob_files(tmp_path / "t")
    table.compact()
    assert blob_files(tmp_path / "t") == before
    (entry,) = entries(table)
    assert entry.size < sum(before.values()) / 100
    live = {each.name: each.live_bytes for each in entry.blob_files}
    assert live == {each.name: 675_000 for each in entry.blob_files}
    assert len(live) == 3
    check(table, model)
    table.compact(sort_by="k")
    check(table, model)


@pytest.mark.parametrize("engine", ["deduplicate", "partial_update", "aggregation"])
def test_compaction_of_runs_copies_references(tmp_path: Path, engine: str) -> None:
    """Images that no row refers to are left to expiry; a lookup reads those that it gives."""
    path, properties = tmp_path / "t", {"merge_engine": engine, "bucket": "1"}
    table = Table.create(path, SCHEMA, primary_key="k", properties=properties, durability="fast")
    for seed in range(3):
        images = [value(seed * 10 + key, 70_000) for key in range(3)]
        table.upsert({"k": [0, 1, 2 + seed], "image": [images[0], None, images[2]]})
    before = blob_files(path)
    assert len(before) == 3
    table.compact(full=True)
    assert blob_files(path) == before
    (entry,) = entries(table)
    assert entry.size < 10_000
    assert sorted(each.live_bytes for each in entry.blob_files) == [70_000, 70_000, 140_000]
    check(
        table,
        {0: value(20, 70_000), 1: None, **{2 + at: value(10 * at + 2, 70_000) for at in range(3)}},
    )
    (row,) = table.lookup([3], blobs="handles").to_pylist()
    assert row["image"].read() == value(12, 70_000)
    asked: list[int] = []
    original = LocalSource.read
    with mock.patch.object(
        LocalSource, "read", autospec=True, side_effect=_noting(original, asked)
    ):
        table.lookup([3, 1])
    assert 70_000 < sum(asked) < 100_000
    assert table.verify(data=True).ok


def test_rows_are_found_by_blobs_that_are_null_and_taken_with_handles(tmp_path: Path) -> None:
    table, model = made(tmp_path / "t")
    handles = table.scan(blobs="handles")
    nulls = table.scan(blobs="handles", filter="image IS NULL").to_arrow()
    assert nulls["k"].to_pylist() == [k for k, each in model.items() if each is None]
    taken = pickle.loads(pickle.dumps(handles)).take([4, 0, 4]).to_pylist()
    assert [row["image"].read() for row in taken] == [model[4], model[0], model[4]]
    with pytest.raises(ColumnNotFoundError, match="no column 'size'; blobs='handles' gives the si"):
        table.scan(columns=["image.size"])
    batches = handles.training(batch_rows=6, rank=0, world_size=1).epoch(0)
    rows = [row for batch in batches for row in batch.to_arrow().to_pylist()]
    found = {row["k"]: None if row["image"] is None else row["image"].read() for row in rows}
    assert found == model


@pytest.mark.parametrize("engine", [None, "deduplicate", "partial_update"])
def test_filters_by_lengths_of_handles_where_a_file_has_no_blobs(
    tmp_path: Path, engine: str | None
) -> None:
    """Rows are filtered after their files are read: a file lacks the column, or runs are merged."""
    kept = {} if engine is None else {"primary_key": "k", "properties": {"merge_engine": engine}}
    table = Table.create(tmp_path / "t", SCHEMA, **kept)  # type: ignore[arg-type]
    write = table.append if engine is None else table.upsert
    write({"k": [1, 2, 3], "image": [b"a" * 9_000, None, b""]})
    write({"k": [3, 4], "image": [b"bcd", b"e" * 5]})
    write({"k": [5]})
    for text in ("octet_length(image) > 3", "octet_length(image) <= k", "octet_length(image) = 5"):
        expected = table.scan(filter=text).to_arrow()["k"].to_pylist()
        for columns in (["k"], None):
            rows = table.scan(columns=columns, filter=text, blobs="handles").to_arrow()
            assert rows["k"].to_pylist() == expected != []
    for text in ("image = x'00'", "hex(image) = '00'"):
        with pytest.raises(InvalidArgumentError, match="'image' holds blobs; expected IS NULL or"):
            table.scan(filter=text, blobs="handles").to_arrow()


def test_a_range_of_a_blob_is_read_with_at_most_1_1_megabytes(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    data = value(1, 8_000_000)
    table.append({"k": [1], "image": [data]})
    (handle,) = table.scan(blobs="handles").to_arrow()["image"].to_pylist()
    asked: list[int] = []
    original = LocalSource.read
    with mock.patch.object(
        LocalSource, "read", autospec=True, side_effect=_noting(original, asked)
    ):
        assert handle.read(3_000_000, 65_536) == data[3_000_000:3_065_536]
    (size,) = asked
    assert size <= 1_100_000


def test_values_far_apart_are_fetched_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a blob file of a remote table overlap: each waits until another has begun."""
    table = Table.create("memory://far-apart", SCHEMA)
    images = [value(at, 4_000_000) for at in range(4)]
    table.append({"k": range(4), "image": images})
    system = fsspec.filesystem("memory")
    read, both = system.cat_file, threading.Barrier(2, timeout=20)

    def meeting(path: str, start: Any = None, end: Any = None, **others: Any) -> Any:
        if path.endswith(".blob"):
            both.wait()
        return read(path, start=start, end=end, **others)

    monkeypatch.setattr(system, "cat_file", meeting)
    assert table.scan().take([0, 3])["image"].to_pylist() == [images[0], images[3]]


def _noting(read: Any, asked: list[int]) -> Any:
    def noted(source: Any, offset: int, length: int) -> Any:
        asked.append(length)
        return read(source, offset, length)

    return noted


def test_expiry_and_orphan_removal_delete_blob_files_that_nothing_needs(tmp_path: Path) -> None:
    table, model = made(tmp_path / "t", 2)
    first, second = (entry.blob_files[0].name for entry in entries(table))
    table.compact()
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    assert set(blob_files(tmp_path / "t")) == {first, second}  # the compacted file refers to them
    table.delete("k < 10")
    table.compact()
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    assert set(blob_files(tmp_path / "t")) == {second}
    orphan = tmp_path / "t" / "data" / f"{'0' * 32}.blob"
    orphan.write_bytes(b"")
    table.remove_orphan_files(older_than=AT_ONCE)
    assert set(blob_files(tmp_path / "t")) == {second}
    check(table, {k: each for k, each in model.items() if k >= 10})
    assert table.verify().ok


def test_blob_files_of_changelogs_live_as_long_as_they(tmp_path: Path) -> None:
    table = Table.create(
        tmp_path, SCHEMA, primary_key="k", properties={"changelog_producer": "input"}
    )
    rows = {"k": [1, 1], "image": [value(1, 70_000), None], "do": ["+I", "-D"]}
    table.upsert(rows, change_type="do")  # only the changelog refers to the blob
    table.upsert({"k": [2], "image": [value(2, 70_000)]})
    assert sum(blob_files(tmp_path).values()) < 2 * 70_100  # written once
    table.compact(full=True)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert table.verify(data=True).ok
    changes = table.scan_changes(0, 2).to_arrow()["image"].to_pylist()
    assert changes == [value(1, 70_000), None, value(2, 70_000)]
    table.delete_keys([2])
    table.compact(full=True)
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    assert not blob_files(tmp_path)


@pytest.mark.parametrize("producer", [None, "none", "input", "lookup", "full_compaction"])
def test_changes_come_with_handles(tmp_path: Path, producer: str | None) -> None:
    """Of an append table, and of keys; also where rows move, and with filters and columns."""
    keyed = {"primary_key": "k", "properties": {"changelog_producer": producer}} if producer else {}
    table = Table.create(tmp_path, SCHEMA.append(pa.field("v", pa.int64())), **keyed)
    table.append({"k": range(4), "image": [value(at, 9_000) for at in range(3)] + [None]})
    table.update("k = 1", {"v": 1})
    table.compact()
    _delete(table, [0, 3])
    table.merge(pa.table({"k": [2], "image": [b"new"]}), on="k").when_matched_update(
        {"image": "source.image"}
    ).execute()
    table.compact(**({"full": True} if producer else {}))
    for asked in (
        {},
        {"columns": ["image"], "filter": "image IS NOT NULL"},
        {"columns": ["k"], "filter": "image IS NULL"},
        {"columns": ["v", "image"], "filter": "k = 2"},
    ):
        rows = table.scan_changes(0, **asked).to_arrow()
        changes = pickle.loads(pickle.dumps(table.scan_changes(0, blobs="handles", **asked)))
        handles = changes.to_arrow()
        assert handles.schema == changes.schema
        read = [
            {name: each.read() if name == "image" and each else each for name, each in row.items()}
            for row in handles.to_pylist()
        ]
        assert sorted(read, key=repr) == sorted(rows.to_pylist(), key=repr)
        assert read or producer == "full_compaction"  # which records what is left
    inserted = table.scan_changes(0, 1, blobs="handles", filter="k = 1").to_arrow()
    assert inserted["image"][0].as_py().path.endswith(".blob")
    with pytest.raises(InvalidArgumentError, match="expected 'bytes' or 'handles'"):
        table.scan_changes(0, blobs="references")


@pytest.mark.parametrize("is_compared", [False, True])
@pytest.mark.parametrize("producer", ["lookup", "full_compaction"])
def test_changelogs_of_compactions_refer_to_the_values_of_rows(
    tmp_path: Path, producer: str, is_compared: bool
) -> None:
    """But where rows before and after are compared; they outlive the rows."""
    properties = {
        "changelog_producer": producer,
        "changelog_producer.row_deduplicate": str(is_compared).lower(),
    }
    table = Table.create(tmp_path, SCHEMA, primary_key="k", properties=properties)
    images = [value(at, 70_000) for at in range(4)]
    table.upsert({"k": [1, 2, 3], "image": images[:3]})
    table.compact(full=True)
    table.upsert({"k": [1, 2], "image": [images[0], images[3]]})
    before = blob_files(tmp_path)
    table.compact(full=True)
    assert (blob_files(tmp_path) == before) != is_compared
    changes = table.scan_changes(2, 4).to_arrow().to_pylist()
    found = {(row["_change_type"], row["k"], row["image"]) for row in changes}
    kept = set() if is_compared else {(f"update_{at}image", 1, images[0]) for at in ("pre", "post")}
    updates = {("update_preimage", 2, images[1]), ("update_postimage", 2, images[3])}
    assert found == updates | kept
    table.delete_keys([1, 2, 3])
    table.compact(full=True)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert table.verify(data=True).ok
    assert table.scan_changes(2, 4).to_arrow().to_pylist() == changes


def test_a_clone_and_a_branch_read_the_blobs_of_their_source(tmp_path: Path) -> None:
    table, model = made(tmp_path / "t")
    clone = table.clone(tmp_path / "c")
    table.branches.create("b")
    branch = Table.open(tmp_path / "t", branch="b")
    table.delete("k >= 0")
    table.compact()
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    table.remove_orphan_files(older_than=AT_ONCE)
    check(clone, model)
    check(branch, model)
    for other in (clone, branch):
        other.compact()
        check(other, model)
        assert other.verify().ok
    assert not blob_files(tmp_path / "c")
    clone.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    check(clone, model)


def test_a_compaction_that_fails_leaves_the_blob_files_of_its_input(tmp_path: Path) -> None:
    table, model = made(tmp_path / "t")
    before = blob_files(tmp_path / "t")
    with (
        mock.patch.object(run, "commit_groups", side_effect=RuntimeError("lost")),
        pytest.raises(RuntimeError, match="lost"),
    ):
        table.compact()
    other = Table.open(tmp_path / "t")
    plan = run.commit_groups

    def late(*given: Any, **named: Any) -> Any:
        other.delete("k = 0")
        return plan(*given, **named)

    with mock.patch.object(run, "commit_groups", late):
        assert table.compact().groups_dropped == 1
    del model[0]
    assert blob_files(tmp_path / "t") == before
    check(Table.open(tmp_path / "t"), model)


def test_a_writer_that_gives_up_leaves_no_blob_file(tmp_path: Path) -> None:
    table, _ = made(tmp_path / "t", 0)
    with table.writer() as writer:
        writer.write({"k": [1], "image": [value(1, 100_000)]})
    with table.writer() as writer:
        writer.write({"k": [1], "image": [value(1, 100_000)]})
        writer.prepare_commit()
        writer.abort()
    assert not blob_files(tmp_path / "t")


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_blob_file_that_is_gone_or_cut_is_not_published(tmp_path: Path, is_cut: bool) -> None:
    table, _ = made(tmp_path / "t", 0)
    with table.writer() as writer:
        writer.write({"k": [1], "image": [value(1, 100_000)]})
        (message,) = pickle.loads(pickle.dumps(writer.prepare_commit()))
    (lost,) = (tmp_path / "t" / "data").glob("*.blob")
    lost.write_bytes(lost.read_bytes()[:-1]) if is_cut else lost.unlink()
    with pytest.raises(InvalidArgumentError, match=f"{lost.name}: not stored any more"):
        table.commit([message])
    assert table.scan().count() == 0


def test_large_values_begin_new_blob_files(tmp_path: Path) -> None:
    properties = {"target_file_size": "1MB"}
    table = Table.create(tmp_path / "t", SCHEMA, properties=properties, durability="fast")
    rows = {at: value(at, 300_000) for at in range(9)}
    table.append({"k": list(rows), "image": list(rows.values())})
    assert len(blob_files(tmp_path / "t")) > 1
    check(table, dict(rows))


def test_what_blobs_can_not_do_is_refused(tmp_path: Path) -> None:
    text = pa.schema([pa.field("t", pa.string(), metadata={"fermion:blob": "true"})])
    for schema, keywords in (
        (SCHEMA, {"primary_key": "image"}),
        (SCHEMA.set(1, IMAGE.with_nullable(False)), {"primary_key": "k"}),
        (SCHEMA, {"primary_key": "k", "properties": {"sequence.field": "image"}}),
        (SCHEMA, {"primary_key": "k", "properties": MAX_OF_IMAGES}),
        (SCHEMA, {"partition_by": ["image"]}),
        (SCHEMA, {"sort_by": "image"}),
        (text, {}),
    ):
        with pytest.raises(InvalidArgumentError, match="of blobs"):
            Table.create(tmp_path / "no", schema, **keywords)
    table, _ = made(tmp_path / "t", 1)
    for form in ("references", "foo", ["bytes"]):
        with pytest.raises(InvalidArgumentError, match="expected 'bytes' or 'handles'"):
            table.scan(blobs=form)  # type: ignore[arg-type]
    fermion.write_table(pa.table({"k": [1], "image": [b""]}, schema=SCHEMA), tmp_path / "f.fermion")
    with pytest.raises(InvalidArgumentError, match="columns of blobs"):
        table.add_files([tmp_path / "f.fermion"])


def test_a_property_names_the_columns_of_a_new_table(tmp_path: Path) -> None:
    plain = pa.schema([field.remove_metadata() for field in SCHEMA])
    table = Table.create(tmp_path / "t", plain, properties={"fermion.blob": " image", "a.b": "c"})
    assert table.schema.blob_columns == ("image",)
    assert table.properties == {"a.b": "c"}
    table.append({"k": [1], "image": [value(1, 70_000)]})
    assert blob_files(tmp_path / "t")
    check(Table.open(tmp_path / "t"), {1: value(1, 70_000)})
    with pytest.raises(InvalidArgumentError, match=r"is for new tables.*field metadata"):
        table.set_properties({"fermion.blob": "image"})
    for names, message in (("imag", "'image'"), ("k", "type binary"), ("", "''")):
        with pytest.raises((InvalidArgumentError, ColumnNotFoundError), match=message):
            Table.create(tmp_path / "u", plain, properties={"fermion.blob": names})


def test_references_to_other_files_are_refused(tmp_path: Path) -> None:
    table, _ = made(tmp_path / "t", 2)
    first, second = entries(table)
    wrong = msgspec.structs.replace(first, blob_files=second.blob_files)
    (split,) = splits_of([wrong], table.scan().store)
    with pytest.raises(CorruptMetadata, match="references to the blob files of its entry"):
        list(table.scan().reader.read(split))


def test_a_blob_file_that_is_gone_or_cut_is_told(tmp_path: Path) -> None:
    table, _ = made(tmp_path / "t", 1)
    (name,) = blob_files(tmp_path / "t")
    path = tmp_path / "t" / "data" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert [each.path for each in table.verify().problems] == [f"data/{name}"]
    with pytest.raises(fermion.FermionError):
        table.scan().to_arrow()
    path.unlink()
    assert "no such object" in str(table.verify().problems[0])
    with pytest.raises((FileNotFoundError, MissingDataFile)):
        table.scan().to_arrow()


def test_older_readers_refuse_a_table_with_blob_files(tmp_path: Path) -> None:
    made(tmp_path / "t", 1)
    known = snapshot.KNOWN_READER_FEATURES - {snapshot.BLOB_FILES}
    with (
        mock.patch.object(snapshot, "KNOWN_READER_FEATURES", known),
        pytest.raises(UnsupportedFeature, match="blob-files"),
    ):
        Table.open(tmp_path / "t")


def test_columns_of_blobs_are_added_and_filled_beside_files(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("k", pa.int64())]), durability="fast")
    table.append({"k": [1, 2]})
    new = pa.schema([IMAGE])
    table.add_columns_with(
        lambda rows: {"image": [value(k, 9_000) for k in rows["k"].to_pylist()]},
        read=["k"],
        schema=new,
    )
    table.append({"k": [3], "image": [value(3, 9_000)]})
    model = {k: value(k, 9_000) for k in (1, 2, 3)}
    check(table, dict(model))
    table.compact()
    check(table, dict(model))
    assert table.verify().ok


def test_a_clone_of_a_compacted_clone_reads_blobs_that_its_tags_hold(tmp_path: Path) -> None:
    """Its data files are its own, and its blobs those of the first table."""
    first, model = made(tmp_path / "first")
    second = first.clone(tmp_path / "second")
    second.compact()
    third = second.clone(tmp_path / "third")
    check(third, model)
    assert not third.verify().problems
    assert len(first.tags.list()) == 2
    first.delete("k >= 0")
    first.compact()
    for table in (first, second):
        table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
        table.remove_orphan_files(older_than=AT_ONCE)
    check(Table.open(tmp_path / "third"), model)


def test_rows_whose_blobs_are_lost_can_be_left_out(tmp_path: Path) -> None:
    table, model = made(tmp_path / "t", 2)
    first, second = entries(table)
    (tmp_path / "t" / second.blob_files[0].path).unlink()
    table.repair(leave_out_missing=True)
    check(Table.open(tmp_path / "t"), {key: each for key, each in model.items() if key < 10})
    assert (tmp_path / "t" / first.blob_files[0].path).exists()


def test_rows_that_move_carry_their_references(tmp_path: Path) -> None:
    """Deletes and updates of other columns write no value again; functions are given bytes."""
    schema = pa.schema([*SCHEMA, pa.field("v", pa.int64())])
    table, path = Table.create(tmp_path / "t", schema, durability="fast"), tmp_path / "t"
    images = [value(key, 70_000) for key in range(9)]
    table.append({"k": range(9), "image": images, "v": [0] * 9})
    table.append_batch(5, {"k": [10, 11], "image": [images[0], None], "v": [0, 0]})
    before = blob_files(path)
    table.delete("k < 6")
    table.update("k = 7 OR k = 10", {"v": pc.field("v") + 1})
    table.update("k = 8", {"v": "k * 2"})
    assert blob_files(path) == before
    rows = [
        (6, images[6], 0),
        (7, images[7], 1),
        (8, images[8], 16),
        (10, images[0], 1),
        (11, None, 0),
    ]
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"])
    assert [tuple(row.values()) for row in found] == rows
    table.update("k = 8", {"v": lambda rows: [len(each) for each in rows["image"].to_pylist()]})
    table.update("k = 7", {"image": lit(images[1])})
    found = table.scan(filter="k = 7 OR k = 8").to_arrow().sort_by("k").to_pylist()
    assert [tuple(row.values()) for row in found] == [(7, images[1], 1), (8, images[8], 70_000)]
    assert table.verify(data=True).ok


@pytest.mark.parametrize("engine", [None, "deduplicate", "partial_update", "aggregation"])
def test_a_merge_carries_references(tmp_path: Path, engine: str | None) -> None:
    """Rows that it updates in other columns, and short and long values that it sets or inserts."""
    schema = pa.schema([*SCHEMA, pa.field("v", pa.int64()), IMAGE.with_name("small")])
    properties = {"merge_engine": engine, "changelog_producer": "input"}
    if engine in ("partial_update", "aggregation"):
        properties[f"{engine}.remove_record_on_delete"] = "true"
    keyed = {"primary_key": "k", "properties": properties} if engine else {}
    table = Table.create(tmp_path, schema, durability="fast", **keyed)
    images = [value(key, 70_000) for key in range(6)]
    table.append({"k": range(4), "image": images[:4], "v": [0] * 4, "small": [b"s"] * 4})
    more = {"k": [4, 5], "image": images[4:], "v": [0, 0], "small": [b"s"] * 2}
    table.append(more) if engine else table.append_batch(7, more)
    before = blob_files(tmp_path)
    source = {"k": [0, 2, 4, 9], "v": [10, 12, 14, 19], "image": [b"", b"", b"", value(9, 70_000)]}
    merge = table.merge(pa.table(source), on="k")
    merge.when_matched_delete("target.k = 0")
    merge.when_matched_update({"v": "source.v"}, condition="source.v < 14")
    merge.when_matched_update({"v": "source.v", "small": "source.image"})
    merge.when_not_matched_insert({"k": "source.k", "image": "source.image"})
    merge.execute()
    (new,) = blob_files(tmp_path).keys() - before.keys()
    assert blob_files(tmp_path)[new] < 70_100
    rows = {
        1: (images[1], 0, b"s"),
        2: (images[2], 12, b"s"),
        3: (images[3], 0, b"s"),
        4: (images[4], 14, b""),
        5: (images[5], 0, b"s"),
        9: (value(9, 70_000), None, None),
    }
    assert _rows(table) == rows
    merge = table.merge(pa.table({"k": [1, 2], "other": [value(2, 5_000), b"x"]}), on="k")
    merge.when_matched_update({"image": "source.other", "small": "target.image"})
    merge.execute()  # looks at images
    rows[1], rows[2] = (value(2, 5_000), 0, images[1]), (b"x", 12, images[2])
    table.update("k = 3", {"image": lit(value(3, 9_000))})
    rows[3] = (value(3, 9_000), 0, b"s")
    table.delete("image IS NOT NULL AND k = 9")
    del rows[9]
    assert _rows(table) == rows
    table.compact(**({"full": True} if engine else {}))
    assert _rows(table) == rows
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    assert _rows(Table.open(tmp_path)) == rows
    assert table.verify(data=True).ok


def _rows(table: Table) -> dict[int, tuple[Any, ...]]:
    rows = table.scan(columns=["k", "image", "v", "small"]).to_arrow().to_pylist()
    return {row["k"]: tuple(row.values())[1:] for row in rows}


@pytest.mark.parametrize("is_keyed", [False, True])
def test_values_of_a_blob_file_that_is_mostly_dead_are_copied(
    tmp_path: Path, is_keyed: bool
) -> None:
    """By the compaction after the one that finds them dead; what else names the file keeps it."""
    path, keys = tmp_path / "t", {"primary_key": "k"} if is_keyed else {}
    table = Table.create(path, SCHEMA, durability="fast", **keys)
    images = [*(value(key, 70_000) for key in range(9)), value(9, 1_200_000)]
    table.append({"k": range(10), "image": images})
    (old,) = blob_files(path)
    clone = table.clone(tmp_path / "c")
    table.tags.create("whole")
    full = {"full": True} if is_keyed else {}
    _delete(table, [0, 1, 2, 3])
    table.compact(**full)
    table.compact(**full)
    assert set(blob_files(path)) == {old}  # less than half is dead
    _delete(table, [8, 9])
    table.compact(**full)
    assert set(blob_files(path)) == {old}
    with mock.patch.object(handle, "open_source", wraps=handle.open_source) as opened:
        table.compact(**full)
    assert opened.call_count == 1  # for four values
    (new,) = blob_files(path).keys() - {old}
    assert blob_files(path)[new] <= 4 * 70_100
    model = {key: images[key] for key in range(4, 8)}
    check(table, dict(model))
    (entry,) = entries(table)
    assert [(each.name, each.live_bytes) for each in entry.blob_files] == [(new, 280_000)]
    assert not table.compact(**full).files_after
    table.expire_snapshots(retain_last=1, older_than=AT_ONCE)
    table.remove_orphan_files(older_than=AT_ONCE)
    assert set(blob_files(path)) == {old, new}  # the tags keep it
    check(clone, dict(enumerate(images)))
    assert table.verify(data=True).ok
    check(Table.open(path), dict(model))


def _delete(table: Table, keys: list[int]) -> None:
    if table.schema.primary_key:
        table.delete_keys(keys)
    else:
        table.delete(f"k IN ({', '.join(map(str, keys))})")
