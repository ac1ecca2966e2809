"""Credentials stay out of messages and reprs."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.http import HTTPFileSystem

import fermion
from fermion.redaction import logger, redacted, redacted_text

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
    ],
)
def test_urls_lose_user_info_and_queries(url: str, shown: str):
    """The rest stays; so do local paths."""
    assert redacted(url) == shown
    assert redacted_text(f"{url}: expected 1, found '{url}'") == (
        f"{shown}: expected 1, found '{shown}'"
    )


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
    url = f"https://u:{SECRET}@host/a.fermion?signature={SECRET}"
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
