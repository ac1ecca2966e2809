"""Stores: one winner of a race, nothing outside the table, whole objects only."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fermion_table.errors import CommitStateUnknown, UnsafeStorage
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.local import LocalStore
from fermion_table.storage.location import open_store
from fermion_table.storage.store import AtomicStore, CreateResult

SLOT = "snapshot/00000000000000000000.json"


@pytest.fixture(params=["full", "fast", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AtomicStore]:
    if request.param == "memory":
        url = f"memory://{uuid.uuid4().hex}/table"
        yield open_store(url)
        with contextlib.suppress(FileNotFoundError):
            fsspec.filesystem("memory").rm(url.removesuffix("/table"), recursive=True)
    else:
        yield open_store(tmp_path / "table", durability=request.param)


def test_an_object_is_written_read_measured_listed_and_deleted(store: AtomicStore) -> None:
    store.write("manifest/a.json", b"one")
    store.write("data/k=1/b.fermion", b"three")
    assert store.read("manifest/a.json") == b"one"
    assert store.size("data/k=1/b.fermion") == 5
    assert {(item.path, item.size) for item in store.list()} == {
        ("manifest/a.json", 3),
        ("data/k=1/b.fermion", 5),
    }
    assert [item.path for item in store.list("data")] == ["data/k=1/b.fermion"]
    assert all((item.modified_ms or 0) > 1_600_000_000_000 for item in store.list())
    store.delete("manifest/a.json")
    store.delete("manifest/a.json")
    assert not store.exists("manifest/a.json")
    with pytest.raises(FileNotFoundError):
        store.read("manifest/a.json")
    with pytest.raises(FileNotFoundError):
        store.size("manifest/a.json")


def test_a_missing_directory_lists_as_empty(store: AtomicStore) -> None:
    assert list(store.list()) == []
    assert list(store.list("snapshot")) == []


def test_creating_a_slot_twice_keeps_the_first(store: AtomicStore) -> None:
    assert store.create_if_absent(SLOT, b"first") is CreateResult.CREATED
    assert store.create_if_absent(SLOT, b"second") is CreateResult.EXISTS
    assert store.read(SLOT) == b"first"
    assert [item.path for item in store.list()] == [SLOT], "a temporary file was left"


def test_of_eight_threads_one_creates_each_slot(store: AtomicStore) -> None:
    barrier = threading.Barrier(8)

    def create(path: str, content: bytes) -> CreateResult:
        barrier.wait()
        return store.create_if_absent(path, content)

    with ThreadPoolExecutor(8) as executor:
        for key in range(20):
            path = f"snapshot/{key:020d}.json"
            contents = [b"%d" % thread for thread in range(8)]
            results = list(executor.map(create, [path] * 8, contents))
            assert results.count(CreateResult.CREATED) == 1
            assert results.count(CreateResult.EXISTS) == 7
            assert store.read(path) == contents[results.index(CreateResult.CREATED)]


def test_a_hint_is_overwritten(store: AtomicStore) -> None:
    store.create_if_absent(SLOT, b"{}")
    store.overwrite_hint("snapshot/LATEST", b"1")
    store.overwrite_hint("snapshot/LATEST", b"2")
    assert store.read("snapshot/LATEST") == b"2"


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "a\\b", "C:x", "a\nb"]
)
def test_no_name_leaves_the_table(store: AtomicStore, path: str) -> None:
    operations: list[Callable[[], Any]] = [
        lambda: store.read(path),
        lambda: store.exists(path),
        lambda: store.size(path),
        lambda: store.write(path, b""),
        lambda: store.create_if_absent(path, b""),
        lambda: store.overwrite_hint(path, b""),
        lambda: store.delete(path),
        lambda: store.locate(path),
    ]
    for operation in operations:
        with pytest.raises(UnsafeStorage):
            operation()


def test_no_link_leads_out_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    table = tmp_path / "table"
    table.mkdir()
    (table / "manifest").symlink_to(tmp_path)
    (table / "link").symlink_to(tmp_path / "secret")
    store = LocalStore(table)
    for path in ("manifest/secret", "link"):
        with pytest.raises(UnsafeStorage, match="leads out"):
            store.read(path)
        with pytest.raises(UnsafeStorage, match="leads out"):
            store.locate(path)
        with pytest.raises(UnsafeStorage, match="leads out"):
            store.delete(path)
    with pytest.raises(UnsafeStorage, match="leads out"):
        store.write("manifest/new", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "table"]


def test_a_table_may_itself_lie_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "link")
    store.write("manifest/a.json", b"a")
    assert (tmp_path / "real" / "manifest" / "a.json").read_bytes() == b"a"


def test_stores_pickle(store: AtomicStore) -> None:
    store.write("manifest/a.json", b"one")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.read("manifest/a.json") == b"one"
    assert copy.location == store.location


def test_a_location_is_a_path_a_pathlib_path_or_a_url(tmp_path: Path) -> None:
    for location in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        store = open_store(location)
        assert isinstance(store, LocalStore)
        assert store.location == os.path.realpath(tmp_path)
    assert isinstance(open_store("memory://t"), FsspecStore)


def test_a_failed_write_leaves_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    store.write("snapshot/other", b"")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        store.create_if_absent(SLOT, b"{}")
    monkeypatch.undo()
    assert [item.path for item in store.list()] == ["snapshot/other"]


def test_a_snapshot_file_whose_directory_cannot_be_fsynced_is_of_unknown_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.write("snapshot/other", b"")
    fsync = os.fsync

    def fail_on_directories(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_directories)
    with pytest.raises(CommitStateUnknown, match="fsync of its directory failed"):
        store.create_if_absent(SLOT, b"{}")


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsafeStorage, match="hard links"):
        LocalStore(tmp_path).create_if_absent(SLOT, b"{}")
    assert list(LocalStore(tmp_path).list()) == []


def test_a_link_whose_reply_was_lost_counts_as_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_link = os.link

    def link(source: str, target: str) -> None:
        real_link(source, target)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", link)
    assert LocalStore(tmp_path).create_if_absent(SLOT, b"{}") is CreateResult.CREATED


class OverwritingFileSystem(MemoryFileSystem):
    """A storage that claims to create and overwrites."""

    protocol = "overwriting"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value)


class LookThenWriteFileSystem(MemoryFileSystem):
    """A storage with fsspec's generic create."""

    protocol = "lookthenwrite"
    pipe_file = fsspec.AbstractFileSystem.pipe_file


class TrustworthyFileSystem(MemoryFileSystem):
    """A storage that is not known by name, and creates atomically."""

    protocol = "trustworthy"
    lock = threading.Lock()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.lock:
            super().pipe_file(path, value, mode=mode)


class ForgetfulFileSystem(TrustworthyFileSystem):
    """A storage whose replies are lost after it has created."""

    protocol = "forgetful"
    forget = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value, mode=mode)
        if self.forget:
            raise TimeoutError("no reply")


for _filesystem in (
    OverwritingFileSystem,
    LookThenWriteFileSystem,
    TrustworthyFileSystem,
    ForgetfulFileSystem,
):
    fsspec.register_implementation(_filesystem.protocol, _filesystem, clobber=True)


@pytest.mark.parametrize("protocol", ["overwriting", "lookthenwrite"])
def test_storage_that_cannot_create_atomically_is_refused(protocol: str) -> None:
    store = open_store(f"{protocol}://t")
    with pytest.raises(UnsafeStorage):
        store.create_if_absent(SLOT, b"{}")
    assert not store.exists(SLOT)


def test_unknown_storage_that_passes_the_probe_is_used_and_left_clean() -> None:
    store = open_store("trustworthy://trusted")
    assert store.create_if_absent(SLOT, b"{}") is CreateResult.CREATED
    assert [item.path for item in store.list()] == ["probe/verdict.json", SLOT]
    store.delete(SLOT)


def test_a_lost_reply_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("forgetful://lost")
    assert store.create_if_absent("snapshot/probe", b"") is CreateResult.CREATED
    monkeypatch.setattr(ForgetfulFileSystem, "forget", True)
    assert store.create_if_absent(SLOT, b"{}") is CreateResult.UNKNOWN
    assert store.read(SLOT) == b"{}"
