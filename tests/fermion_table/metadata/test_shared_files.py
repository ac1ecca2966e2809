"""Which files outside of a table its metadata may name: those of its clone source alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import StorageAccess, Table, UnsafeStorage
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.manifest import DeletionVector, Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.shared_files import (
    CLONE_OF,
    CLONE_ROOTS,
    clone_roots,
    options_for,
    place_of,
)
from tests.kit.stores import MemoryStore
from tests.kit.table_files import naming

SCHEMA = pa.schema({"a": pa.int64()})
SECRET = b"Zq7#Xw9!Kj2%Vb5&Yh8*"


@pytest.fixture
def source(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "source", SCHEMA, durability="fast")
    made.append(pa.table({"a": [1, 2, 3]}))
    return made


def refused(table: Table, match: str) -> None:
    """Scans, their plans, compaction and deletes refuse; `verify` reports it."""
    for read in (
        lambda: table.scan().to_arrow(),
        lambda: list(table.scan().plan().splits),
        lambda: table.compact(),
        lambda: table.delete("a = 2"),
        lambda: list(table.scan(filter="a > 1").to_batches()),
    ):
        with pytest.raises(UnsafeStorage, match=match):
            read()
    for data in (False, True):
        report = table.verify(data=data)
        assert any(match in problem.found for problem in report.problems), report


def test_a_table_that_is_no_clone_names_no_other_file(source: Table, tmp_path: Path) -> None:
    """Neither a secret nor a valid file of another table."""
    (tmp_path / "secret").write_bytes(SECRET)
    mine = Table.create(tmp_path / "mine", SCHEMA, durability="fast")
    mine.append(pa.table({"a": [9]}))
    refused(naming(mine, str(tmp_path / "secret")), "cloned from")
    other = Table.create(tmp_path / "other", SCHEMA, durability="fast")
    other.append(pa.table({"a": [9]}))
    (entry,) = live_entries(source.store, source.snapshot)
    refused(naming(other, source.store.locate(entry.path)), "cloned from")


def test_a_clone_names_data_files_of_its_source_alone(source: Table, tmp_path: Path) -> None:
    (tmp_path / "source" / "secret").write_bytes(SECRET)
    (tmp_path / "source-2").mkdir()
    (tmp_path / "source-2" / "x.fermion").write_bytes(SECRET)
    (tmp_path / "source" / "data" / "link.fermion").symlink_to(tmp_path / "source-2" / "x.fermion")
    for number, inner in enumerate(
        [
            "source/secret",
            "source/data/../secret",
            "source/data//x.fermion",
            "source-2/x.fermion",
            "source/data/link.fermion",
        ]
    ):
        clone = source.clone(tmp_path / f"clone{number}", durability="fast")
        assert clone.scan().count() == 3
        refused(naming(clone, f"{tmp_path}/{inner}"), "outside of the table")


@pytest.mark.parametrize(
    "location", ["data/x.fermion", "file:///etc/passwd", "s3://b/data/x", "http://h/data/x", "a\nb"]
)
def test_a_local_table_names_local_files_by_absolute_paths(
    source: Table, tmp_path: Path, location: str
) -> None:
    clone = source.clone(tmp_path / "clone", durability="fast")
    refused(naming(clone, location), "outside of the table")


def test_a_table_in_memory_reads_no_local_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    source = Table.create(f"memory://{tmp_path.name}/source", SCHEMA)
    source.append(pa.table({"a": [1]}))
    clone = source.clone(f"memory://{tmp_path.name}/clone")
    assert Table.open(clone.location).scan().count() == 1
    refused(naming(clone, str(tmp_path / "secret")), "another storage")


def test_a_pipe_is_refused_and_does_not_hang(source: Table, tmp_path: Path) -> None:
    """Among the source's data files, as metadata, and as a file by itself."""
    pipe = tmp_path / "source" / "data" / "x.fermion"
    os.mkfifo(pipe)
    clone = source.clone(tmp_path / "clone", durability="fast")
    refused(naming(clone, str(pipe)), "regular file")
    with pytest.raises(InvalidArgumentError, match="regular file"):
        fermion.open(pipe)
    os.mkfifo(tmp_path / "source" / "snapshot" / f"{source.snapshot.id + 1:020d}.json")
    with pytest.raises(CorruptMetadata, match="regular file"):
        Table.open(source.location)


def test_no_deletion_vector_lies_outside(source: Table, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    clone = source.clone(tmp_path / "clone", durability="fast")
    (entry,) = live_entries(clone.store, clone.snapshot)
    vector = DeletionVector(path=str(tmp_path / "secret"), offset=4, size=8, rows=1)
    assert entry.external_path is not None
    table = naming(clone, entry.external_path, vector=vector)
    with pytest.raises(UnsafeStorage, match="outside of the table"):
        table.scan().to_arrow()
    assert any("outside of the table" in each.found for each in table.verify().problems)


def test_errors_show_no_bytes_of_foreign_files(source: Table, tmp_path: Path) -> None:
    """A file that is none of ours stands where a data file of the source should."""
    foreign = tmp_path / "source" / "data" / f"{'a' * 32}.fermion"
    foreign.write_bytes(SECRET * 40)
    clone = naming(source.clone(tmp_path / "clone", durability="fast"), str(foreign))
    with pytest.raises(fermion.FermionError) as raised:
        clone.scan().to_arrow()
    said = [str(raised.value), repr(raised.value), str(clone.verify(data=True))]
    with pytest.raises(fermion.FermionError) as raised:
        fermion.open(foreign)
    for text in [*said, str(raised.value)]:
        assert not any(SECRET[at : at + 4].decode() in text for at in range(len(SECRET) - 4))


def test_named_roots_are_allowed_wherever_they_lie(source: Table, tmp_path: Path) -> None:
    mine = Table.create(tmp_path / "mine", SCHEMA, durability="fast")
    mine.append(pa.table({"a": [9]}))
    (entry,) = live_entries(source.store, source.snapshot)
    naming(mine, source.store.locate(entry.path))
    for roots, allowed in (
        ([str(tmp_path / "source")], True),
        ([str(tmp_path / "source" / "data") + "/"], True),
        ([str(tmp_path / "sour")], False),
        (["s3://bucket/source"], False),
    ):
        table = Table.open(mine.location, access=StorageAccess(allowed_roots=roots))
        if allowed:
            assert sorted(table.scan().to_arrow()["a"].to_pylist()) == [1, 2, 3, 9]
            assert table.verify(data=True).ok
        else:
            refused(table, "outside of the table")


@pytest.mark.parametrize("roots", ["/a", [1], ["relative"], None, b"/a", 7])
def test_roots_are_checked(roots: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed_roots"):
        StorageAccess(allowed_roots=roots)


def test_clones_of_clones_say_where_all_their_files_lie(source: Table, tmp_path: Path) -> None:
    middle = source.clone(tmp_path / "middle", durability="fast")
    middle.append(pa.table({"a": [4]}))
    last = middle.clone(tmp_path / "last", durability="fast")
    origin = last.snapshots()[0].properties
    assert clone_roots(origin) == [middle.location, source.location]
    assert sorted(Table.open(last.location).scan().to_arrow()["a"].to_pylist()) == [1, 2, 3, 4]
    last.delete("a = 1")
    assert last.clone(tmp_path / "further", durability="fast").scan().count() == 3


def test_roots_that_are_no_list_are_refused() -> None:
    for text in ("{", "{}", "[1]"):
        with pytest.raises(CorruptMetadata, match=CLONE_ROOTS):
            clone_roots({CLONE_OF: "/a", CLONE_ROOTS: text})
    assert clone_roots({CLONE_ROOTS: '["/a"]'}) == []


def test_a_clone_on_another_storage_is_refused_before_anything_is_written(
    source: Table, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match="storage of its source"):
        source.clone(f"memory://{tmp_path.name}/clone")
    assert source.tags.list() == []


def test_storages_are_told_apart() -> None:
    """Buckets of one scheme share credentials and endpoint; hosts do not."""
    for location, place in (
        ("/a/b", ("", "")),
        ("s3a://bucket/a", ("s3", "")),
        ("s3://other/a", ("s3", "")),
        ("memory:///a", ("memory", "")),
        ("https://h:1/a", ("https", "h:1")),
        ("https://h@evil/a", ("https", "h@evil")),
        ("abfs://box@account/a", ("abfs", "account")),
        ("simplecache::https://h/a", ("simplecache::https", "h")),
    ):
        assert place_of(location) == place


class Recorder(BaseHTTPRequestHandler):
    """Answers 404 and keeps the headers."""

    seen: list[tuple[str, str | None]] = []  # noqa: RUF012 - shared on purpose

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_error(404)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def other_host() -> Iterator[str]:
    Recorder.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_storage_options_never_go_to_another_host(other_host: str) -> None:
    """Not even to a root that the caller allows: there the request goes without them."""
    pytest.importorskip("aiohttp")
    store = MemoryStore("http://127.0.0.1:1/table")
    store.storage_options = {"headers": {"Authorization": "secret"}}  # type: ignore[misc]
    assert options_for(store, "http://127.0.0.1:1/source/data/x") == store.storage_options
    assert options_for(store, f"{other_host}/data/x.fermion") is None
    made = Table.create(f"memory://host-{id(store)}/t", SCHEMA)
    made.append(pa.table({"a": [1]}))
    location = f"{other_host}/data/{'a' * 32}.fermion"
    naming(made, location)
    access = StorageAccess(allowed_roots=[other_host + "/data"])
    for allowed in (StorageAccess(), access):
        table = Table.open(made.location, access=allowed)
        table.store.storage_options = {"headers": {"Authorization": "secret"}}
        with pytest.raises((UnsafeStorage, OSError)):
            table.scan().to_arrow()
        assert not table.verify(data=True).ok
        assert bool(Recorder.seen) is (allowed is access)
    assert {authorization for _, authorization in Recorder.seen} == {None}


@pytest.mark.parametrize(
    "path", ["%2e%2e/secret", "data/%2e%2e/%2e%2e/x", "data/%252e%252e/x", "data/x?y=1", "data/x#y"]
)
def test_no_encoding_leads_out_of_a_web_folder(path: str) -> None:
    from fermion_table.metadata.shared_files import SharedFiles

    store = MemoryStore("https://host/t")
    store.access = StorageAccess(allowed_roots=["https://host/source"])  # type: ignore[attr-defined]
    files = SharedFiles(store)
    assert files.checked("https://host/source/data/a%20b") == "https://host/source/data/a%20b"
    with pytest.raises(UnsafeStorage):
        files.checked(f"https://host/source/{path}")


def test_entries_of_the_table_itself_ask_nothing(source: Table) -> None:
    """No look at snapshot 0 for a table that shares no files."""
    entry = Entry(path="data/x.fermion", size=1, rows=1)
    from fermion_table.metadata.shared_files import SharedFiles

    store = MemoryStore()
    store.locate = lambda path, **_: f"/t/{path}"  # type: ignore[method-assign]
    assert SharedFiles(store).data(entry) == "/t/data/x.fermion"
