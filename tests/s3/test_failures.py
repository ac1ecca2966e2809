"""Ceph's gateway killed, stopped and refusing: success or an error with the path, and no more."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.errors import StorageDenied, StorageError, StorageTimeout
from fermion_table import CommitStateUnknown, StorageAccess, Table
from tools.ceph.cluster import BUCKET

pytestmark = pytest.mark.services

SCHEMA = pa.schema([("a", pa.int64())])
AT_ONCE = timedelta(days=-1)
PARTS = 700_000
"""Rows that are uploaded in two parts."""
QUICK = StorageAccess(timeout_s=3)
KILLED = """
import json, os, signal, sys
import numpy as np, pyarrow as pa
from fermion_table import Table
from s3fs.core import S3File
real = S3File._call_s3
def call(self, method, *arguments, **keywords):
    if method == "complete_multipart_upload":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, method, *arguments, **keywords)
S3File._call_s3 = call
table = Table.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))
table.append(pa.table({"a": np.random.default_rng(1).integers(0, 2**62, 700_000)}))
"""


@pytest.fixture
def options(ceph_cluster):
    return ceph_cluster.options()


@pytest.fixture
def table(ceph_folder, options):
    made = Table.create(ceph_folder, SCHEMA, storage_options=options)
    made.append(numbers(10))
    return made


def numbers(rows: int, seed: int = 0) -> pa.Table:
    """Numbers that no encoding makes small: 8 bytes each."""
    drawn = np.random.default_rng(seed).integers(0, 2**62, rows)
    return pa.table({"a": drawn}, schema=SCHEMA)


def files(table: Table) -> set[str]:
    return {item.path for item in table.store.list()}


def refused(table: Table, act: Callable[[], Any], expected: type[OSError], text: str) -> None:
    """An action fails with an error that names the table, which stays as it was."""
    with pytest.raises(expected, match=text) as caught:
        act()
    assert table.location in str(caught.value)


def appended(table: Table, outcome: list[Any]) -> threading.Thread:
    def append() -> None:
        try:
            outcome.append(table.append(numbers(10)).id)
        except Exception as error:  # noqa: BLE001 - looked at below
            outcome.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    return thread


@pytest.mark.parametrize("comes_back", [True, False])
def test_the_gateway_is_killed_while_a_file_is_written(
    ceph_folder, ceph_cluster, options, comes_back
):
    """Right before the third part; the client tries for some seconds."""
    path, data = f"{ceph_folder}/x.fermion", [numbers(PARTS, seed) for seed in range(4)]

    def write() -> None:
        settings = fermion.WriteOptions(stripe_rows=PARTS)
        with fermion.Writer(path, SCHEMA, options=settings, storage_options=options) as writer:
            for number, part in enumerate(data):
                if number == 2:
                    ceph_cluster.kill("gateway")
                    if comes_back:
                        ceph_cluster.start_gateway()
                writer.write(part)

    if comes_back:
        write()
        found = fermion.read_table(path, storage_options=options)
        assert found.equals(pa.concat_tables(data))
    else:
        with pytest.raises(StorageError, match=path):
            write()
        ceph_cluster.start_gateway()
        with pytest.raises(FileNotFoundError):
            fermion.read_table(path, storage_options=options)


@pytest.mark.parametrize("comes_back", [True, False])
def test_the_gateway_is_killed_while_a_file_is_read(ceph_folder, ceph_cluster, options, comes_back):
    path, data = f"{ceph_folder}/x.fermion", numbers(2 * PARTS)
    fermion.write_table(data, path, stripe_rows=PARTS // 2, storage_options=options)
    with fermion.open(path, storage_options=options) as file:
        batches = file.iter_batches()
        found = [next(batches)]
        ceph_cluster.kill("gateway")
        if not comes_back:
            with pytest.raises(StorageError, match=path):
                list(batches)
            ceph_cluster.start_gateway()
            found, batches = [], file.iter_batches()
        else:
            ceph_cluster.start_gateway()
        found += batches
    assert pa.Table.from_batches(found).equals(data)


def test_the_gateway_is_restarted_during_a_commit(table, ceph_cluster, options):
    ceph_cluster.kill("gateway")
    outcome: list[Any] = []
    waiting = appended(table, outcome)
    ceph_cluster.start_gateway()
    waiting.join()
    again = Table.open(table.location, storage_options=options)
    if isinstance(outcome[0], Exception):
        assert isinstance(outcome[0], (StorageError, CommitStateUnknown)), repr(outcome[0])
        assert table.location in str(outcome[0])
    else:
        assert again.snapshot.id == outcome[0]
    assert again.scan().to_arrow().num_rows == 10 * again.snapshot.id
    again.append(numbers(10))
    assert again.verify(data=True).ok


def test_a_gateway_that_does_not_answer_is_given_up(table, ceph_cluster, options):
    ceph_cluster.signal("gateway", signal.SIGSTOP)
    try:
        with pytest.raises(StorageTimeout, match=table.location):
            Table.open(table.location, storage_options=options, access=QUICK)
    finally:
        ceph_cluster.signal("gateway", signal.SIGCONT)
    table.append(numbers(10))
    assert Table.open(table.location, storage_options=options).scan().count() == 20


def test_who_has_no_right_or_no_key_any_more_is_told_so(table, ceph_cluster, options):
    guest = ceph_cluster.add_user("guest")
    theirs = ceph_cluster.options(guest)
    for act in (
        lambda: Table.open(table.location, storage_options=theirs),
        lambda: fermion.write_table(numbers(PARTS), f"{table.location}/x", storage_options=theirs),
    ):
        refused(table, act, StorageDenied, "AccessDenied")
    read = {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/guest"]}}
    read |= {"Action": ["s3:GetObject", "s3:ListBucket"]}
    read |= {"Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]}
    policy = str({"Version": "2012-10-17", "Statement": [read]}).replace("'", '"')
    client = ceph_cluster.s3()
    client.put_bucket_policy(Bucket=BUCKET, Policy=policy)
    try:
        before = files(table)
        opened = Table.open(table.location, storage_options=theirs)
        assert opened.scan().to_arrow().num_rows == 10
        refused(table, lambda: opened.append(numbers(10)), StorageDenied, "AccessDenied")
        ceph_cluster.remove_key(guest)
        refused(table, lambda: opened.append(numbers(10)), StorageDenied, "InvalidAccessKeyId")
        refused(table, lambda: opened.scan().to_arrow(), StorageDenied, "InvalidAccessKeyId")
        assert files(table) == before
    finally:
        client.delete_bucket_policy(Bucket=BUCKET)


def test_a_full_quota_refuses_and_leaves_nothing(table, ceph_cluster, options):
    before = files(table)
    with ceph_cluster.quota(BUCKET, 1):
        refused(table, lambda: table.append(numbers(10)), StorageError, "QuotaExceeded")
        refused(table, lambda: table.append(numbers(PARTS)), StorageError, "QuotaExceeded")
        with pytest.raises(StorageError, match="QuotaExceeded") as caught:
            table.append(numbers(10))
        assert not isinstance(caught.value, PermissionError)
    assert files(table) == before
    assert list(table.store.unfinished_uploads()) == []
    table.append(numbers(10))
    assert Table.open(table.location, storage_options=options).scan().count() == 20


@pytest.mark.parametrize("minutes", [-20, 20])
def test_a_clock_that_is_off_is_refused(table, options, monkeypatch, minutes):
    """Whoever's clock is so far off can neither commit nor expire; an hour later it can."""
    auth = pytest.importorskip("botocore.auth", reason="s3fs brings botocore")

    def wrong(remove_tzinfo: bool = True) -> datetime:
        moment = datetime.now(UTC) + timedelta(minutes=minutes)
        return moment.replace(tzinfo=None) if remove_tzinfo else moment

    before = files(table)
    with monkeypatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", wrong)
        for act in (
            lambda: table.append(numbers(10)),
            lambda: table.expire_snapshots(older_than=AT_ONCE, retain_last=1),
            lambda: table.remove_orphan_files(older_than=AT_ONCE),
            lambda: Table.open(table.location, storage_options=options),
        ):
            refused(table, act, StorageDenied, "RequestTimeTooSkewed")
    assert files(table) == before
    assert table.append(numbers(10)).id == 2


def test_the_parts_that_a_killed_writer_uploaded_are_deleted(table, options, project_environment):
    """Not while a running writer may own them."""
    before = files(table)
    command = [sys.executable, "-c", KILLED, table.location, json.dumps(options)]
    done = subprocess.run(command, env=project_environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert files(table) - before <= {"probe/verdict.json"}
    (left,) = table.store.unfinished_uploads()
    assert table.remove_orphan_files().paths == ()
    assert table.remove_orphan_files(older_than=timedelta(seconds=-60)).paths == (left.path,)
    assert list(table.store.unfinished_uploads()) == []
    assert table.append(numbers(10)).id == 2
