"""Storages that fail: only "not found" means absent; errors say what failed and where."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fermion import FermionError, StorageDenied, StorageError, StorageTimeout
from fermion.errors import InvalidArgumentError
from fermion.io import remote
from fermion.io.remote import storage_error
from fermion.redaction import redacted
from fermion_table import StorageAccess, Table, TableNotFound, UnsafeStorage
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.local import LocalStore
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import snapshot_path
from tests.kit.tables.failing_s3 import failing

REASON = "the extra s3 and the group dev bring s3fs and moto"
s3fs = pytest.importorskip("s3fs", reason=REASON)

pytestmark = pytest.mark.usefixtures("short_probe", "short_pauses")

SCHEMA = pa.schema([("a", pa.int64())])
AT_ONCE = timedelta(days=-1)
REPLIES = [("AccessDenied", 403), ("ExpiredToken", 400), ("ServiceUnavailable", 503)]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server is asked again at once."""
    monkeypatch.setattr(remote, "BACKOFF_S_MIN", 0.001)


@pytest.fixture
def table(s3_options: Any, request: pytest.FixtureRequest) -> Table:
    """Snapshots 0 to 3; the hint names snapshot 2."""
    name = request.node.name.replace("[", "-").replace("]", "")
    made = Table.create(f"s3://bucket/{name}", SCHEMA, storage_options=s3_options)
    for value in range(3):
        made.append(pa.table({"a": [value]}, schema=SCHEMA))
    made.store.overwrite_hint("snapshot/LATEST", b"2")
    return made


def newest(method: str, key: str) -> bool:
    return method in ("get_object", "head_object") and key.endswith(snapshot_path(3))


@pytest.mark.parametrize(("code", "status"), REPLIES)
def test_no_old_snapshot_is_given_while_the_newest_can_not_be_read(
    table: Table, s3_options: Any, code: str, status: int
) -> None:
    """The pointer file is one version behind, and the slot that comes next answers an error."""
    with failing(table.store.filesystem, newest, code=code, status=status) as refused:
        with pytest.raises(StorageError, match=code) as raised:
            Table.open(table.location, storage_options=s3_options)
        assert refused
    assert snapshot_path(3) in str(raised.value)
    assert Table.open(table.location, storage_options=s3_options).snapshot.id == 3


@pytest.mark.parametrize(("code", "status"), REPLIES)
def test_a_storage_that_fails_does_not_say_that_there_is_no_table(
    table: Table, s3_options: Any, code: str, status: int
) -> None:
    with failing(table.store.filesystem, lambda *_: True, code=code, status=status):
        with pytest.raises(StorageError):
            Table.exists(table.location, storage_options=s3_options)
        with pytest.raises(StorageError):
            Table.open(table.location, storage_options=s3_options)
    assert Table.exists(table.location, storage_options=s3_options)
    assert not Table.exists(f"{table.location}-none", storage_options=s3_options)


@pytest.mark.parametrize("maintain", ["remove_orphan_files", "expire_snapshots"])
@pytest.mark.parametrize(("code", "status"), REPLIES)
def test_maintenance_deletes_nothing_while_the_newest_snapshot_can_not_be_read(
    table: Table, code: str, status: int, maintain: str
) -> None:
    old = Table.open(table.location, version=2, storage_options=table.store.storage_options)
    before = {item.path for item in table.store.list()}
    further = {"retain_last": 1} if maintain == "expire_snapshots" else {}
    with (
        failing(table.store.filesystem, newest, code=code, status=status),
        pytest.raises(StorageError),
    ):
        getattr(old, maintain)(older_than=AT_ONCE, **further)
    assert {item.path for item in table.store.list()} - before <= {"snapshot/EARLIEST"}
    assert before <= {item.path for item in table.store.list()}
    assert table.verify(data=True).ok


def test_maintenance_finds_the_newest_snapshot_though_looking_for_it_says_absent(
    table: Table, s3_options: Any
) -> None:
    """A server that says 404 for a slot that its listing has: what it holds is not deleted."""
    with failing(table.store.filesystem, newest, code="NoSuchKey", status=404) as refused:
        old = Table.open(table.location, storage_options=s3_options)
        assert old.snapshot.id == 2
        with pytest.raises(Exception, match=r"00003\.json"):
            old.remove_orphan_files(older_than=AT_ONCE)
    assert refused
    assert table.verify(data=True).ok


def test_a_role_that_may_not_list_reads_on_purpose_and_maintains_nothing(
    table: Table, s3_options: Any
) -> None:
    """S3 answers 403 for missing keys then; 403 for everything that is not there."""
    there = {
        f"{table.location.removeprefix('s3://bucket/')}/{item.path}" for item in table.store.list()
    }

    def denied(method: str, key: str) -> bool:
        return method.startswith("list") or key not in there

    access = StorageAccess(missing_is_forbidden=True)
    with failing(table.store.filesystem, denied, code="AccessDenied", status=403):
        with pytest.raises(StorageDenied):
            Table.open(table.location, storage_options=s3_options)
        seen = Table.open(table.location, storage_options=s3_options, access=access)
        assert seen.snapshot.id == 3
        assert sorted(seen.scan().to_arrow()["a"].to_pylist()) == [0, 1, 2]
        for change in (
            lambda: seen.append(pa.table({"a": [1]}, schema=SCHEMA)),
            lambda: seen.delete("a = 1"),
            lambda: seen.remove_orphan_files(dry_run=True),
            lambda: seen.expire_snapshots(),
            lambda: seen.compact(),
        ):
            with pytest.raises(UnsafeStorage, match="missing_is_forbidden"):
                change()
    assert {item.path for item in table.store.list("data")} <= {
        each.split("/", 1)[1] for each in there
    }
    with (
        failing(table.store.filesystem, newest, code="ExpiredToken", status=400),
        pytest.raises(StorageDenied, match="ExpiredToken"),
    ):
        Table.open(table.location, storage_options=s3_options, access=access)


def test_a_fresh_table_opens_without_the_right_to_list(s3_options: Any) -> None:
    made = Table.create("s3://bucket/fresh", SCHEMA, storage_options=s3_options)

    def denied(method: str, key: str) -> bool:
        return method.startswith("list") or key.endswith(snapshot_path(1))

    access = StorageAccess(missing_is_forbidden=True)
    with failing(made.store.filesystem, denied, code="AccessDenied", status=403):
        opened = Table.open(made.location, storage_options=s3_options, access=access)
    assert opened.snapshot.id == 0


def test_a_missing_bucket_is_not_a_missing_table(s3_options: Any) -> None:
    for ask in (Table.open, Table.exists):
        with pytest.raises(StorageError, match=r"s3://nobucket/t.*bucket does not exist") as raised:
            ask("s3://nobucket/t", storage_options=s3_options)
        assert not isinstance(raised.value, (TableNotFound, FileNotFoundError))
    with pytest.raises(StorageError, match="bucket does not exist"):
        Table.create("s3://nobucket/t", SCHEMA, storage_options=s3_options)
    with pytest.raises(StorageError, match="bucket does not exist"):
        list(FsspecStore("s3://nobucket/t", storage_options=s3_options).list())


@pytest.mark.parametrize(
    ("verb", "ask"),
    [
        ("read", lambda store: store.read("manifest/a.json")),
        ("look for", lambda store: store.exists("manifest/a.json")),
        ("look for", lambda store: store.size("manifest/a.json")),
        ("write", lambda store: store.write("manifest/a.json", b"1")),
        ("write", lambda store: store.overwrite_hint("manifest/a.json", b"1")),
        ("delete", lambda store: store.delete("manifest/a.json")),
    ],
)
def test_errors_of_a_storage_name_operation_bucket_and_key_and_keep_the_cause(
    s3_options: Any, verb: str, ask: Any
) -> None:
    store = FsspecStore("s3://bucket/named", storage_options=s3_options)
    with (
        failing(store.filesystem, lambda *_: True, code="AccessDenied", status=403),
        pytest.raises(
            StorageDenied, match=rf"^{verb} s3://bucket/named/manifest/a\.json: "
        ) as raised,
    ):
        ask(store)
    assert raised.value.operation == verb
    assert isinstance(raised.value, PermissionError)
    assert isinstance(raised.value.__cause__, PermissionError)
    assert "injected AccessDenied (HTTP 403)" in str(raised.value)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.operation) == (str(raised.value), verb)


def test_an_empty_object_is_there(s3_options: Any) -> None:
    store = FsspecStore("s3://bucket/empty", storage_options=s3_options)
    store.write("expired/00000000000000000005", b"")
    assert store.exists("expired/00000000000000000005")
    assert store.read("expired/00000000000000000005") == b""


def test_a_disk_that_fails_does_not_say_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root reads everything, the error is made up."""
    store = LocalStore(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    assert not store.exists("file/below")

    def fail(path: Any, **_: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("fermion_table.storage.local.os.stat", fail)
    with pytest.raises(PermissionError):
        store.exists("snapshot/0.json")


class FailingFileSystem(MemoryFileSystem):
    """A file system without ranges and without a listing of its own, which fails where told."""

    protocol = "failing"
    find = fsspec.AbstractFileSystem.find
    broken = ""

    def ls(self, path: str, detail: bool = True, **s3_options: Any) -> Any:
        self._fail(path)
        return super().ls(path, detail=detail, **s3_options)

    def info(self, path: str, **s3_options: Any) -> Any:
        self._fail(path)
        return super().info(path, **s3_options)

    def _fail(self, path: str) -> None:
        if self.broken and path.endswith(self.broken):
            raise OSError(5, "the server is away")


fsspec.register_implementation("failing", FailingFileSystem, clobber=True)


def test_a_listing_that_fails_halfway_is_no_short_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec's generic walk leaves out the directories that it fails to list."""
    store = open_store("failing://f")
    for path in ("data/p=1/a", "data/p=2/b"):
        store.write(path, b"x")
    assert [item.path for item in store.list("data")] == ["data/p=1/a", "data/p=2/b"]
    monkeypatch.setattr(FailingFileSystem, "broken", "p=2")
    with pytest.raises(StorageError, match=r"list .*the server is away"):
        list(store.list())
    monkeypatch.setattr(FailingFileSystem, "broken", "/a")
    with pytest.raises(StorageError, match="look for"):
        store.exists("data/p=1/a")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_web_servers_refuse_to_write(scheme: str) -> None:
    store = open_store(f"{scheme}://127.0.0.1:1/t?sig=secret")
    for change in (
        lambda: store.write("manifest/a.json", b""),
        lambda: store.create_if_absent("snapshot/0.json", b""),
        lambda: store.overwrite_hint("snapshot/LATEST", b""),
        lambda: store.delete("manifest/a.json"),
        lambda: store.locate("data/a.fermion", for_writing=True),
    ):
        with pytest.raises(UnsafeStorage, match="read but not written") as raised:
            change()
        assert "secret" not in str(raised.value)


def test_urls_in_errors_lose_user_info_and_signatures() -> None:
    for url, shown in (
        ("https://u:p@host/a?X-Amz-Signature=1", "https://host/a?..."),
        ("simplecache::https://u:p@host/a", "simplecache::https://host/a"),
        ("abfs://box@account.dfs.core.windows.net/t", "abfs://box@account.dfs.core.windows.net/t"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("/a/b@c", "/a/b@c"),
    ):
        assert redacted(url) == shown
    error = storage_error("read", "s3://b/k", OSError("403, url='https://h/k?X-Amz-Signature=1'"))
    assert "Signature" not in str(error)


def test_access_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="missing_is_forbidden"):
        StorageAccess(missing_is_forbidden=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="access"):
        Table.open(tmp_path, access=True)  # type: ignore[arg-type]


def test_a_storage_that_fails_is_never_taken_for_damage() -> None:
    """Whatever catches what files and metadata may be wrong with lets it pass."""
    for kind in (StorageError, StorageDenied, StorageTimeout):
        assert issubclass(kind, OSError)
        assert not issubclass(kind, FermionError)
