"""Storages of every kind that files are written to, with a target that holds something already."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from tests.kit.tables import s3_servers
from tests.kit.tables.webhdfs_server import WebHdfsServer

OLD = b"what was here before"
NAME = "x.fermion"


@dataclass(frozen=True)
class Place:
    """A directory on some storage, with one file.

    Attributes
    ----------
    target
        Path or URL of the file.
    options
        For fsspec.
    names
        Lists the directory, temporary files too.
    read
        Gives the file's bytes.
    pending
        Counts uploads that were begun and neither completed nor aborted.
    """

    target: str
    options: dict[str, Any] | None
    names: Callable[[], list[str]]
    read: Callable[[], bytes]
    pending: Callable[[], int] = lambda: 0

    def assert_untouched(self) -> None:
        """Nothing has changed, and nothing is left over."""
        assert self.names() == [NAME]
        assert self.read() == OLD
        assert self.pending() == 0


class BufferedFile(AbstractBufferedFile):
    """Parts are staged, and published together with the last one."""

    def _initiate_upload(self) -> None:
        self.fs.staged[id(self)] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.fs.staged[id(self)].append(self.buffer.getvalue())
        if final:
            self.fs.files[self.path] = b"".join(self.fs.staged.pop(id(self)))
        return True

    def discard(self) -> None:
        self.fs.staged.pop(id(self), None)


class BufferedFileSystem(AbstractFileSystem):
    """As little as a storage of one's own needs to have, and no way to move a file."""

    protocol = "buffered"
    cachable = False
    files: ClassVar[dict[str, bytes]] = {}
    staged: ClassVar[dict[int, list[bytes]]] = {}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> BufferedFile:
        return BufferedFile(self, path, mode, options.get("block_size"))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if path not in self.files:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.files[path]), "type": "file"}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        return self.files[path][start:end]

    def rm_file(self, path: str) -> None:
        del self.files[path]


def _local(folder: Path) -> Place:
    target = folder / NAME
    target.write_bytes(OLD)
    return Place(
        str(target), None, lambda: [each.name for each in folder.iterdir()], target.read_bytes
    )


def _memory(_: Path) -> Place:
    folder, system = f"/{uuid.uuid4().hex}", fsspec.filesystem("memory")
    system.pipe_file(f"{folder}/{NAME}", OLD)
    return Place(
        f"memory://{folder}/{NAME}",
        None,
        lambda: [each.rpartition("/")[2] for each in system.ls(folder, detail=False)],
        lambda: system.cat_file(f"{folder}/{NAME}"),
    )


def _buffered(_: Path) -> Place:
    fsspec.register_implementation("buffered", BufferedFileSystem, clobber=True)
    folder = uuid.uuid4().hex
    BufferedFileSystem.files[f"{folder}/{NAME}"] = OLD
    return Place(
        f"buffered://{folder}/{NAME}",
        None,
        lambda: [path[33:] for path in BufferedFileSystem.files if path.startswith(folder)],
        lambda: BufferedFileSystem.files[f"{folder}/{NAME}"],
        lambda: len(BufferedFileSystem.staged),
    )


@contextmanager
def _webhdfs() -> Iterator[Callable[[Path], Place]]:
    """A storage that truncates when a file is opened, and does not rename onto files."""
    server = WebHdfsServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def place(_: Path) -> Place:
        folder = f"/{uuid.uuid4().hex}"
        server.perform("MKDIRS", folder, {}, b"")
        server.perform("CREATE", f"{folder}/{NAME}", {}, OLD)
        return Place(
            f"{server.url}{folder}/{NAME}",
            None,
            lambda: [path[34:] for path in server.files if path.startswith(folder)],
            lambda: server.files[f"{folder}/{NAME}"][0],
        )

    yield place
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def _s3(directory: Path) -> Iterator[Callable[[Path], Place]]:
    import s3fs

    with s3_servers.moto(directory) as options:

        def place(_: Path) -> Place:
            folder = f"{s3_servers.BUCKET}/{uuid.uuid4().hex}"
            system = s3fs.S3FileSystem(**options)
            system.pipe_file(f"{folder}/{NAME}", OLD)

            def names() -> list[str]:
                system.invalidate_cache()
                return [each.rpartition("/")[2] for each in system.find(folder)]

            def pending() -> int:
                found = system.call_s3("list_multipart_uploads", Bucket=s3_servers.BUCKET)
                return len(found.get("Uploads", []))

            return Place(
                f"s3://{folder}/{NAME}",
                options,
                names,
                lambda: system.cat_file(f"{folder}/{NAME}"),
                pending,
            )

        yield place


STORAGES = ("local", "memory", "buffered", "webhdfs", "s3")


class Storages:
    """Makes places; servers are started when the first place on them is asked for."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._makers = {"local": _local, "memory": _memory, "buffered": _buffered}

    def place(self, kind: str, folder: Path) -> Place:
        """A directory of its own, in which only the target lies."""
        if kind == "webhdfs" and kind not in self._makers:
            pytest.importorskip("requests", reason="fsspec's WebHDFS needs requests")
            self._makers[kind] = self._stack.enter_context(_webhdfs())
        if kind == "s3" and kind not in self._makers:
            for module in ("s3fs", "moto.server"):
                pytest.importorskip(module, reason="the extra s3 and the group dev bring it")
            self._makers[kind] = self._stack.enter_context(_s3(self._directory))
        return self._makers[kind](folder)


@contextmanager
def all_storages(directory: Path) -> Iterator[Storages]:
    """Storages whose servers end with the block."""
    with ExitStack() as stack:
        yield Storages(directory, stack)
