"""Local disks that are full, over quota or read-only: errors of ours, and nothing half-written."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion.errors import StorageDenied, StorageError
from fermion.io import sink
from fermion_table import Catalog, CommitStateUnknown, Table
from fermion_table.storage import local
from fermion_table.storage.local import LocalStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


class FailingDisk:
    """Lets the n-th call that changes the disk fail; what deletes files goes on working."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = errno.ENOSPC
        self.left = 10**9
        for name in ("fsync", "link", "replace", "mkdir", "write"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))
        for module in (local, sink):
            monkeypatch.setattr(module, "open", self._open, raising=False)

    def fail_at(self, number: int, code: int) -> None:
        """Let the call of this number fail, counted from now on."""
        self.left, self.code = number, code

    @property
    def has_failed(self) -> bool:
        """Whether that call was made."""
        return self.left <= 0

    def count(self) -> None:
        """One more call."""
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.count()
            return call(*arguments, **named)

        return counted

    def _open(self, path: Any, mode: str, *arguments: Any, **named: Any) -> Any:
        if "x" not in mode:
            return open(path, mode, *arguments, **named)
        self.count()
        return _File(open(path, mode, *arguments, **named), self)


class _File:
    """A file on such a disk: a call of `write` that fails has written half of its bytes."""

    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        try:
            self._disk.count()
        except OSError:
            self._file.write(memoryview(data)[: len(data) // 2])
            raise
        return int(self._file.write(data))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(monkeypatch)


def failure_of(call: Callable[[], Any]) -> StorageError | CommitStateUnknown | None:
    """How a call ended."""
    try:
        call()
    except (StorageError, CommitStateUnknown) as error:
        return error
    return None


def made(path: Path, **definition: Any) -> Table:
    table = Table.create(path, SCHEMA, **definition)
    table.append({"k": range(5), "v": range(5)})
    table.append({"k": range(5, 10), "v": range(5, 10)})
    return table


def rows_of(path: Path) -> list[tuple[int, int]]:
    found = Table.open(path).scan().to_arrow()
    return sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def files_of(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append({"k": [10], "v": [10]}),
    "overwrite": lambda t: t.overwrite({"k": [10], "v": [10]}, filter="k < 5"),
    "delete": lambda t: t.delete("k = 3"),
    "update": lambda t: t.update("k = 4", {"v": 104}),
    "compaction": lambda t: t.compact(threads=1),
    "schema": lambda t: t.add_columns({"w": pa.int64()}),
    "filled columns": lambda t: t.fill_columns({"k": [3], "v": [-3]}, on="k"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_full_disk_is_told_with_its_path_and_leaves_the_table_as_it_was(
    tmp_path: Path, disk: FailingDisk, name: str
) -> None:
    """Each call that writes fails once, each time with another code."""
    made(tmp_path / "t")
    before = rows_of(tmp_path / "t")
    failures = 0
    for number in range(1, 200):
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "t", path)
        table = Table.open(path)
        code = CODES[number % len(CODES)]
        old = files_of(path)
        disk.fail_at(number, code)
        error = failure_of(lambda table=table: OPERATIONS[name](table))
        failed, disk.left = disk.has_failed, 10**9
        if isinstance(error, StorageError):
            failures += 1
            assert error.errno == code
            assert str(error) == f"{error.operation} {error.url}: {os.strerror(code)}"
            assert error.url.startswith(str(path))
            assert ".tmp" not in error.url
            assert isinstance(error, StorageDenied) == (code == errno.EACCES)
            assert files_of(path) == old
            assert rows_of(path) == before
        elif error is not None:  # created, but perhaps not durable
            assert f"{path}/snapshot/" in str(error)
            assert os.strerror(code) in str(error)
        assert Table.open(path).verify(data=True).ok
        if not failed:
            break
        if isinstance(error, StorageError):
            OPERATIONS[name](Table.open(path))
        assert Table.open(path).snapshot.id == 3
        shutil.rmtree(path)
    assert failures > 3


@pytest.mark.parametrize("code", CODES)
def test_a_table_that_can_t_be_created_tells_its_path(
    tmp_path: Path, disk: FailingDisk, code: int
) -> None:
    for number in range(1, 100):
        path = tmp_path / f"t{number}"
        disk.fail_at(number, code)
        error = failure_of(lambda path=path: Table.create(path, SCHEMA))
        if isinstance(error, StorageError):
            assert error.errno == code
            assert str(error).startswith(f"{error.operation} {tmp_path}")
            assert not list(path.rglob("*.json*"))
        if not disk.has_failed:
            return
    raise AssertionError("never finished")


@pytest.mark.parametrize("code", CODES)
def test_a_catalog_tells_the_path_of_what_it_can_t_write(
    tmp_path: Path, disk: FailingDisk, code: int
) -> None:
    catalog = Catalog.open(tmp_path / "warehouse")
    failures = 0
    for number in range(1, 30):
        disk.fail_at(number, code)
        error = failure_of(lambda number=number: catalog.create_namespace(f"n{number}"))
        if error is not None:
            failures += 1
            assert str(tmp_path) in str(error)
            assert os.strerror(code) in str(error)
    assert failures > 3
    disk.fail_at(10**9, code)
    assert Catalog.open(tmp_path / "warehouse").repair().ok


def test_an_object_whose_directory_is_not_synced_is_not_there(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """`write` raises where nothing was changed."""
    store = LocalStore(tmp_path)
    store.write("manifest/first.json", b"1")
    for number in range(1, 5):
        disk.fail_at(number, errno.EIO)
        with pytest.raises(StorageError, match=r"^write .*manifest/second\.json: Input/output"):
            store.write("manifest/second.json", b"2")
        assert files_of(tmp_path) == {"manifest/first.json"}
    disk.fail_at(5, errno.EIO)
    store.write("manifest/second.json", b"2")


@pytest.mark.parametrize("code", CODES)
def test_a_file_that_can_t_be_written_tells_its_path_and_keeps_what_was_there(
    tmp_path: Path, disk: FailingDisk, code: int
) -> None:
    path = tmp_path / "f.fermion"
    data = pa.table({"a": range(10)})
    fermion.write_table(data, path)
    old = path.read_bytes()
    for number in range(1, 30):
        disk.fail_at(number, code)
        error = failure_of(lambda: fermion.write_table(pa.table({"a": [1]}), path))
        if error is None:
            break
        assert isinstance(error, StorageError)
        assert (error.errno, error.url, error.operation) == (code, str(path), "write")
        assert str(error) == f"write {path}: {os.strerror(code)}"
        assert files_of(tmp_path) == {"f.fermion"}
        if path.read_bytes() != old:  # whole, but its name is perhaps not durable
            assert fermion.read_table(path).num_rows == 1
            path.write_bytes(old)
    assert number > 3
    assert files_of(tmp_path) == {"f.fermion"}


def test_a_disk_that_can_t_be_read_is_told_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of data, and of metadata."""
    table = made(tmp_path / "t")
    path = next((tmp_path / "t" / "data").iterdir())

    def failing(*arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", failing)
        with pytest.raises(StorageError, match=f"^read {path}: Input/output error$"):
            fermion.open(path)
        with pytest.raises(StorageError, match=f"^read {tmp_path}/t/data/.*: Input/output error$"):
            table.scan().to_arrow()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(StorageError, match=f"^read {tmp_path}/t/snapshot/0.*: Input/output"):
            LocalStore(tmp_path / "t").read(f"snapshot/{2:020d}.json")


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Files of this process can't become larger; Python ignores SIGXFSZ."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_over_the_limit_of_the_process_is_told(tmp_path: Path) -> None:
    """The kernel's own error, of a data file and of metadata."""
    table = made(tmp_path / "t")
    before = files_of(tmp_path / "t")
    numbers = pa.array(each * 7919 % 100_003 for each in range(100_000))
    for limit in (4096, 10):
        with file_size_limit(limit), pytest.raises(StorageError) as caught:
            table.append(pa.table({"k": numbers, "v": numbers}) if limit > 10 else {"k": [1]})
        assert caught.value.errno == errno.EFBIG
        assert str(caught.value).startswith(f"write {tmp_path}/t/data/")
        assert files_of(tmp_path / "t") == before
    with (
        file_size_limit(10),
        pytest.raises(
            StorageError, match=f"create {tmp_path}/u/snapshot/0|write {tmp_path}/u/schema/"
        ),
    ):
        Table.create(tmp_path / "u", SCHEMA)
    assert files_of(tmp_path / "u") == set()
    assert rows_of(tmp_path / "t") == [(each, each) for each in range(10)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 400 kB."""
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(small: Path, *, rows: int, first: int) -> int:
    """Append rows until the disk is full; the number of the first one that is not committed."""
    while True:
        keys = list(range(first, first + rows))
        data = {"k": keys, "v": [each * 7919 % 10_007 for each in keys]}
        error = failure_of(lambda data=data: Table.open(small / "t").append(data))
        if error is not None:
            assert isinstance(error, StorageError)
            assert error.errno == errno.ENOSPC
            assert str(error).startswith(f"{error.operation} {small}/t/")
            return first
        first += rows


@pytest.mark.parametrize("key", [None, "k"])
def test_a_disk_that_gets_full_keeps_all_that_was_committed(small: Path, key: str | None) -> None:
    """A real one; after something else is deleted writing goes on."""
    settings = {"bucket": "1"} if key else {}
    table = Table.create(small / "t", SCHEMA, primary_key=key, properties=settings)
    ballast = small / "ballast"
    ballast.write_bytes(bytes(100_000))
    committed = fill(small, rows=2_000, first=0)
    assert committed
    assert Table.open(small / "t").scan().count() == committed
    committed = fill(small, rows=1, first=committed)
    assert Table.open(small / "t").scan().count() == committed
    ballast.unlink()
    table = Table.open(small / "t")
    table.append({"k": [-1], "v": [0]})
    assert table.scan().count() == committed + 1
    report = table.verify(data=True)
    assert report.ok, report
    assert not [each for each in files_of(small) if each.endswith(".tmp")]
