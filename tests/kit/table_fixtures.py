"""Fixtures of tests of tables and catalogs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fermion_table import Catalog
from fermion_table.commit import next_snapshot
from fermion_table.storage import owned_files
from fermion_table.storage import probe as storage_probe
from tests.kit.golden_archives import unpack
from tests.kit.stores import delete_unless_dead
from tests.kit.tables.crash_operations import Signaller, make_keyed_table, make_table
from tests.kit.tables.s3_servers import make_bucket
from tests.kit.tables.warehouses import SCHEMA, rows

UNRAISABLE = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
S3_REASON = "the extra s3 and the group dev bring s3fs and moto"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What nobody is told of fails tests of tables: an exception in a finalizer."""
    for item in items:
        if "fermion_table" in item.path.parts:
            item.add_marker(UNRAISABLE)


@pytest.fixture(scope="session", autouse=True)
def crashes_in_finalizers() -> Iterator[None]:
    """Writers of a process that a test lets die are lost with it, and their finalizers run here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_files, "_delete_own", delete_unless_dead)
        yield


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[Path, str], Path]:
    """Unpacks a golden table of a folder, by its name, and returns where it lies."""
    return lambda folder, name: unpack(folder, name, tmp_path)


@pytest.fixture(scope="module")
def small_tail() -> Iterator[None]:
    """A commit of four files is enough for a manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 3)
        yield


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """Storage options of moto's server, in a thread of this process, with the bucket "bucket".

    It answers one request at a time: with threads it looks for an object and then stores it, and
    two writers win the same slot.
    """
    pytest.importorskip("s3fs", reason=S3_REASON)
    moto = pytest.importorskip("moto.server", reason=S3_REASON)
    serving = pytest.importorskip("werkzeug.serving", reason=S3_REASON)
    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    server = serving.make_server("127.0.0.1", 0, application, threaded=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{server.port}"},
    }
    make_bucket(options)
    yield options
    server.shutdown()
    thread.join()
    server.server_close()


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


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Of an empty warehouse."""
    return Catalog.open(tmp_path / "warehouse", durability="fast")


@pytest.fixture
def two(catalog: Catalog) -> Catalog:
    """A catalog with the tables ``a`` and ``db.b``, which have a row each."""
    for name in ("a", "db.b"):
        catalog.create_table(name, SCHEMA).append(rows(1))
    return catalog
