"""The probe before a table's first object: few requests, once a table, and nothing left behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fsspec.asyn import AsyncFileSystem

from fermion_table import Table, UnsafeStorage
from fermion_table.storage import fsspec as fsspec_store
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.paths import VERDICT_PATH
from fermion_table.storage.probe import (
    INCONCLUSIVE_MAX,
    PROBE_KEYS,
    PROBE_THREADS,
    _is_documented,
    check_creates,
    refuse_look_then_write,
)
from fermion_table.storage.store import METADATA_BYTES_MAX, CreateResult
from tests.kit.tables.failing_s3 import failing

REASON = "the extra s3 and the group dev bring s3fs and moto"
s3fs = pytest.importorskip("s3fs", reason=REASON)

SCHEMA = pa.schema([("a", pa.int64())])
AT_ONCE = timedelta(days=-1)
LEFT_MAX = 3


@pytest.fixture(autouse=True)
def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been probed in this process."""
    monkeypatch.setattr(fsspec_store, "_probed", set())


def counted(store: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()
    real = store.filesystem._call_s3

    async def call(method: str, *arguments: Any, **keywords: Any) -> Any:
        found[method] += 1
        return await real(method, *arguments, **keywords)

    monkeypatch.setattr(store.filesystem, "_call_s3", call)
    return found


def test_the_probe_is_made_once_a_table_and_cleaned_up(
    s3_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """555 requests in each process before; later processes read one object."""
    store = FsspecStore("s3://bucket/once", storage_options=s3_options)
    requests = counted(store, monkeypatch)
    store.write("manifest/a.json", b"{}")
    assert requests.total() <= PROBE_KEYS * (PROBE_THREADS + 2) + 10
    assert [item.path for item in store.list("probe")] == [VERDICT_PATH]
    monkeypatch.setattr(fsspec_store, "_probed", set())
    requests.clear()
    FsspecStore("s3://bucket/once", storage_options=s3_options).write("manifest/b.json", b"{}")
    assert requests == {"get_object": 1, "put_object": 1}


def test_what_can_not_be_deleted_is_little_and_an_orphan(s3_options: Any) -> None:
    location = "s3://bucket/undeletable"
    store = FsspecStore(location, storage_options=s3_options)

    def deleting(method: str, key: str) -> bool:
        return method.startswith("delete")

    with failing(store.filesystem, deleting, code="AccessDenied", status=403):
        table = Table.create(location, SCHEMA, storage_options=s3_options)
    left = {item.path for item in store.list("probe")} - {VERDICT_PATH}
    assert 0 < len(left) <= LEFT_MAX
    assert set(table.remove_orphan_files(older_than=AT_ONCE, dry_run=True).paths) == left
    table.remove_orphan_files(older_than=AT_ONCE)
    assert [item.path for item in store.list("probe")] == [VERDICT_PATH]


@pytest.mark.usefixtures("short_probe")
def test_a_verdict_counts_for_its_own_table_and_server_alone(
    s3_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FsspecStore("s3://bucket/one", storage_options=s3_options)
    store.write("manifest/a.json", b"{}")
    verdict = store.read(VERDICT_PATH)
    copy = FsspecStore("s3://bucket/copy", storage_options=s3_options)
    copy.filesystem.pipe_file(f"bucket/copy/{VERDICT_PATH}", verdict)
    monkeypatch.setattr(fsspec_store, "_probed", set())
    requests = counted(copy, monkeypatch)
    copy.write("manifest/a.json", b"{}")
    assert requests["put_object"] > PROBE_THREADS
    for text in (b"", b"[]", b"{}", b"\xff"):
        copy.filesystem.pipe_file(f"bucket/copy/{VERDICT_PATH}", text)
        monkeypatch.setattr(fsspec_store, "_probed", set())
        requests.clear()
        FsspecStore("s3://bucket/copy", storage_options=s3_options).write("manifest/b", b"{}")
        assert requests["put_object"] > PROBE_THREADS


def test_a_careless_storage_gets_no_object_of_the_table(
    s3_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before the first one: metadata, a data file, a hint or a slot."""
    store = FsspecStore("s3://careless-probe/t", storage_options=s3_options)
    store.filesystem.call_s3("create_bucket", Bucket="careless-probe")
    real = store.filesystem.pipe_file
    monkeypatch.setattr(
        store.filesystem, "pipe_file", lambda path, data, mode=None, **_: real(path, data)
    )
    for change in (
        lambda: store.write("manifest/a.json", b""),
        lambda: store.locate("data/a.fermion", for_writing=True),
        lambda: store.overwrite_hint("snapshot/LATEST", b""),
        lambda: store.create_if_absent("snapshot/0.json", b""),
    ):
        with pytest.raises(UnsafeStorage, match="told that they created the same file"):
            change()
        assert list(store.list()) == []


@pytest.mark.parametrize(
    ("endpoint", "known"),
    [
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://s3.amazonaws.com.evil.example", False),
        ("http://127.0.0.1:9000", False),
        (None, False),
    ],
)
def test_services_that_document_conditional_creates_are_not_raced(
    endpoint: str | None, known: bool
) -> None:
    client = SimpleNamespace(meta=SimpleNamespace(endpoint_url=endpoint))
    assert _is_documented(SimpleNamespace(protocol=("s3", "s3a"), _s3=client)) is known
    assert _is_documented(SimpleNamespace(protocol="gs"))


class LikeAzure(AsyncFileSystem):
    """Signed like the client of Azure, adlfs, which creates where ``mode`` is ``"create"``."""

    async def _pipe_file(self, path: str, value: bytes, overwrite: bool = True, **_: Any) -> None:
        """Nothing is stored."""


class WithoutCreate(AsyncFileSystem):
    """Whatever the mode is, it is fsspec that looks, and then this writes."""

    async def _pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Nothing is stored."""


def test_bug_the_client_of_azure_counted_as_one_without_a_conditional_create() -> None:
    refuse_look_then_write(LikeAzure(), "abfs://box/t")
    with pytest.raises(UnsafeStorage, match="WithoutCreate has no conditional create"):
        refuse_look_then_write(WithoutCreate(), "abfs://box/t")


class LossyStorage:
    """Creates objects for one writer only, and loses some of the replies.

    Parameters
    ----------
    loses
        Whether the reply to the n-th request that created an object is lost.
    reply
        What the client makes of a lost reply: it does not know, or has asked again and was told
        that the object is there.
    """

    location = "lossy://box/t"
    filesystem = SimpleNamespace(protocol="lossy")

    def __init__(self, loses: Callable[[int], bool], reply: CreateResult) -> None:
        self._loses, self._reply = loses, reply
        self._lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.creations = self.lost = 0

    def create(self, path: str, data: bytes) -> CreateResult:
        with self._lock:
            if path in self.objects:
                return CreateResult.EXISTS
            self.objects[path] = data
            self.creations += 1
            if not self._loses(self.creations):
                return CreateResult.CREATED
            self.lost += 1
            return self._reply

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        try:
            return self.objects[path][:stop]
        except KeyError:
            raise FileNotFoundError(path) from None

    def put(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    def remove(self, path: str) -> None:
        del self.objects[path]


@pytest.mark.parametrize("reply", [CreateResult.EXISTS, CreateResult.UNKNOWN])
@pytest.mark.parametrize("each", [1, 2, 3, 10])
def test_a_lost_reply_is_no_verdict_on_a_storage(each: int, reply: CreateResult) -> None:
    """Every so many-th object loses its reply: as many as without losses prove something."""
    storage = LossyStorage(
        lambda creation: creation % each == 0 if each > 1 else creation == 1, reply
    )
    check_creates(storage, renames=True)
    assert storage.lost > 0
    assert storage.creations - storage.lost == 1 + PROBE_KEYS
    assert list(storage.objects) == [VERDICT_PATH]


@pytest.mark.parametrize("reply", [CreateResult.EXISTS, CreateResult.UNKNOWN])
def test_a_storage_that_loses_every_reply_is_not_called_unsafe(reply: CreateResult) -> None:
    storage = LossyStorage(lambda _: True, reply)
    with pytest.raises(OSError, match="the reply was lost") as raised:
        check_creates(storage, renames=True)
    assert not isinstance(raised.value, UnsafeStorage)
    assert storage.creations == INCONCLUSIVE_MAX
    assert not storage.objects


def test_a_storage_that_replaces_what_it_said_was_created_is_refused() -> None:
    """The reply to the writer that came second, and replaced the object, is lost."""

    class Replacing(LossyStorage):
        def create(self, path: str, data: bytes) -> CreateResult:
            is_first = path not in self.objects
            self.objects[path] = data
            return CreateResult.CREATED if is_first else CreateResult.UNKNOWN

    with pytest.raises(UnsafeStorage, match="another one replaced the file"):
        check_creates(Replacing(lambda _: False, CreateResult.UNKNOWN), renames=True)
