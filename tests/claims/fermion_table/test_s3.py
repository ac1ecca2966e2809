"""Tables on S3: through s3fs, against moto's server on the loopback interface."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table, UnsafeStorage
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.store import CreateResult
from tests.kit.tables.mirrored import check_mirrors_on_a_storage

pytestmark = pytest.mark.long

REASON = "the extra s3 and the group dev bring s3fs and moto"
s3fs = pytest.importorskip("s3fs", reason=REASON)

ClientError = pytest.importorskip("botocore.exceptions", reason=REASON).ClientError

SCHEMA = pa.schema([("a", pa.int64())])
DATA = pa.table({"a": [1, 2, 3]}, schema=SCHEMA)


@pytest.fixture
def table(s3_options, short_probe, request):
    return Table.create(f"s3://bucket/{request.node.name}", SCHEMA, storage_options=s3_options)


def requests_of(store: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is asked of S3 from now on."""
    counted: Counter[str] = Counter()
    real = store.filesystem._call_s3

    async def counting(method: str, *arguments: Any, **keywords: Any) -> Any:
        counted[method] += 1
        return await real(method, *arguments, **keywords)

    monkeypatch.setattr(store.filesystem, "_call_s3", counting)
    return counted


def test_a_slot_has_one_winner(s3_options):
    store = FsspecStore("s3://bucket/race", storage_options=s3_options)
    with ThreadPoolExecutor(8) as executor:
        for key in range(5):
            path = f"snapshot/{key:020d}.json"
            contents = [b"%d" % number for number in range(8)]
            results = list(executor.map(store.create_if_absent, [path] * 8, contents))
            assert results.count(CreateResult.CREATED) == 1
            assert store.read(path) == contents[results.index(CreateResult.CREATED)]
            assert store.exists(path)
    assert not store.exists("snapshot/none")


def test_mirrors_are_published_beside_the_table(s3_options, short_probe, tmp_path):
    check_mirrors_on_a_storage("s3://bucket/mirrored", tmp_path, s3_options)


def test_a_storage_that_ignores_the_condition_is_refused(s3_options, monkeypatch):
    """As servers do that do not know the header: every writer wins, and the probe finds out."""
    store = FsspecStore("s3://careless/t", storage_options=s3_options)
    store.filesystem.call_s3("create_bucket", Bucket="careless")
    real = store.filesystem.pipe_file
    monkeypatch.setattr(
        store.filesystem, "pipe_file", lambda path, data, mode=None, **_: real(path, data)
    )
    with pytest.raises(UnsafeStorage, match="told that they created the same file"):
        store.create_if_absent("snapshot/0.json", b"{}")
    assert list(store.list("snapshot")) == []


def test_bug_a_refusal_without_a_message_counted_as_unknown(s3_options, monkeypatch):
    """Ceph answers 412 and no text, of which s3fs makes an error like any other."""
    store = FsspecStore("s3://bucket/wordless", storage_options=s3_options)
    path = "snapshot/0.json"
    assert store.create_if_absent(path, b"{}") is CreateResult.CREATED
    real = store.filesystem._call_s3

    async def wordless(method: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            return await real(method, *arguments, **keywords)
        except OSError:
            refusal = {
                "Error": {"Code": "PreconditionFailed"},
                "ResponseMetadata": {"HTTPStatusCode": 412},
            }
            raise OSError(22, None) from ClientError(refusal, method)

    monkeypatch.setattr(store.filesystem, "_call_s3", wordless)
    assert store.create_if_absent(path, b"[]") is CreateResult.EXISTS
    assert store.read(path) == b"{}"


def test_a_small_append_lists_nothing(table, monkeypatch):
    """Two looks (at the next slot and at the hint); a slot and a hint beside the data file."""
    table.append(DATA)
    counted = requests_of(table.store, monkeypatch)
    table.append(DATA)
    assert counted["put_object"] == 2
    assert counted["get_object"] + counted["head_object"] <= 2
    assert sum(counted.values()) <= 4


def test_rows_versions_and_maintenance_work_as_on_disk(table, s3_options):
    """Append, delete, compact, tag, clone, expire, verify; then a fresh look from outside."""
    for start in range(0, 9, 3):
        table.append(pa.table({"a": range(start, start + 3)}, schema=SCHEMA))
    table.tags.create("before")
    table.delete("a = 4")
    assert table.compact().files_after == 1
    clone = table.clone(f"{table.location}-clone")
    clone.append(DATA)
    assert clone.scan().count() == 11
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.remove_orphan_files()
    again = Table.open(table.location, storage_options=s3_options)
    assert again.scan(filter="a >= 3").to_arrow().column("a").to_pylist() == [3, 5, 6, 7, 8]
    assert again.scan(tag="before").count() == 9
    assert clone.scan().count() == 11
    for each in (again, clone):
        report = each.verify(data=True)
        assert report.ok, report
    assert report.external_files == 1


def test_writers_side_by_side_lose_nothing(table, s3_options):
    def work(number: int) -> None:
        mine = Table.open(table.location, storage_options=s3_options)
        for turn in range(3):
            mine.append(pa.table({"a": [10 * number + turn]}, schema=SCHEMA))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.refresh()
    wanted = sorted(10 * number + turn for number in range(4) for turn in range(3))
    assert table.snapshot.id == 12
    assert sorted(table.scan().to_arrow().column("a").to_pylist()) == wanted
