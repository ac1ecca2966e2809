"""Delta mirrors, read by the library of Delta's own project."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion_table import CommitConflict, CorruptMetadata, Table
from fermion_table.mirrors.delta import DeltaTarget
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import snapshot_path
from tests.kit.stores import Crash, WrappedStore
from tests.kit.tables.mirrored import (
    DyingStore,
    delta_versions,
    parquet_files,
    publisher,
    shown,
    source_rows,
)

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("v", pa.float64())])


def rows(ids, kind="a", schema=SCHEMA):
    return pa.table(
        {"id": ids, "kind": [kind] * len(ids), "v": [number / 2 for number in ids]}, schema=schema
    )


def history(directory: Path, **settings) -> Table:
    """A table with every kind of commit."""
    table = Table.create(directory, SCHEMA, durability="fast", **settings)
    table.append(rows(range(10)))
    table.append(rows(range(5, 20), "b"))
    table.delete("id < 3")
    table.compact(full=bool(table.primary_key))
    table.add_columns({"x": pa.int32()})
    table.append(rows(range(30, 33), "c").append_column("x", pa.array([1, None, 3], pa.int32())))
    table.rename_column("v", "w")
    table.drop_columns(["x"])
    table.add_columns({"x": pa.int64()})
    table.update("id = 8", {"w": 1.0})
    table.overwrite(rows([100]).rename_columns(["id", "kind", "w"]), filter="id > 12")
    table.set_properties({"a.note": "no rows change"})
    return table


SETTINGS = [
    {},
    {"partition_by": ["kind"]},
    {"partition_by": ["bucket(2, id)", "kind"]},
    {"primary_key": ["id"], "properties": {"bucket": "2"}},
    {"primary_key": ["id", "kind"], "partition_by": ["kind"]},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_published_snapshot_shows_the_rows_of_the_source(tmp_path, settings):
    table = history(tmp_path / "t", **settings)
    table.mirrors.create("delta", tmp_path / "d", history=True)
    (done,) = table.mirrors.publish()
    assert done.snapshots == tuple(snapshot.id for snapshot in table.snapshots())
    seen = set()
    for version, snapshot_id, found in delta_versions(tmp_path / "d"):
        assert version == snapshot_id
        assert shown(found) == source_rows(table, snapshot_id), snapshot_id
        seen.add(snapshot_id)
    assert seen == {snapshot.id for snapshot in table.snapshots()}
    (again,) = table.mirrors.publish("delta")
    assert (again.snapshots, again.snapshot_id) == ((), table.snapshot.id)


def test_a_mirror_begins_with_the_newest_snapshot_and_goes_on_commit_by_commit(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("delta", tmp_path / "d", name="lake")
    assert table.mirrors.publish()[0].snapshots == (table.snapshot.id,)
    table.append(rows([7]).rename_columns(["id", "kind", "w"]))
    table.delete("id = 7")
    found = table.mirrors.publish("lake")[0]
    assert found.snapshots == (table.snapshot.id - 1, table.snapshot.id)
    assert shown(deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()) == shown(table.to_arrow())


def test_steps_of_a_publication_are_those_that_delta_can_say(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(range(10)))
    table.append(rows(range(10, 20)))
    table.delete("id < 10")
    table.delete("id = 12")
    table.append(rows([1]))
    table.compact()
    table.mirrors.create("delta", tmp_path / "d", history=True)
    table.mirrors.publish()
    log = deltalake.DeltaTable(tmp_path / "d").history()[::-1]
    said = [(each["operation"], each["operationParameters"].get("mode")) for each in log]
    assert said == [
        ("CREATE TABLE", "Append"),
        ("WRITE", "Append"),
        ("WRITE", "Append"),
        ("DELETE", None),
        ("WRITE", "Overwrite"),
        ("WRITE", "Append"),
        ("OPTIMIZE", None),
        ("WRITE", "Append"),  # the mirror itself is noted: no file changes
    ]
    assert [each["isBlindAppend"] for each in log][1:3] == [True, True]
    compacted = (tmp_path / "d/_delta_log/00000000000000000006.json").read_text().splitlines()
    changes = [json.loads(line) for line in compacted]
    assert [
        body["dataChange"]
        for each in changes
        for kind, body in each.items()
        if kind in ("add", "remove")
    ] == [False] * 3


def test_what_did_not_change_is_not_copied_again(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    for start in range(0, 30, 10):
        table.append(rows(range(start, start + 10)))
    table.mirrors.create("delta", tmp_path / "d")
    assert table.mirrors.publish()[0].files_added == 3
    table.add_columns({"x": pa.int32()})
    table.drop_columns(["x"])
    table.add_columns({"x": pa.int32()})
    table.set_properties({"a.note": "1"})
    done = table.mirrors.publish()[0]
    assert (len(done.snapshots), done.files_added, done.files_removed) == (4, 0, 0)
    table.delete("id = 15")
    done = table.mirrors.publish()[0]
    assert (done.files_added, done.files_removed) == (1, 1)
    table.rename_column("v", "w")  # Delta finds columns by name
    assert table.mirrors.publish()[0].files_added == 3


def test_a_column_that_comes_back_under_its_old_name_starts_empty_in_the_mirror(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(range(3)))
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    table.drop_columns(["v"])
    table.mirrors.publish()
    table.add_columns({"v": pa.float64()})
    table.mirrors.publish()
    found = deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()
    assert found["v"].to_pylist() == [None, None, None]


TYPES = {
    "boolean": pa.array([True, None]),
    "byte": pa.array([-128, 127], pa.int8()),
    "ubyte": pa.array([0, 255], pa.uint8()),
    "ushort": pa.array([0, 65535], pa.uint16()),
    "uint": pa.array([0, 2**32 - 1], pa.uint32()),
    "long": pa.array([-(2**63), 2**63 - 1]),
    "half": pa.array([1.5, None], pa.float16()),
    "float": pa.array([float("nan"), -0.0], pa.float32()),
    "text": pa.array(["", "é"], pa.large_string()),
    "view": pa.array(["a", None], pa.string_view()),
    "words": pa.array(["a", "b"]).dictionary_encode(),
    "bytes": pa.array([b"", b"\x00"], pa.large_binary()),
    "fixed": pa.array([b"abc", None], pa.binary(3)),
    "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "day64": pa.array([datetime.date(2020, 2, 29), None], pa.date64()),
    "second": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("s")),
    "zoned": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("ms", "Europe/Rome")),
    "small": pa.array([decimal.Decimal("1.25"), None], pa.decimal32(5, 2)),
    "large": pa.array([decimal.Decimal("-9.9"), None], pa.decimal256(38, 1)),
    "list": pa.array([[1, None], None], pa.large_list(pa.uint8())),
    "three": pa.array([[1, 2, 3], None], pa.list_(pa.int32(), 3)),
    "list_view": pa.array([["a"], []], pa.list_view(pa.string())),
    "struct": pa.array([{"a": 1, "b": [{"c": "x"}]}, None]),
    "map": pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.uint16()))),
}


def test_all_types_that_delta_has_keep_their_values(tmp_path):
    given = pa.table(TYPES)
    table = Table.create(tmp_path / "t", given.schema, durability="fast")
    table.append(given)
    table.append(given.slice(1))
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    found = deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()
    assert shown(found) == shown(table.to_arrow())


@pytest.mark.parametrize(
    "dtype",
    [
        pa.uint64(),
        pa.time32("s"),
        pa.timestamp("ns"),
        pa.duration("s"),
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.null(),
        pa.month_day_nano_interval(),
        pa.struct([]),
        pa.uuid(),
        pa.list_(pa.struct([("deep", pa.time64("ns"))])),
    ],
    ids=str,
)
def test_types_that_delta_lacks_are_refused_before_anything_is_written(tmp_path, dtype):
    table = Table.create(tmp_path / "t", pa.schema([("good", pa.int64()), ("bad", dtype)]))
    before = table.snapshot.id
    with pytest.raises(UnsupportedTypeError, match=r"delta mirror .*column 'bad"):
        table.mirrors.create("delta", tmp_path / "d")
    assert Table.open(tmp_path / "t").snapshot.id == before
    assert not (tmp_path / "d").exists()


def test_a_type_that_comes_later_stops_the_mirror_at_the_snapshot_that_it_shows(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    version = deltalake.DeltaTable(tmp_path / "d").version()
    table.append(rows([1]).rename_columns(["id", "kind", "w"]))
    table.add_columns({"time": pa.time64("us")})
    with pytest.raises(UnsupportedTypeError, match=r"column 'time' is time64\[us\]"):
        table.mirrors.publish()
    assert deltalake.DeltaTable(tmp_path / "d").version() == version
    table.drop_columns(["time"])
    with pytest.raises(UnsupportedTypeError):  # of the snapshot between
        table.mirrors.publish()


def test_values_beyond_microseconds_are_an_error_that_names_the_column(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema([("far", pa.timestamp("s"))]))
    table.append(pa.table({"far": pa.array([2**60], pa.timestamp("s"))}))
    table.mirrors.create("delta", tmp_path / "d")
    with pytest.raises(ValueError, match="column 'far'"):
        table.mirrors.publish()


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"a b": pa.int8()}, "Delta takes no ' ' in names"),
        ({"a": pa.int8(), "A": pa.int8()}, "does not tell upper case"),
        ({"s": pa.struct([("x", pa.int8()), ("X", pa.int8())])}, r"'s\.X'"),
    ],
)
def test_names_that_delta_lacks_are_refused(tmp_path, schema, match):
    table = Table.create(tmp_path / "t", pa.schema(schema))
    with pytest.raises(InvalidArgumentError, match=match):
        table.mirrors.create("delta", tmp_path / "d")


def test_an_empty_text_as_a_partition_is_refused_and_null_is_not(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["kind"], durability="fast")
    table.append(pa.table({"id": [1], "kind": [None], "v": [0.5]}, schema=SCHEMA))
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    table.append(rows([2], kind=""))
    with pytest.raises(InvalidArgumentError, match=r"column 'kind'.*empty text"):
        table.mirrors.publish()
    found = deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()
    assert found["kind"].to_pylist() == [None]


def test_partitions_of_all_types_prune_and_keep_their_values(tmp_path):
    kinds = {
        "number": pa.array([1, -2, None], pa.int16()),
        "day": pa.array([datetime.date(2020, 1, 1), None, datetime.date(1960, 5, 5)]),
        "flag": pa.array([True, False, None]),
        "text": pa.array(["a/b=c", "é %", None], pa.large_string()),
        "float": pa.array([1.5, float("nan"), None]),
        "at": pa.array([datetime.datetime(2020, 1, 1), None, None], pa.timestamp("us")),
        "value": pa.array([1, 2, 3]),
    }
    given = pa.table(kinds)
    table = Table.create(
        tmp_path / "t", given.schema, partition_by=list(kinds)[:-1], durability="fast"
    )
    table.append(given)
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    delta = deltalake.DeltaTable(tmp_path / "d")
    assert delta.metadata().partition_columns == ["number", "day", "flag", "text"]
    assert shown(delta.to_pyarrow_table()) == shown(given)
    found = delta.to_pyarrow_table(filters=[("text", "=", "a/b=c")])
    assert found["value"].to_pylist() == [1]


def test_bounds_in_the_log_are_those_of_the_rows(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(pa.table({"id": [3, None, 7], "kind": ["b", "a", None], "v": [1.0, 2.0, 3.0]}))
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    actions = pa.table(deltalake.DeltaTable(tmp_path / "d").get_add_actions(flatten=True))
    (found,) = actions.to_pylist()
    assert (found["num_records"], found["min.id"], found["max.id"]) == (3, 3, 7)
    assert (found["min.kind"], found["max.kind"]) == ("a", "b")
    assert (found["null_count.id"], found["null_count.kind"], found["null_count.v"]) == (1, 1, 0)


def test_another_writer_is_noticed_and_named(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("delta", tmp_path / "d")
    table.mirrors.publish()
    columns = table.to_arrow().slice(0, 1)
    deltalake.write_deltalake(tmp_path / "d", columns, mode="append")
    version = deltalake.DeltaTable(tmp_path / "d").version()
    table.append(rows([1]).rename_columns(["id", "kind", "w"]))
    with pytest.raises(CommitConflict, match=rf"version {version} \(WRITE by delta-rs"):
        table.mirrors.publish()
    assert deltalake.DeltaTable(tmp_path / "d").version() == version


def test_vacuum_and_checkpoints_of_others_change_nothing(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("delta", tmp_path / "d", history=True)
    table.mirrors.publish()
    delta = deltalake.DeltaTable(tmp_path / "d")
    live = len(pa.table(delta.get_add_actions()))
    delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    delta.create_checkpoint()
    assert len(parquet_files(tmp_path / "d")) == live
    first = table.snapshots()[2].id
    table.restore(first)  # files that were deleted are copied again
    table.mirrors.publish()
    found = deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()
    assert shown(found) == source_rows(table, first)


def test_a_table_of_somebody_else_is_never_a_mirror(tmp_path):
    table = history(tmp_path / "t")
    deltalake.write_deltalake(tmp_path / "theirs", pa.table({"a": [1]}))
    with pytest.raises(CommitConflict, match="version 0"):
        table.mirrors.create("delta", tmp_path / "theirs")
    other = history(tmp_path / "o")
    other.mirrors.create("delta", tmp_path / "d")
    other.mirrors.publish()
    with pytest.raises(InvalidArgumentError, match="no mirror of this table's branch 'main'"):
        table.mirrors.create("delta", tmp_path / "d")
    assert not table.mirrors.list()


def test_two_publishers_publish_each_snapshot_once(tmp_path):
    """The one reads where the mirror stands, and the other publishes before it commits."""
    table = history(tmp_path / "t")

    class Beaten(DeltaTarget):
        def commit(self, state, step):
            if step.snapshot.id in (0, 4, 8):
                publisher(table, DeltaTarget, LocalStore(tmp_path / "d")).publish()
            return super().commit(state, step)

    done = publisher(table, Beaten, LocalStore(tmp_path / "d")).publish()
    assert done.snapshots == ()
    assert done.snapshot_id == table.snapshot.id
    published = [snapshot for _, snapshot, _ in delta_versions(tmp_path / "d")]
    assert sorted(published) == [snapshot.id for snapshot in table.snapshots()]


def test_a_crash_at_any_call_of_the_storage_leaves_the_old_snapshot_or_the_new(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(range(10)))
    table.delete("id < 3")
    ids = [snapshot.id for snapshot in table.snapshots()]
    expected = {each: source_rows(table, each) for each in ids}
    publisher(table, DeltaTarget, LocalStore(tmp_path / "clean", durability="fast")).publish()
    for calls in itertools.count(1):
        place = tmp_path / f"d{calls}"
        store = LocalStore(place, durability="fast")
        try:
            publisher(table, DeltaTarget, DyingStore(store, calls)).publish()
            break
        except Crash:
            pass
        if (place / "_delta_log").exists():
            for _, snapshot_id, found in delta_versions(place):
                assert shown(found) == expected[snapshot_id]
        publisher(table, DeltaTarget, store).publish()
        found = {snapshot_id: shown(read) for _, snapshot_id, read in delta_versions(place)}
        assert found == expected
        assert parquet_files(place) == parquet_files(tmp_path / "clean")  # nothing twice
    assert calls > 10


def test_a_crash_around_a_checkpoint_loses_nothing(tmp_path):
    """The tenth version is followed by a checkpoint; the process dies at each call around it."""
    table = history(tmp_path / "t")
    extra = rows([1]).rename_columns(["id", "kind", "w"])
    base = LocalStore(tmp_path / "base", durability="fast")
    reached = next(each for each in table.snapshots() if each.id == 9)
    early = replace(publisher(table, DeltaTarget, base), store=_UpTo(table.store, reached.id))
    assert early.publish().snapshot_id == reached.id
    table.append(extra)
    for calls in itertools.count(1):
        place = tmp_path / f"d{calls}"
        shutil.copytree(tmp_path / "base", place)
        store = LocalStore(place, durability="fast")
        try:
            publisher(table, DeltaTarget, DyingStore(store, calls)).publish()
            break
        except Crash:
            pass
        publisher(table, DeltaTarget, store).publish()
        found = {snapshot_id: shown(read) for _, snapshot_id, read in delta_versions(place)}
        assert found.keys() == {each.id for each in table.snapshots()}
        assert found[table.snapshot.id] == source_rows(table, table.snapshot.id)
    assert calls > 20


class _UpTo(WrappedStore):
    """A table whose later snapshots are not there yet."""

    def __init__(self, inner, last: int) -> None:
        super().__init__(inner)
        self.last = last

    def call(self, operation, *arguments):
        if operation == "read" and arguments[0].endswith("LATEST"):
            raise FileNotFoundError(arguments[0])
        late = arguments and arguments[0] in {
            snapshot_path(number) for number in range(self.last + 1, self.last + 40)
        }
        if late:
            if operation == "exists":
                return False
            raise FileNotFoundError(arguments[0])
        found = super().call(operation, *arguments)
        if operation == "list":
            late = {snapshot_path(number) for number in range(self.last + 1, self.last + 40)}
            return [each for each in found if each.path not in late]
        return found


def test_a_checkpoint_alone_is_enough_for_readers_and_for_the_next_publication(tmp_path):
    table = history(tmp_path / "t", partition_by=["kind"])
    table.mirrors.create("delta", tmp_path / "d", history=True)
    table.mirrors.publish()
    log = tmp_path / "d/_delta_log"
    for number in range(11):  # as log clean-up leaves it
        (log / f"{number:020d}.json").unlink()
    found = deltalake.DeltaTable(tmp_path / "d")
    assert shown(found.to_pyarrow_table()) == shown(table.to_arrow())
    table.append(rows([1]).rename_columns(["id", "kind", "w"]).append_column("x", pa.array([5])))
    assert table.mirrors.publish()[0].snapshots == (table.snapshot.id,)
    found.update_incremental()
    assert shown(found.to_pyarrow_table()) == shown(table.to_arrow())


def test_a_gap_in_the_log_is_an_error_that_names_the_version(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("delta", tmp_path / "d", history=True)
    table.mirrors.publish()
    (tmp_path / "d/_delta_log/00000000000000000011.json").unlink()
    with pytest.raises(CorruptMetadata, match=r"0011\.json: expected a log without gaps"):
        table.mirrors.publish()
