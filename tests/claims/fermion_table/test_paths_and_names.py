"""A table reads and writes within its directory alone, whatever its metadata or values say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import fermion
from fermion_table import Table
from fermion_table.errors import TableError, UnsafeStorage
from fermion_table.metadata.history import latest
from fermion_table.metadata.manifest import ManifestReference
from fermion_table.metadata.snapshot import Snapshot, encode_snapshot
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import snapshot_path

AT_ONCE = timedelta(days=-1)
HOSTILE = (
    "../outside.fermion",
    "data/../../outside.fermion",
    "data/./x.fermion",
    "data//x.fermion",
    "/etc/hostname",
    "C:/outside.fermion",
    "data\\..\\outside.fermion",
    "data/x\n.fermion",
    "..",
    "d" * 5_000,
)
VALUES = (
    "a/b", "../..", "..", ".", "a=b", "k=", "=", "100%", "%2F", "%", "", " ", "~", "a\\b", "a:b",
    "ü", "u\u0308", "日本語", "\U0001f980", "\x00", "\n", "'", '"', "x" * 300, "y" * 300,
    "__HIVE_DEFAULT_PARTITION__", "null", None,
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of two files beside a file that is not its own."""
    outside = tmp_path / "outside.fermion"
    fermion.write_table(pa.table({"a": [666]}), outside)
    table = Table.create(tmp_path / "t", pa.schema({"a": pa.int64()}), durability="fast")
    table.append({"a": [1, 2]})
    table.append({"a": [3]})
    return table


def in_tail(snapshot: Snapshot, path: str) -> Snapshot:
    entry = msgspec.structs.replace(snapshot.tail[0], path=path)
    return msgspec.structs.replace(snapshot, tail=(entry, *snapshot.tail[1:]))


def in_schema(snapshot: Snapshot, path: str) -> Snapshot:
    schema = msgspec.structs.replace(snapshot.schema, path=path)
    return msgspec.structs.replace(snapshot, schema=schema)


def in_manifests(snapshot: Snapshot, path: str) -> Snapshot:
    reference = ManifestReference(path=path, hash="0" * 64, size=10, entries=1, rows=1, bytes=1)
    return msgspec.structs.replace(snapshot, manifests=(reference,))


@pytest.mark.parametrize("path", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("place", [in_tail, in_schema, in_manifests])
def test_metadata_cannot_lead_out_of_the_table(
    table: Table, tmp_path: Path, place: Callable[[Snapshot, str], Snapshot], path: str
) -> None:
    """A snapshot that names a path outside is refused; maintenance deletes nothing there."""
    slot = Path(table.location, snapshot_path(2))
    slot.write_bytes(encode_snapshot(place(latest(table.store), path)))
    shared_cache.clear()
    outside = (tmp_path / "outside.fermion").read_bytes()
    for action in (
        lambda opened: opened.scan().to_arrow(),
        lambda opened: opened.compact(),
        lambda opened: opened.overwrite({"a": [9]}),
        lambda opened: opened.expire_snapshots(older_than=AT_ONCE, retain_last=1),
        lambda opened: opened.remove_orphan_files(older_than=AT_ONCE),
    ):
        with contextlib.suppress(TableError):  # what never looks at the path may succeed
            action(Table.open(table.location, durability="fast"))
    assert (tmp_path / "outside.fermion").read_bytes() == outside
    assert sorted(item.name for item in tmp_path.iterdir()) == ["outside.fermion", "t"]


@pytest.mark.parametrize("place", [in_tail, in_schema, in_manifests])
def test_reading_what_lies_outside_is_refused_by_name(
    table: Table, place: Callable[[Snapshot, str], Snapshot]
) -> None:
    slot = Path(table.location, snapshot_path(2))
    slot.write_bytes(encode_snapshot(place(latest(table.store), HOSTILE[0])))
    shared_cache.clear()
    with pytest.raises(UnsafeStorage, match="outside"):
        Table.open(table.location).scan().to_arrow()


def test_links_that_lead_out_of_the_table_are_refused(table: Table, tmp_path: Path) -> None:
    """A data file, and the data directory, replaced by links to the outside."""
    data = Path(table.location, "data")
    own = next(data.rglob("*.fermion"))
    own.unlink()
    own.symlink_to(tmp_path / "outside.fermion")
    with pytest.raises(UnsafeStorage, match="leads out of the table"):
        Table.open(table.location).scan().to_arrow()
    elsewhere = tmp_path / "elsewhere"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(UnsafeStorage, match="leads out of the table"):
        Table.open(table.location).append({"a": [4]})
    with pytest.raises(UnsafeStorage, match="leads out of the table"):
        Table.open(table.location).remove_orphan_files(older_than=AT_ONCE)
    assert sorted(elsewhere.rglob("*")) == before
    assert (tmp_path / "outside.fermion").exists()


def test_a_table_reached_through_a_link_is_the_same_table(table: Table, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(table.location)
    Table.open(tmp_path / "link").append({"a": [4]})
    assert Table.open(table.location).scan().count() == 4


def test_orphan_removal_leaves_what_a_link_leads_to(table: Table, tmp_path: Path) -> None:
    """The link itself is no file of the table; what it leads to stays."""
    link = Path(table.location, "data", "link.fermion")
    link.symlink_to(tmp_path / "outside.fermion")
    name = f"data/{'0' * 32}.fermion"
    orphan = Path(table.location, name)
    orphan.write_bytes(b"left over")
    done = table.remove_orphan_files(older_than=AT_ONCE)
    assert name in done.paths
    assert not orphan.exists()
    assert (tmp_path / "outside.fermion").exists()
    assert table.scan().count() == 3


def test_any_text_is_a_partition_value(tmp_path: Path) -> None:
    """Values that a path can't hold come back as they were, are told apart, and stay inside."""
    schema = pa.schema({"p": pa.string(), "v": pa.int64()})
    table = Table.create(tmp_path / "t", schema, partition_by=["p"], durability="fast")
    table.append({"p": list(VALUES), "v": list(range(len(VALUES)))})
    table.append({"p": list(VALUES), "v": list(range(len(VALUES)))})
    table.compact()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    found = Table.open(tmp_path / "t").scan().to_arrow()
    by_value: dict[Any, set[int]] = {}
    for value, number in zip(found["p"].to_pylist(), found["v"].to_pylist(), strict=True):
        by_value.setdefault(value, set()).add(number)
    assert by_value == {value: {number} for number, value in enumerate(VALUES)}
    for number, value in enumerate(VALUES):
        chosen = fermion.col("p").is_null() if value is None else fermion.col("p") == value
        scan = table.scan(filter=chosen)
        assert scan.to_arrow()["v"].to_pylist() == [number, number]
        assert len(scan.plan().splits) == 1
    table.delete(fermion.col("p") == "../..")
    assert table.scan().count() == 2 * len(VALUES) - 2
    assert table.verify(data=True).ok


def test_the_store_refuses_every_hostile_path(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    for path in (*HOSTILE, ""):
        for action in (store.read, store.exists, store.delete, store.locate, store.size):
            with pytest.raises(UnsafeStorage):
                action(path)
        for create in (store.write, store.create_if_absent, store.overwrite_hint):
            with pytest.raises(UnsafeStorage):
                create(path, b"")
    assert list(tmp_path.iterdir()) == []
