"""Tables on HDFS: through fsspec's WebHDFS, against a small server on the loopback interface."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest

from fermion_table import Table, UnsafeStorage
from fermion_table.storage import probe as storage_probe
from fermion_table.storage import rename_create
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.store import CreateResult
from tests.kit.tables.webhdfs_server import WebHdfsServer

pytest.importorskip("requests", reason="fsspec's WebHDFS needs requests; the group dev brings it")

SCHEMA = pa.schema([("a", pa.int64())])


@pytest.fixture
def server(monkeypatch):
    """A server of its own for each test, raced for fewer keys than a cluster would be."""
    monkeypatch.setattr(storage_probe, "PROBE_KEYS", 4)
    server = WebHdfsServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_slot_has_one_winner_and_temporary_files_go(server):
    store = FsspecStore(f"{server.url}/t")
    with ThreadPoolExecutor(8) as executor:
        for key in range(5):
            path = f"snapshot/{key:020d}.json"
            contents = [b"%d" % number for number in range(8)]
            results = list(executor.map(store.create_if_absent, [path] * 8, contents))
            assert results.count(CreateResult.CREATED) == 1
            assert results.count(CreateResult.EXISTS) == 7
            assert store.read(path) == contents[results.index(CreateResult.CREATED)]
    assert not [path for path in server.files if path.endswith(".tmp")]


def test_a_cluster_that_overwrites_is_refused(server):
    server.renames_overwrite = True
    with pytest.raises(UnsafeStorage, match="told that they created the same file"):
        Table.create(f"{server.url}/t", SCHEMA)
    assert not [path for path in server.files if "/snapshot/" in path]


def test_a_lost_reply_is_unknown_and_a_refusal_without_a_cause_an_error(server, monkeypatch):
    store = FsspecStore(f"{server.url}/t")
    filesystem = store.filesystem
    real = filesystem._call

    def lost(op, *arguments, **keywords):
        reply = real(op, *arguments, **keywords)
        if op == "RENAME":
            raise ConnectionError("the line is gone")
        return reply

    monkeypatch.setattr(filesystem, "_call", lost)
    create = rename_create.create_by_rename
    assert create(filesystem, "/t/a", b"1") is CreateResult.UNKNOWN
    assert server.files["/t/a"][0] == b"1"
    monkeypatch.setattr(filesystem, "_call", real)
    assert create(filesystem, "/t/a", b"2") is CreateResult.EXISTS
    monkeypatch.setattr(server, "do_rename", lambda *arguments: {"boolean": False}, raising=False)
    with pytest.raises(OSError, match="refused to rename"):
        create(filesystem, "/t/b", b"3")


def test_rows_versions_and_maintenance_work_as_on_disk(server):
    url = f"{server.url}/warehouse/t"
    table = Table.create(url, SCHEMA)
    for start in range(0, 9, 3):
        table.append(pa.table({"a": range(start, start + 3)}, schema=SCHEMA))
    table.tags.create("before")
    table.delete("a = 4")
    assert table.compact().files_after == 1
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.remove_orphan_files()
    again = Table.open(url)
    assert again.scan(filter="a >= 3").to_arrow().column("a").to_pylist() == [3, 5, 6, 7, 8]
    assert again.scan(tag="before").count() == 9
    report = again.verify(data=True)
    assert report.ok, report


def test_writers_side_by_side_lose_nothing(server):
    url = f"{server.url}/t"
    Table.create(url, SCHEMA)

    def work(number: int) -> None:
        mine = Table.open(url)
        for turn in range(3):
            mine.append(pa.table({"a": [10 * number + turn]}, schema=SCHEMA))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Table.open(url).scan().to_arrow().column("a").to_pylist()
    assert sorted(found) == sorted(10 * number + turn for number in range(3) for turn in range(3))
