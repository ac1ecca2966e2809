"""What tests of the table layer share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermion_table.commit import manifest_plan
from fermion_table.storage import probe as storage_probe
from tests.fermion_table.crash_operations import Signaller, make_keyed_table, make_table

S3_REASON = "the extra s3 and the group dev bring s3fs and moto"


@pytest.fixture(scope="module")
def small_tail() -> Iterator[None]:
    """A commit of four files is enough for a manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_plan, "INLINE_ENTRIES_MAX", 3)
        yield


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """Storage options of moto's server, in threads of this process, with the bucket "bucket"."""
    s3fs = pytest.importorskip("s3fs", reason=S3_REASON)
    moto = pytest.importorskip("moto.server", reason=S3_REASON)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"},
    }
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="bucket")
    yield options
    server.stop()


@pytest.fixture
def short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is known to be careful is raced for one object rather than for many."""
    monkeypatch.setattr(storage_probe, "PROBE_KEYS", 1)


@pytest.fixture(scope="session")
def signaller(project_environment: dict[str, str]) -> Iterator[Signaller]:
    """Runs operations in processes that get a signal."""
    signaller = Signaller(project_environment)
    yield signaller
    signaller.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table for those operations, to be copied."""
    path = tmp_path_factory.mktemp("template") / "table"
    make_table(path)
    return path


@pytest.fixture(scope="session")
def keyed_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A primary-key table for those operations, to be copied."""
    path = tmp_path_factory.mktemp("template") / "keyed"
    make_keyed_table(path)
    return path
