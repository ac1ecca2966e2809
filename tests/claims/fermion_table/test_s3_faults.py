"""Tables on S3 whose requests fail on their way: busy servers, lost replies, expired credentials.

The failures come from a proxy before moto's server, so the client tries again as it does elsewhere,
only after shorter pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import StorageDenied, StorageError
from fermion.io import remote
from fermion_table import CommitStateUnknown, Table
from fermion_table.storage import fsspec as fsspec_store
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.store import CreateResult
from tests.kit.tables.s3_proxy import LOST_REPLY, SLOW_DOWN, Fault, Proxy
from tests.kit.tables.s3_servers import BUCKET

pytestmark = pytest.mark.long

s3fs = pytest.importorskip("s3fs", reason="the extra s3 and the group dev bring s3fs and moto")
standard = pytest.importorskip("botocore.retries.standard", reason="s3fs brings botocore")

SCHEMA = pa.schema([("a", pa.int64())])
AT_ONCE = timedelta(days=-1)
SLOT, DATA, LOOK = r"PUT .*/snapshot/0", r"PUT .*\.fermion", r"GET .*/snapshot/0"
BEGIN, PART, COMPLETE = r"POST .*\?uploads", r"PUT .*partNumber=2", r"POST .*uploadId="
PARTS = 700_000
"""Rows that are uploaded in two parts."""
EXPIRED = Fault(code="ExpiredToken", status=400)
SKEWED = Fault(code="RequestTimeTooSkewed", status=403)


@pytest.fixture(scope="module")
def proxy(s3_options: dict[str, Any]) -> Iterator[Proxy]:
    with Proxy(s3_options["client_kwargs"]["endpoint_url"]) as running:
        yield running


@pytest.fixture
def options(proxy: Proxy, s3_options: dict[str, Any]) -> dict[str, Any]:
    return {**s3_options, "client_kwargs": {"endpoint_url": proxy.url}}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BACKOFF_S_MIN", 0.001)
    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0.001)
    monkeypatch.setattr("fermion_table.commit.create_if_absent.time.sleep", lambda _: None)


@pytest.fixture
def table(
    options: dict[str, Any], short_probe: None, request: pytest.FixtureRequest
) -> Iterator[Table]:
    """A table of one row; afterwards every version of it can be read."""
    name = request.node.name.replace("[", "-").replace("]", "")
    made = Table.create(f"s3://{BUCKET}/{name}", SCHEMA, storage_options=options)
    made.append(rows(1))
    yield made
    made.refresh()
    assert made.verify(data=True).ok


def rows(count: int) -> pa.Table:
    """Numbers that no encoding makes small: 8 bytes each."""
    return pa.table({"a": np.random.default_rng(count).integers(0, 2**62, count)}, schema=SCHEMA)


def paths(table: Table) -> set[str]:
    return {item.path for item in table.store.list()}


def uploads(table: Table) -> list[str]:
    assert isinstance(table.store, FsspecStore)
    return [upload.path for upload in table.store.unfinished_uploads()]


@pytest.mark.parametrize("fault", [SLOW_DOWN, LOST_REPLY], ids=["busy", "lost"])
def test_what_passes_is_tried_again_and_commits_once(
    table: Table, proxy: Proxy, fault: Fault
) -> None:
    """A lost reply is that of a request which succeeded: the second try finds its own work."""
    for pattern, count in (
        (SLOT, 1), (SLOT, 2), (DATA, 2), (LOOK, 2), (r"PUT .*/LATEST", 1), (COMPLETE, 1),
    ):  # fmt: skip
        appended = rows(PARTS if pattern is COMPLETE else 1)
        before, there = table.snapshot, len(paths(table))
        with proxy.failing(pattern, fault, count) as failed:
            made = table.append(appended)
        assert len(failed) == count
        assert made.id == before.id + 1
        assert made.totals.rows == before.totals.rows + appended.num_rows
        assert len(paths(table)) == there + 2
    assert uploads(table) == []


def test_a_commit_whose_replies_are_lost_more_often_than_clients_try_is_read_back(
    table: Table, proxy: Proxy
) -> None:
    before = table.snapshot.id
    with proxy.failing(SLOT, LOST_REPLY) as failed:
        assert table.append(rows(1)).id == before + 1
    assert len(failed) >= remote.ATTEMPTS
    assert Table.open(table.location, storage_options=table.store.storage_options).snapshot.id == 2


def test_a_server_that_stays_busy_is_given_up_with_what_it_said_and_where(
    table: Table, proxy: Proxy
) -> None:
    for pattern, error, said in (
        (DATA, StorageError, rf"write {table.location}/data/.*SlowDown \(HTTP 503\)"),
        (LOOK, StorageError, rf"look for {table.location}/snapshot/.*SlowDown \(HTTP 503\)"),
        (SLOT, CommitStateUnknown, rf"create {table.location}/snapshot/.*SlowDown \(HTTP 503\)"),
    ):
        with proxy.failing(pattern, SLOW_DOWN) as failed, pytest.raises(error, match=said):
            table.append(rows(1))
        assert len(failed) <= remote.ATTEMPTS * (5 if pattern is SLOT else 1)
        table.refresh()
        assert table.snapshot.id == 1
    with proxy.failing(r"GET .*\.fermion", SLOW_DOWN), pytest.raises(StorageError, match="read s3"):
        table.scan().to_arrow()
    assert table.append(rows(1)).id == 2


def test_a_lost_reply_while_the_storage_is_probed_is_no_verdict(
    options: dict[str, Any], proxy: Proxy, short_probe: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again, and is told that the object is there: nobody seems to create it."""
    monkeypatch.setattr(fsspec_store, "_probed", set())
    location = f"s3://{BUCKET}/probed-without-a-reply"
    with proxy.failing(r"PUT .*/probe/.*-[02]\.tmp", LOST_REPLY, 2) as failed:
        table = Table.create(location, SCHEMA, storage_options=options)
    assert len(failed) == 2
    assert table.append(rows(1)).totals.rows == 1


@pytest.mark.parametrize("fault", [EXPIRED, SKEWED], ids=["expired", "skewed"])
def test_credentials_and_clocks_that_are_refused_are_told_at_once(
    table: Table, proxy: Proxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request each; nothing half visible, and what the writer may delete it deletes."""
    before = paths(table)
    for pattern, where in ((DATA, "data"), (LOOK, "snapshot"), (SLOT, "snapshot")):
        with (
            proxy.failing(pattern, fault) as failed,
            pytest.raises(StorageDenied, match=f"{table.location}/{where}/.*{fault.code}"),
        ):
            table.append(rows(1))
        assert len(failed) == 1
        assert paths(table) == before
    with proxy.failing(PART, fault), pytest.raises(StorageDenied, match=fault.code):
        table.append(rows(PARTS))
    assert paths(table) == before
    assert uploads(table) == []
    with proxy.failing("", fault), pytest.raises(StorageDenied, match=fault.code):
        Table.open(table.location, storage_options=table.store.storage_options)
    assert table.append(rows(1)).id == 2


def test_a_reply_that_breaks_off_is_asked_for_again(table: Table, proxy: Proxy) -> None:
    """As of a gateway that is killed while it answers; clients do not try that again."""
    for pattern, ask in (
        (r"GET .*\.fermion", lambda: table.scan().to_arrow()),
        (LOOK, lambda: Table.open(table.location, storage_options=table.store.storage_options)),
    ):
        with proxy.failing(pattern, Fault(body_bytes=100), 1) as failed:
            ask()
        assert len(failed) == 1
        with proxy.failing(pattern, Fault(body_bytes=100)) as failed:
            with pytest.raises(StorageError, match=r"s3://bucket/.*payload") as raised:
                ask()
            assert "HTTP" not in str(raised.value)
        assert 1 < len(failed) <= 2 * remote.ATTEMPTS


@pytest.mark.parametrize("pattern", [BEGIN, PART, COMPLETE], ids=["begin", "part", "complete"])
def test_uploads_that_are_given_up_leave_nothing(table: Table, proxy: Proxy, pattern: str) -> None:
    before = paths(table)
    denied = Fault(code="AccessDenied", status=403)
    url, options = f"{table.location}/plain.fermion", table.store.storage_options
    for act in (
        lambda: table.append(rows(PARTS)),
        lambda: fermion.write_table(rows(PARTS), url, storage_options=options),
    ):
        with (
            proxy.failing(pattern, denied, 1),
            pytest.raises(StorageDenied, match=rf"write {table.location}/.*\.fermion: .*Denied"),
        ):
            act()
        assert uploads(table) == []
        assert paths(table) == before


def test_uploads_of_killed_writers_are_aborted_with_the_orphan_files(
    table: Table, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """So are those that a lost reply let the client begin twice; others are not touched."""
    store = table.store
    assert isinstance(store, FsspecStore)
    with proxy.failing(BEGIN, LOST_REPLY, 1):
        table.append(rows(PARTS))
    (left,) = uploads(table)
    assert left.startswith("data/")
    folder = table.location.removeprefix(f"s3://{BUCKET}/")
    strange = [f"{folder}/notes.txt", f"{folder}-2/{left}"]
    for key in strange:
        store.filesystem.call_s3("create_multipart_upload", Bucket=BUCKET, Key=key)
    with proxy.failing(r"GET /bucket\?uploads", Fault(code="AccessDenied", status=403)):
        assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    assert "were not completed stay: list uploads of s3://bucket" in caplog.text
    planned = table.remove_orphan_files(older_than=AT_ONCE, dry_run=True)
    assert (planned.paths, planned.files, planned.bytes) == ((left,), 1, 0)
    assert uploads(table) == [left, "notes.txt"]
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == (left,)
    found = store.filesystem.call_s3("list_multipart_uploads", Bucket=BUCKET)["Uploads"]
    assert {each["Key"] for each in found} >= set(strange)
    assert uploads(table) == ["notes.txt"]


def test_uploads_are_listed_page_by_page_and_those_of_running_writers_stay(table: Table) -> None:
    """moto has no pages, and says of every upload that it was begun in 2010."""
    store = table.store
    assert isinstance(store, FsspecStore)
    key = f"{table.location.removeprefix(f's3://{BUCKET}/')}/data/{'0' * 32}.fermion"
    now = {"Key": key, "UploadId": "1", "Initiated": datetime.now(UTC)}
    old = {**now, "UploadId": "2", "Initiated": datetime.now(UTC) - timedelta(days=4)}
    first = {"Uploads": [now], "IsTruncated": True, "NextKeyMarker": "k"}
    real, asked = store._ask, []

    def ask(method: str, *arguments: Any, **keywords: Any) -> Any:
        if arguments[:1] != ("list_multipart_uploads",):
            return real(method, *arguments, **keywords)
        asked.append(keywords.get("KeyMarker"))
        return {"Uploads": [old]} if "KeyMarker" in keywords else first

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_ask", ask)
        assert [upload.id for upload in store.unfinished_uploads()] == ["1", "2"]
        assert asked == [None, "k"]
        assert len(table.remove_orphan_files(dry_run=True).paths) == 1


def test_a_create_is_one_request_however_long(
    table: Table, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ceph's gateway knows the condition of a PUT, and ignores that of an upload in parts."""
    monkeypatch.setattr(s3fs.S3FileSystem._pipe_file, "__defaults__", (5 << 20, None, "overwrite"))
    with proxy.counted() as requests:
        created = table.store.create_if_absent("manifest/large.json", bytes(11 << 20))
    assert created is CreateResult.CREATED
    assert requests == {"PUT": 1}


@pytest.mark.parametrize("act", [Table.open, Table.exists])
def test_a_quota_is_no_denial(table: Table, proxy: Proxy, act: Callable[..., Any]) -> None:
    """Ceph answers 403 for both, without a text."""
    full = Fault(code="QuotaExceeded", status=403)
    with (
        proxy.failing(DATA, full),
        pytest.raises(StorageError, match=rf"{table.location}/data/.*QuotaExceeded") as raised,
    ):
        table.append(rows(1))
    assert not isinstance(raised.value, PermissionError)
    assert act(table.location, storage_options=table.store.storage_options)
