"""Servers of HDFS that fail, and refusals: success, or an error with the path, nothing between."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.errors import StorageDenied, StorageError, StorageTimeout
from fermion_table import StorageAccess, Table
from tools.hdfs.cluster import Cluster

pytestmark = pytest.mark.services

SCHEMA = pa.schema([("a", pa.int64())])
ROWS = 200_000
QUICK = StorageAccess(timeout_s=3)


def numbers(seed: int = 0, rows: int = ROWS) -> pa.Table:
    """Numbers that no encoding makes small: 8 bytes each."""
    drawn = np.random.default_rng(seed).integers(0, 2**62, rows)
    return pa.table({"a": drawn}, schema=SCHEMA)


def files(table: Table) -> set[str]:
    return {item.path for item in table.store.list()}


def being_written(cluster: Cluster) -> set[str]:
    """The DataNodes that have a replica of a block that is not complete."""
    replicas = cluster.folder.glob("**/rbw/blk_*.meta")
    return {path.relative_to(cluster.folder).parts[0] for path in replicas}


def with_rows(folder: str) -> Table:
    table = Table.create(folder, SCHEMA)
    table.append(numbers(rows=10))
    return table


def refused(table: Table, expected: type[OSError], text: str) -> None:
    """An append fails with an error that names the table, and leaves it as it was."""
    before, rows = files(table), table.scan().count()
    with pytest.raises(expected, match=text) as caught:
        table.append(numbers(rows=10))
    assert table.location in str(caught.value)
    again = Table.open(table.location)
    assert again.scan().to_arrow().num_rows == rows
    left = files(again) - before
    assert not [path for path in left if path.startswith(("snapshot", "manifest"))], left


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_datanode_dies_while_a_file_is_written(hdfs_folder, hdfs_cluster, goes_on):
    """Of three, so that none can take its place: the client's setting says whether two will do."""
    path, data = f"{hdfs_folder}/x.fermion", [numbers(seed) for seed in range(8)]
    options = fermion.WriteOptions(stripe_rows=ROWS // 2, block_bytes=64 << 20)
    settings = {"dfs.client.block.write.replace-datanode-on-failure.best-effort": goes_on}

    def write() -> None:
        writer = fermion.Writer(path, SCHEMA, options=options, storage_options=settings)
        with writer:
            for number, part in enumerate(data):
                if number == 4:
                    assert len(being_written(hdfs_cluster)) == 3
                    hdfs_cluster.kill("datanode0")
                writer.write(part)
                with pytest.raises(FileNotFoundError):
                    fermion.read_table(path)

    if goes_on:
        write()
        assert fermion.read_table(path).equals(pa.concat_tables(data))
    else:
        with pytest.raises(StorageError, match=path):
            write()
        table = with_rows(f"{hdfs_folder}/t")
        assert table.store.filesystem.find(f"/{hdfs_folder.rpartition('/')[2]}", maxdepth=1) == []


def test_small_files_are_written_again_when_a_datanode_has_just_died(hdfs_folder, hdfs_cluster):
    table = with_rows(hdfs_folder)
    hdfs_cluster.kill("datanode0")
    table.append(numbers(rows=10))
    assert Table.open(hdfs_folder).scan().to_arrow().num_rows == 20


def test_a_datanode_dies_while_a_file_is_read(hdfs_folder, hdfs_cluster):
    path, data = f"{hdfs_folder}/x.fermion", numbers(rows=4 * ROWS)
    fermion.write_table(data, path, stripe_rows=ROWS)
    with fermion.open(path) as file:
        batches = file.iter_batches()
        found = [next(batches)]
        hdfs_cluster.kill("datanode1")  # one: a block may have two replicas for a while
        found += batches
    assert pa.Table.from_batches(found).equals(data)


def test_the_namenode_is_restarted_between_calls_and_during_a_commit(hdfs_folder, hdfs_cluster):
    table = with_rows(hdfs_folder)
    hdfs_cluster.kill("namenode")
    outcome: list[object] = []

    def append() -> None:
        try:
            outcome.append(table.append(numbers(rows=10)).id)
        except Exception as error:  # noqa: BLE001 - looked at below
            outcome.append(error)

    waiting = threading.Thread(target=append)
    waiting.start()
    hdfs_cluster.start_name_node()
    waiting.join()
    again = Table.open(hdfs_folder)
    if isinstance(outcome[0], Exception):
        assert isinstance(outcome[0], StorageError), repr(outcome[0])
        assert hdfs_folder in str(outcome[0])
    else:
        assert again.snapshot.id == outcome[0]
    assert again.scan().to_arrow().num_rows == 10 * again.snapshot.id
    again.append(numbers(rows=10))
    assert Table.open(hdfs_folder).verify(data=True).ok


def test_a_namenode_that_does_not_answer_is_given_up(hdfs_folder, hdfs_cluster):
    table = with_rows(hdfs_folder)
    hdfs_cluster.signal("namenode", signal.SIGSTOP)
    try:
        with pytest.raises(StorageTimeout, match=hdfs_folder):
            Table.open(hdfs_folder, access=QUICK)
    finally:
        hdfs_cluster.signal("namenode", signal.SIGCONT)
    table.append(numbers(rows=10))
    assert Table.open(hdfs_folder).scan().count() == 20


def test_safe_mode_refuses_writes_and_serves_reads(hdfs_folder, hdfs_cluster):
    table = with_rows(hdfs_folder)
    hdfs_cluster.admin("-safemode", "enter")
    try:
        refused(table, StorageError, "safe mode")
    finally:
        hdfs_cluster.admin("-safemode", "leave")
    table.append(numbers(rows=10))


def test_who_has_no_right_is_told_so(hdfs_folder, monkeypatch):
    table = with_rows(hdfs_folder)
    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    options = {"dfs.client.test": "another client"}
    guest = Table.open(hdfs_folder, storage_options=options)
    assert guest.scan().to_arrow().num_rows == 10
    refused(guest, StorageDenied, "Permission denied: user=mallory")
    table.store.filesystem.client.set_permission(f"/{hdfs_folder.rpartition('/')[2]}", 0o700)
    with pytest.raises(StorageDenied, match=hdfs_folder):
        Table.open(hdfs_folder, storage_options=options)
    with pytest.raises(StorageDenied, match=hdfs_folder):
        fermion.write_table(numbers(rows=3), f"{hdfs_folder}/x", storage_options=options)


@pytest.mark.parametrize("quota", ["-setSpaceQuota", "-setQuota"])
def test_a_full_quota_refuses_and_leaves_nothing(hdfs_folder, hdfs_cluster, quota):
    table = with_rows(hdfs_folder)
    path = f"/{hdfs_folder.rpartition('/')[2]}"
    hdfs_cluster.admin(quota, "1", path)
    try:
        refused(table, StorageError, "QuotaExceeded")
        before = files(table)
        with pytest.raises(StorageError, match=f"{path}/x.fermion"):
            fermion.write_table(numbers(), f"{hdfs_folder}/x.fermion")
        assert files(table) == before
    finally:
        hdfs_cluster.admin(quota.replace("set", "clr"), path)
    table.append(numbers(rows=10))
    assert Table.open(hdfs_folder).scan().count() == 20


@pytest.mark.parametrize(
    ("options", "error"),
    [({"user": "x"}, ValueError), ({"dfs.client.use": []}, TypeError)],
)
def test_wrong_storage_options_are_named(hdfs_folder, options, error):
    with pytest.raises(error, match=next(iter(options))):
        Table.open(hdfs_folder, storage_options=options)


@pytest.mark.parametrize(
    "act",
    [
        lambda url: fermion.read_table(f"{url}/missing"),
        lambda url: fermion.open(f"{url}/missing/too"),
        lambda url: Table.open(url).scan().to_arrow(),
    ],
)
def test_what_is_missing_is_missing(hdfs_folder, act: Callable[[str], object]):
    with pytest.raises((FileNotFoundError, fermion.FermionError)):
        act(hdfs_folder)
