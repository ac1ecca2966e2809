"""Credentials stay out of messages and reprs."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.http import HTTPFileSystem

import fermion
import fermion_table
from fermion.cli.program import main
from fermion.io.remote import http_status, storage_error
from fermion.redaction import as_cause, has_credentials, logger, redacted, redacted_text
from fermion_table import Catalog, Table
from spark_ext.options import absolute

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://u:{SECRET}@host:80/a/b.fermion", "https://host:80/a/b.fermion"),
        (f"https://host/a?X-Amz-Signature={SECRET}&b=1", "https://host/a?..."),
        (f"simplecache::https://u:{SECRET}@host/a", "simplecache::https://host/a"),
        (f"https://{SECRET}@host/a@b", "https://host/a@b"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("abfs://container@account.dfs/a", "abfs://container@account.dfs/a"),
        ("/local/a?b@c", "/local/a?b@c"),
        (f"s3://KEY:{SECRET}/with+slash@bucket/t", "s3://bucket/t"),
        (f"s3://KEY:{SECRET}@bucket/a@b", "s3://bucket/a@b"),
        (f"s3://KEY:{SECRET}", "s3://"),
        (f"s3://KEY%3A{SECRET}%40bucket/t", "s3://bucket/t"),
        (f"abfs://c:{SECRET}@account.dfs/a", "abfs://account.dfs/a"),
        (f"http://u:a::{SECRET}@host/a", "http://host/a"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        (
            "s3://arn:aws:s3:us-west-2:1:accesspoint/a/b@c",
            "s3://arn:aws:s3:us-west-2:1:accesspoint/a/b@c",
        ),
        ("zip://a:b@c::s3://bucket/t", "zip://a:b@c::s3://bucket/t"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
    ],
)
def test_urls_lose_user_info_and_queries(url: str, shown: str):
    """The rest stays; so do local paths."""
    assert redacted(url) == shown
    assert redacted_text(f"{url}: expected 1, found '{url}'") == (
        f"{shown}: expected 1, found '{shown}'"
    )


@pytest.mark.parametrize(
    "url",
    [
        f"s3://KEY:{SECRET}@bucket/t",
        f"s3://KEY:{SECRET}/with+slash@bucket/t",
        f"s3a://{SECRET}@bucket/t",
        f"s3://KEY:{SECRET}",
        f"s3://KEY%3A{SECRET}%40bucket/t",
        f" S3://KEY:{SECRET}@bucket/t",
        f"s3:/KEY:{SECRET}@bucket/t",
        f"simplecache::s3://KEY:{SECRET}@bucket/t",
        f"zip://a.fermion::https://u:{SECRET}@host/a.zip",
        f"gs://KEY:{SECRET}@bucket/t",
        f"https://u:{SECRET}@host/t",
        f"https://{SECRET}@host/t",
        f"http://u:a::{SECRET}@host/t",
        f"hdfs://u:{SECRET}@host:9000/t",
        f"webhdfs://u:{SECRET}@host:9870/t",
        f"abfss://box:{SECRET}@account.dfs.core.windows.net/t",
        f"sftp://u:{SECRET}@host/t",
        f"memory://u:{SECRET}@b/t",
        f"file://u:{SECRET}@host/t",
        f"unknown://u:{SECRET}/x@host/t",
    ],
)
def test_a_location_with_credentials_is_refused_before_any_client_sees_it(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    """Neither the message nor the traceback, with all causes, shows them."""
    data = pa.table({"a": [1]})
    monkeypatch.setattr(fsspec.core, "url_to_fs", None)
    for call in (
        lambda: fermion.open(url),
        lambda: fermion.write_table(data, url),
        lambda: fermion.Writer(url, data.schema),
        lambda: fermion.from_parquet(url, "a.fermion"),
        lambda: fermion.to_parquet(url, "a.parquet"),
        lambda: fermion.drop_columns(url, ["a"]),
        lambda: Table.exists(url),
        lambda: Table.create(url, data.schema),
        lambda: Table.open(url),
        lambda: fermion_table.drop_table(url),
        lambda: fermion_table.repair_table(url),
        lambda: Catalog.open(url),
        lambda: Catalog.open("warehouse").register_table("t", url),
        lambda: absolute(url),
    ):
        with pytest.raises(fermion.InvalidArgumentError, match="storage_options") as refused:
            call()
        error = refused.value
        shown = "".join(traceback.format_exception(error))
        assert SECRET not in shown + repr(error) + str(error.args)
        assert error.__cause__ is None
        assert error.__context__ is None


def test_a_path_that_was_a_url_with_credentials_is_refused_too():
    """`pathlib` leaves one slash, with which it would be a path here."""
    path = Path(f"s3://KEY:{SECRET}/x@bucket/t")
    for call in (fermion.open, Table.open, Table.exists, Catalog.open, absolute):
        with pytest.raises(fermion.InvalidArgumentError, match="s3:/bucket/t") as refused:
            call(path)  # type: ignore[operator]
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "hdfs://user@host:9000/t", "webhdfs://user@host/t", "sftp://user@host/t",
        "abfss://box@account.dfs.core.windows.net/t", "s3://bucket/a:b@c", "http://host:80/a@b",
        "http://[::1]:80/a@b", "s3://arn:aws:s3:us-west-2:1:accesspoint/a/b@c",
        "zip://a:b@c::s3://bucket/t", "github://org:repository@main/a", "memory://a/b:c@d",
        "file:///data/u:p@host", "simplecache::/data/a:b@c", "/data/a:b@c",
        "at10:30:15@host.fermion", "C:\\u:p@host",
    ],
)  # fmt: skip
def test_a_user_a_container_or_a_path_before_an_at_is_no_credential(url: str):
    assert not has_credentials(url)


def test_the_commands_refuse_credentials_and_do_not_show_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    url = f"s3://KEY:{SECRET}/x@bucket/t"
    monkeypatch.setattr(fsspec.core, "url_to_fs", None)
    for command in (
        ["inspect"], ["schema"], ["head"], ["stats"], ["verify"], ["table", "show"],
        ["table", "log"], ["table", "scan"], ["table", "verify"], ["table", "repair"],
        ["catalog", "list"],
    ):  # fmt: skip
        assert main([*command, url]) == 2
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        assert "expected a location without credentials" in said.err
    assert main(["convert", url, "a.fermion"]) == 2
    assert SECRET not in capsys.readouterr().err


@pytest.mark.usefixtures("no_kept_clients")
@pytest.mark.parametrize("status", [403, 404, 418])
def test_no_traceback_shows_a_signature_that_a_client_names(
    monkeypatch: pytest.MonkeyPatch, status: int
):
    """The client's error, and what that came from, are left out; what they say counts still."""
    url = f"https://host/a.fermion?X-Amz-Signature={SECRET}"

    def cat_file(self: Any, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        if status == 404:
            raise FileNotFoundError(path)
        try:
            raise ValueError(f"GET {path}")
        except ValueError as error:
            failed = OSError("no")
            failed.status = status  # type: ignore[attr-defined]
            raise failed from error

    monkeypatch.setattr(HTTPFileSystem, "cat_file", cat_file)
    with pytest.raises(OSError) as raised:
        fermion.open(url)
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert isinstance(raised.value, FileNotFoundError) == (status == 404)
    assert isinstance(raised.value, fermion.StorageDenied) == (status == 403)
    if status != 404:
        assert http_status(raised.value) == status


def test_a_cause_that_shows_nothing_secret_stays():
    harmless = OSError("https://host/a: 503")
    assert as_cause(harmless) is harmless
    for secret in (f"KEY:{SECRET}@bucket", f"/webhdfs/v1/t?op=OPEN&delegation={SECRET}"):
        assert as_cause(OSError(f"'{secret}' failed")) is None
        assert SECRET not in str(storage_error("read", "s3://b/k", OSError(f"'{secret}' failed")))
        wrapper = OSError("no")
        wrapper.__cause__ = ValueError(secret)
        assert as_cause(wrapper) is None


@pytest.mark.parametrize(
    "kind",
    [fermion.FermionError, fermion.InvalidFileError, fermion.ColumnNotFoundError],
)
def test_no_error_shows_credentials_of_a_url(kind: type[fermion.FermionError]):
    """In its text, its repr, its arguments and its pickle."""
    error = kind(f"https://u:{SECRET}@host/a?sig={SECRET}: 3 bytes, expected 4")
    assert "https://host/a?...: 3 bytes, expected 4" in str(error)
    for shown in (str(error), repr(error), str(error.args), str(pickle.dumps(error))):
        assert SECRET not in shown


@pytest.fixture
def no_kept_clients() -> Iterator[None]:
    """No client made while a method of its class is replaced stays for the tests that follow."""
    HTTPFileSystem.clear_instance_cache()
    yield
    HTTPFileSystem.clear_instance_cache()


@pytest.mark.usefixtures("no_kept_clients")
def test_no_repr_of_a_file_shows_credentials(monkeypatch: pytest.MonkeyPatch):
    """Of its reader, of its errors, and of a damaged one; read through an HTTP address."""
    sink = io.BytesIO()
    fermion.write_table(pa.table({"a": [1]}), sink)
    stored = sink.getvalue()

    def cat_file(self: Any, url: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        return stored[start:end]

    monkeypatch.setattr(HTTPFileSystem, "cat_file", cat_file)
    url = f"https://host/a.fermion?signature={SECRET}"
    with fermion.open(url, storage_options={"client_kwargs": {"headers": {"k": SECRET}}}) as file:
        assert file.read().to_pylist() == [{"a": 1}]
        shown = [repr(file), str(file), repr(file.verify()), repr(file.index.source.source)]
        with pytest.raises(fermion.ColumnNotFoundError) as missing:
            file.read(["b"])
        shown.append(str(missing.value))
    with pytest.raises(fermion.InvalidArgumentError) as closed:
        file.read()
    shown.append(str(closed.value))
    stored = stored[:-40] + bytes(40)
    with pytest.raises(fermion.FermionError) as damaged:
        fermion.open(url)
    shown.append(str(damaged.value))
    assert not [each for each in shown if SECRET in each]
    assert "https://host/a.fermion?..." in shown[0]


def test_no_log_message_shows_credentials(caplog: pytest.LogCaptureFixture):
    """Neither of its text, nor of its arguments, nor of an error among them; others stay."""
    log = logger("fermion.test_redaction")
    assert logger("fermion.test_redaction").filters == log.filters
    with caplog.at_level(logging.INFO):
        url = f"https://u:{SECRET}@host/a?sig={SECRET}"
        log.warning("%s: snapshot %d: %s", url, 5, OSError(f"GET '{url}' failed"))
        log.info(f"of {url}")
        log.info("no arguments, 100 %")
    assert SECRET not in caplog.text
    assert [record.getMessage() for record in caplog.records] == [
        "https://host/a?...: snapshot 5: GET 'https://host/a?...' failed",
        "of https://host/a?...",
        "no arguments, 100 %",
    ]
    assert all(SECRET not in str(vars(record)) for record in caplog.records)


def test_all_modules_log_through_the_redaction():
    """Their sources take no logger of their own."""
    for package in ("fermion", "fermion_table", "spark_ext"):
        for path in Path(package).rglob("*.py"):
            if path.name != "redaction.py":
                assert "getLogger(" not in path.read_text(encoding="utf-8"), path


def test_loggers_are_copied_and_pickled_by_name(caplog):
    for log in (
        copy.deepcopy(logger("fermion.a")),
        pickle.loads(pickle.dumps(logger("fermion.a"))),
    ):
        log.warning("at %s", "https://u:secret@h/x")
    assert [each.message for each in caplog.records] == ["at https://h/x"] * 2
