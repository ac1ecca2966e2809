"""Delta mirrors, read by the library of Delta's own project."""

from __future__ import annotations

import datetime
import itertools
import json
import shutil
from dataclasses import replace

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
    SCHEMA,
    DyingStore,
    delta_versions,
    history,
    parquet_files,
    publisher,
    rows,
    shown,
    source_rows,
)


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


@pytest.mark.long
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
