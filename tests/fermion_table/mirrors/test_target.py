"""What holds of mirrors of every kind, read with the libraries of their own projects."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from fermion.errors import UnsupportedTypeError
from fermion_table import Table
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash
from tests.kit.tables.mirrored import (
    KINDS,
    SCHEMA,
    SETTINGS,
    TYPES,
    DyingStore,
    history,
    parquet_files,
    publisher,
    rows,
    shown,
    source_rows,
)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    return request.param


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_published_snapshot_shows_the_rows_of_the_source(tmp_path, kind, settings):
    table = history(tmp_path / "t", **settings)
    table.mirrors.create(kind.name, tmp_path / "d", history=True)
    (done,) = table.mirrors.publish()
    assert done.snapshots == tuple(snapshot.id for snapshot in table.snapshots())
    found = kind.found(tmp_path / "d")
    assert found.keys() == {snapshot.id for snapshot in table.snapshots()}
    for snapshot_id, seen in found.items():
        assert seen == source_rows(table, snapshot_id), snapshot_id
    (again,) = table.mirrors.publish(kind.name)
    assert (again.snapshots, again.snapshot_id) == ((), table.snapshot.id)


def test_a_mirror_begins_with_the_newest_snapshot_and_goes_on_commit_by_commit(tmp_path, kind):
    table = history(tmp_path / "t")
    table.mirrors.create(kind.name, tmp_path / "d", name="lake")
    assert table.mirrors.publish()[0].snapshots == (table.snapshot.id,)
    table.append(rows([7]).rename_columns(["id", "kind", "w"]))
    table.delete("id = 7")
    found = table.mirrors.publish("lake")[0]
    assert found.snapshots == (table.snapshot.id - 1, table.snapshot.id)
    assert kind.found(tmp_path / "d")[table.snapshot.id] == shown(table.to_arrow())


def test_all_types_of_a_target_keep_their_values(tmp_path, kind):
    given = pa.table(TYPES)
    table = Table.create(tmp_path / "t", given.schema, durability="fast")
    table.append(given)
    table.append(given.slice(1))
    table.mirrors.create(kind.name, tmp_path / "d")
    table.mirrors.publish()
    assert kind.found(tmp_path / "d") == {table.snapshot.id: shown(table.to_arrow())}


def test_a_type_that_comes_later_stops_the_mirror_at_the_snapshot_that_it_shows(tmp_path, kind):
    table = history(tmp_path / "t")
    table.mirrors.create(kind.name, tmp_path / "d")
    table.mirrors.publish()
    before = kind.found(tmp_path / "d")
    table.append(rows([1]).rename_columns(["id", "kind", "w"]))
    table.add_columns({"bad": pa.time64("ns")})
    with pytest.raises(UnsupportedTypeError, match=r"column 'bad' is time64\[ns\]"):
        table.mirrors.publish()
    assert kind.found(tmp_path / "d") == before
    table.drop_columns(["bad"])
    with pytest.raises(UnsupportedTypeError):  # of the snapshot between
        table.mirrors.publish()


def test_values_beyond_microseconds_are_an_error_that_names_the_column(tmp_path, kind):
    table = Table.create(tmp_path / "t", pa.schema([("far", pa.timestamp("s"))]))
    table.append(pa.table({"far": pa.array([2**60], pa.timestamp("s"))}))
    table.mirrors.create(kind.name, tmp_path / "d")
    with pytest.raises(ValueError, match="column 'far'"):
        table.mirrors.publish()


def test_two_publishers_publish_each_snapshot_once(tmp_path, kind):
    """The one reads where the mirror stands, and the other publishes before it commits."""
    table = history(tmp_path / "t")

    class Beaten(kind.target):
        def commit(self, state, step):
            if step.snapshot.id in (0, 4, 8):
                publisher(table, kind.target, LocalStore(tmp_path / "d")).publish()
            return super().commit(state, step)

    done = publisher(table, Beaten, LocalStore(tmp_path / "d")).publish()
    assert done.snapshots == ()
    assert done.snapshot_id == table.snapshot.id
    assert kind.found(tmp_path / "d").keys() == {each.id for each in table.snapshots()}


def test_a_crash_at_any_call_of_the_storage_leaves_the_old_snapshot_or_the_new(tmp_path, kind):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(range(10)))
    table.delete("id < 3")
    ids = [snapshot.id for snapshot in table.snapshots()]
    expected = {each: source_rows(table, each) for each in ids}
    publisher(table, kind.target, LocalStore(tmp_path / "clean", durability="fast")).publish()
    for calls in itertools.count(1):
        place = tmp_path / f"d{calls}"
        store = LocalStore(place, durability="fast")
        try:
            publisher(table, kind.target, DyingStore(store, calls)).publish()
            break
        except Crash:
            pass
        for snapshot_id, found in kind.found(place).items():
            assert found == expected[snapshot_id]
        publisher(table, kind.target, store).publish()
        assert kind.found(place) == expected
        assert parquet_files(place) == parquet_files(tmp_path / "clean")  # nothing twice
    assert calls > 10
