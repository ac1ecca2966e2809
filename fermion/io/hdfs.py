"""HDFS without Java: the fsspec file system of hdfs-native, with what files and tables need of it.

The NameNode's answers become errors with an ``errno``; calls end in time; a file appears whole; and
a forked process can go on. A new name is taken by the call *rename2* without OVERWRITE. Hadoop's
specification of file systems asks that renaming a file is atomic ("Introduction", section
*Atomicity*), and that this form of it raises FileAlreadyExistsException if the destination exists
("class FileSystem", section *rename* with options). HDFS looks and renames under one lock, that of
the NameNode's namespace, and answers when the rename lies in its journal.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import queue
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hdfs_native import WriteOptions
from hdfs_native.fsspec import HdfsFileSystem

from fermion.deadline import NoTimeLeft, time_left
from fermion.errors import InvalidArgumentError

T = TypeVar("T")

CALL_SECONDS_MAX = 60.0
"""Of one call, where the caller has no deadline."""
BUFFER_BYTES = 4 * 1024 * 1024
TEXT_MAX = 200
"""Characters of what the client says; it may describe every DataNode."""
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
"""Pauses before a file is written again. A NameNode looks for dead DataNodes each 5 s, and leaves a
look out after a pause of its own: with the shortest settings it takes 11 to 21 s."""
_KEPT_SECONDS = 3.5
"""hdfs-native keeps connections to DataNodes for 3 s, and takes them for its own after a fork."""
_RPC = re.compile(r'^(?:Fatal)?RPCError\("([^"]*)", "((?:[^"\\]|\\.)*)', re.DOTALL)
_KINDS: dict[str, tuple[type[OSError], int]] = {
    "AccessControlException": (PermissionError, errno.EACCES),
    "AuthorizationException": (PermissionError, errno.EACCES),
    "InvalidToken": (PermissionError, errno.EACCES),
    "SafeModeException": (OSError, errno.EROFS),
    "DSQuotaExceededException": (OSError, errno.EDQUOT),
    "NSQuotaExceededException": (OSError, errno.EDQUOT),
    "QuotaByStorageTypeExceededException": (OSError, errno.EDQUOT),
    "ParentNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "StandbyException": (ConnectionError, errno.ECONNREFUSED),
    "RetriableException": (ConnectionError, errno.ECONNREFUSED),
}
"""What exceptions of the NameNode become; any other is an OSError."""
_USER = "expected no user: the environment variable HADOOP_USER_NAME names one"
_BROKEN = ("Connection", "connection", "RPC listener", "Broken pipe", "early eof", "unexpected end")

_used_at = 0.0
_waits_until = 0.0
_alive: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Clients and open files of this process."""
_held: list[Any] = []
_of_parents: list[Any] = []
"""What a forked process must not let go of: that waits for threads, which only its parent has."""


class Hdfs(HdfsFileSystem):  # type: ignore[misc]
    """The file system of ``hdfs://`` URLs.

    host, port: Of the NameNode; without a port the name of a service in Hadoop's configuration.
    settings: Of Hadoop's clients, by name, such as ``{"dfs.client.use.datanode.hostname":
        "true"}``.
    Raises TypeError, InvalidArgumentError: A setting is no text, number or bool; or a user is
        named.
    """

    def __init__(self, host: str | None = None, port: int | None = None, **settings: Any) -> None:
        known = _settings(settings)
        with _told("connect to", f"hdfs://{host}"):
            super().__init__(host, port, **known)
        _alive[id(self.client)] = self.client

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        authority = path.partition("://")[2].partition("/")[0]
        user, at, place = authority.rpartition("@")
        if at:
            raise InvalidArgumentError(f"hdfs://{user.partition(':')[0]}@{place}: {_USER}")
        host, colon, port = place.rpartition(":")
        if colon and not port.isdigit():
            raise InvalidArgumentError(f"hdfs://{place}: expected a number as the port")
        return {"host": host, "port": int(port)} if colon else {"host": place or None}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = os.fspath(path)  # whatever it holds: a URL of HDFS has no query and no fragment
        if text.startswith("hdfs://"):
            text = f"/{text[7:].partition('/')[2]}"
        return text.rstrip("/") or "/"

    @property
    def url(self) -> str:
        """The NameNode, or its service."""
        return str(self.unstrip_protocol("/")).rstrip("/")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """What the NameNode says of a file or directory; one call."""
        path = self._strip_protocol(path)
        found = _call("look for", path, self.client.get_file_info, path)
        return dict(self._convert_file_status(found))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """What lies in a directory."""
        path = self._strip_protocol(path)
        found = _call("list", path, lambda: list(self.client.list_status(path, False)))
        return [self._convert_file_status(each) if detail else each.path for each in found]

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory."""
        path = self._strip_protocol(path)
        _call("make", path, self.client.mkdirs, path, 0o755, create_parents)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete a file, or a directory that is empty unless ``recursive``.

        Raises InvalidArgumentError: A ``maxdepth``: HDFS deletes all of a directory in one step.
        """
        if maxdepth is not None:
            raise InvalidArgumentError(f"maxdepth={maxdepth!r}: expected None")
        path = self._strip_protocol(path)
        _call("delete", path, self.client.delete, path, recursive)

    def mv(self, path1: str, path2: str, overwrite: bool = False, **_: Any) -> None:
        """Rename in one step.

        Raises FileExistsError: There is something, and ``overwrite`` is not given.
        """
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        _call("rename", old, self.client.rename, old, new, overwrite)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """A range of a file; a call to the NameNode and one to a DataNode for each block."""
        return self.opened(path).cat_file(path, start, end)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Store a file, which appears whole.

        Raises FileExistsError: There is something, and ``mode`` is ``"create"``.
        """
        path = self._strip_protocol(path)
        folder, slash, name = path.rpartition("/")
        temporary = f"{folder}{slash}.{name}.{uuid.uuid4().hex}.tmp"
        self.write_new(temporary, value)
        try:
            self.mv(temporary, path, overwrite=mode != "create")
        except BaseException:
            with contextlib.suppress(Exception):  # must not hide what led here
                self.rm_file(temporary)
            raise

    def write_new(self, path: str, value: bytes) -> None:
        """Store a file under a name that nobody uses; it grows there.

        Raises OSError: Nothing is left of it.
        """
        file = self.create_file(path)
        try:
            file.write(value)
            file.close()
        except BaseException:
            file.abandon()
            with contextlib.suppress(Exception):  # must not hide what led here
                self.rm_file(path)
            raise

    def create_file(self, path: str, block_bytes: int | None = None) -> HdfsWriter:
        """A new file, to be written.

        block_bytes: Size of its blocks; None: as the NameNode is configured.
        """
        return HdfsWriter(self, self._strip_protocol(path), block_bytes)

    @staticmethod
    def is_refusal(error: BaseException) -> bool:
        """Whether an error says that nothing was done: it was not sent, or it was refused."""
        return isinstance(error, NoTimeLeft) or _RPC.match(str(error.__cause__)) is not None

    def opened(self, path: str) -> OpenedFile:
        """One file, for reads that find its blocks once."""
        return OpenedFile(self, self._strip_protocol(path))

    def _open(  # type: ignore[override]
        self, path: str, mode: str = "rb", **options: Any
    ) -> Any:
        path = self._strip_protocol(path)
        if mode == "wb":
            return self.create_file(path)
        return _call("open", path, lambda: HdfsFileSystem._open(self, path, mode, **options))


class OpenedFile:
    """The file system of one file: asks once where its blocks lie, and again after a failure."""

    protocol = "hdfs"
    prefetch_bytes = 2 * 1024 * 1024  # with the column metadata of most wide files: a round less

    def __init__(self, filesystem: Hdfs, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._reader: Any = None

    def unstrip_protocol(self, path: str) -> str:
        """The URL of a path."""
        return str(self._filesystem.unstrip_protocol(path))

    def invalidate_cache(self) -> None:
        """Look the file up again before the next read."""
        self._reader = None

    def info(self, path: str) -> dict[str, Any]:
        """Its size, by one call, which finds its blocks, too."""
        try:
            return {"name": path, "type": "file", "size": len(self._opened())}
        except FileNotFoundError:
            return self._filesystem.info(path)  # it may be a directory

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """A range, by one call to a DataNode for each block; a negative start is from the end."""
        known = self._reader is not None
        try:
            return self._range(start, end)
        except (FileNotFoundError, TimeoutError):
            raise
        except OSError:  # blocks may lie elsewhere by now, or a token has expired
            if not known:
                raise
            self._reader = None
            return self._range(start, end)

    def _opened(self) -> Any:
        reader = self._reader
        if reader is None:
            client = self._filesystem.client
            reader = self._reader = _call("open", self._path, client.read, self._path)
            _alive[id(reader)] = reader
        return reader

    def _range(self, start: int | None, end: int | None) -> bytes:
        reader = self._opened()
        size = len(reader)
        first = max(size + start, 0) if start is not None and start < 0 else start or 0
        stop = size if end is None else min(end, size)
        if stop <= first:
            return b""
        return _read(self._path, reader.read_range, first, stop - first)


class HdfsWriter:
    """A file that is being written, through a buffer of 4 MiB.

    While all of it is in the buffer, a write that failed is made again: a DataNode that has just
    died is among those that the NameNode names until it is missed.

    filesystem, path, block_bytes: See `Hdfs.create_file`.
    Raises FileExistsError: There is something at the path.
    """

    def __init__(self, filesystem: Hdfs, path: str, block_bytes: int | None = None) -> None:
        self._filesystem, self._path = filesystem, path
        self._options = WriteOptions(block_size=block_bytes, permission=0o644, overwrite=False)
        self._buffer = bytearray()
        self._has_sent = False
        self._writer = self._created()
        self.closed = False
        _alive[id(self)] = self

    def _created(self) -> Any:
        create = self._filesystem.client.create
        writer: Any = _call("create", self._path, create, self._path, self._options)
        # Python closes a file that is dropped, which would complete one that was given up, and in a
        # forked process wait for ever: only what has no such end is kept.
        raw, writer.inner = writer.inner, _Closed()
        return raw

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes."""
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._repeated(self._send)
            self._has_sent = True
            self._buffer.clear()
        return len(data)

    def close(self) -> None:
        """Complete the file: the DataNodes have it then; a second call does nothing."""
        if self.closed:
            return
        self._repeated(self._complete)
        self.closed = True
        _used()

    def _send(self) -> None:
        if self._buffer:
            _call("write", self._path, self._writer.write, bytes(self._buffer))

    def _complete(self) -> None:
        self._send()
        _call("write", self._path, self._writer.close)

    def _repeated(self, action: Callable[[], None]) -> None:
        """Do something, and do it with a new file where it fails and all bytes are here."""
        for pause in (*RETRY_SECONDS, math.inf):
            try:
                action()
                return
            except TimeoutError:
                raise
            except OSError as error:
                if self._has_sent or Hdfs.is_refusal(error) or pause >= time_left():
                    raise
                time.sleep(pause)
                with contextlib.suppress(OSError):  # what is in the way is told by what follows
                    self._filesystem.rm_file(self._path)
                self._writer = self._created()

    def abandon(self) -> None:
        """Leave the file as it is, without an end."""
        self.closed = True
        self._buffer.clear()

    def __enter__(self) -> HdfsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class _Closed:
    """What a file is left with whose writer was taken over."""

    def close(self) -> None:
        """Nothing to complete."""


def _settings(given: dict[str, Any]) -> dict[str, str]:
    """Settings as Hadoop spells them."""
    if "user" in given:
        raise InvalidArgumentError(f"storage_options['user']={given['user']!r}: {_USER}")
    for name, value in given.items():
        if not isinstance(value, (str, int, float)):
            raise TypeError(
                f"storage_options[{name!r}]={value!r}: expected a setting of Hadoop: a text, a "
                f"number or a bool"
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def _call(operation: str, path: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call the client, and give up in time.

    It waits without end for a server that does not answer, and no signal reaches Python then: a
    thread of its own does.
    """
    left = time_left(CALL_SECONDS_MAX)
    if left <= 0:
        raise NoTimeLeft
    replies: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            replies.put((function(*arguments), None))
        except BaseException as error:  # noqa: BLE001 - raised where it was called from
            replies.put((None, error))

    threading.Thread(target=run, name="hdfs", daemon=True).start()
    try:
        reply, error = replies.get(timeout=left)
    except queue.Empty:
        raise TimeoutError(errno.ETIMEDOUT, "no reply in time", path) from None
    with _told(operation, path):
        if error is not None:
            raise error
    return reply  # type: ignore[no-any-return]


def _read(path: str, function: Callable[..., bytes], *arguments: Any) -> bytes:
    """Call a DataNode, not over a connection of the parent of this process."""
    while (wait := _waits_until - time.monotonic()) > 0:
        time.sleep(wait)
    try:
        return _call("read", path, function, *arguments)
    finally:
        _used()


def _used() -> None:
    global _used_at
    _used_at = time.monotonic()


def _forked() -> None:
    global _waits_until
    _waits_until = _used_at + _KEPT_SECONDS
    _of_parents.extend(_held)


if hasattr(os, "register_at_fork"):
    # Before: other modules may let go of files as soon as there is a child.
    os.register_at_fork(
        before=lambda: _held.extend([each() for each in _alive.valuerefs()]),
        after_in_parent=_held.clear,
        after_in_child=_forked,
    )


@contextlib.contextmanager
def _told(operation: str, path: str) -> Iterator[None]:
    """Raise what the client raises as an OSError that says what was asked for."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
    except (KeyboardInterrupt, SystemExit, InvalidArgumentError):
        raise
    except BaseException as error:  # also what pyo3 makes of a panic of Rust
        raise _os_error(operation, path, error) from error


def _os_error(operation: str, path: str, error: BaseException) -> OSError:
    text = str(error)
    answer = _RPC.match(text)
    if answer is not None:
        said = answer[2].partition(r"\n\tat ")[0].replace(r"\n", " ").replace(r"\"", '"')
        name = re.split(r"[.$]", answer[1])[-1]
        kind, code = _KINDS.get(name, (OSError, errno.EIO))
        return kind(code, f"{name}: {said}", path)
    said = text.partition("\n")[0][:TEXT_MAX]
    if isinstance(error, ConnectionError) or any(each in said for each in _BROKEN):
        return ConnectionError(errno.ECONNABORTED, said, path)
    return OSError(
        getattr(error, "errno", None) or errno.EIO, f"can't {operation} it: {said}", path
    )
