"""Where a file's bytes come from: local files by pread, everything else through fsspec.

A source knows bytes, not columns. It counts what it was asked for in `IoStats`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from fermion.arguments import mapping, plain_path
from fermion.deadline import TIMEOUT_S, deadline
from fermion.errors import (
    ChecksumError,
    FermionError,
    StorageError,
    TruncatedFileError,
    file_is_closed,
    is_a_directory,
    no_file,
    on_local_disk,
    short_read,
)
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.forks import Lock, PerProcess, ThreadPool, process
from fermion.io.coalesce import coalesce, span_of
from fermion.redaction import as_cause, redacted

if TYPE_CHECKING:
    import fsspec

    from fermion.io import remote
else:  # local files need it not
    remote = LoadedWhenAskedFor("fermion.io.remote")

KEPT_BYTES_MIN = 256 * 1024
"""Smaller pieces the allocator keeps by itself."""
KEPT_BYTES_MAX = 32 * 1024 * 1024
_GRAIN = 1024 * 1024
# Of a piece that nobody uses: the list, the loop's variable, and the argument of the call itself.
_UNUSED_REFERENCES = 3


class KeptMemory:
    """Pieces of memory, each lent to one borrower at a time; safe to share between threads.

    A piece is free again when no array, view or Arrow buffer of it is left, which its reference
    count tells: nothing has to be given back. A forked process starts with none: what threads of
    its parent had borrowed would never be free again.
    """

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []
        self._lock, self._made_in = Lock(), process()

    def borrow(self, size: int) -> np.ndarray:
        """Memory of ``size`` bytes, with anything in it: ``uint8``, writable."""
        if size < KEPT_BYTES_MIN:
            return np.empty(size, np.uint8)
        with self._lock.get():
            if self._made_in is not process():
                self._pieces, self._made_in = [], process()
            for piece in self._pieces:
                if len(piece) >= size and sys.getrefcount(piece) == _UNUSED_REFERENCES:
                    return piece[:size]
            # Not of the allocator, which could not return what lies below to the system.
            pages = mmap.mmap(
                -1, -(-size // _GRAIN) * _GRAIN, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
            if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux: one page fault for 2 MiB instead of 512
                pages.madvise(mmap.MADV_HUGEPAGE)
            piece = np.frombuffer(pages, np.uint8)
            if len(piece) + sum(map(len, self._pieces)) <= KEPT_BYTES_MAX:
                self._pieces.append(piece)
            return piece[:size]

    def clear(self) -> None:
        """Keep nothing any more; what is lent stays with its borrowers."""
        with self._lock.get():
            self._pieces.clear()


PathLike = str | os.PathLike[str]
T = TypeVar("T")
_Ranges = Sequence[tuple[int, int]]
_NO_LIMIT = contextlib.nullcontext()
FEW_RANGES = 32
"""Of ranges that are cheaper to look at one by one than as an array."""

SUFFIX_PROTOCOLS = frozenset({"s3", "s3a", "gs", "gcs", "http", "https"})
"""Storages whose fsspec file systems pass ``cat_file(start=-n)`` on as a suffix range."""


@dataclass(frozen=True, slots=True)
class IoStats:
    """What was read since the file was opened.

    Attributes
    ----------
    requests
        Reads sent to the storage.
    bytes_requested
        Bytes of those reads.
    bytes_used
        Bytes of the ranges that were wanted; the rest bridged gaps.
    """

    requests: int = 0
    bytes_requested: int = 0
    bytes_used: int = 0


class Source(Protocol):
    """Random-access bytes of one immutable file.

    size: Bytes of the file; None where nothing has told it yet.
    """

    name: str
    size: int | None
    is_local: bool

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly ``length`` bytes from ``offset``; raises TruncatedFileError otherwise."""

    def read_end(self, length: int) -> memoryview:
        """The last ``length`` bytes, or the whole file when it has fewer."""

    def again(self) -> Source:
        """The same file for another reader, which knows nothing of it yet, its size included."""

    def close(self) -> None:
        """Release the handle; reading afterwards is an error."""


class LocalSource:
    """A file of the local file system, read with pread (thread-safe, no shared position)."""

    is_local = True

    def __init__(self, path: PathLike) -> None:
        self.name = os.fspath(path)
        self._memory = KeptMemory()
        # A pipe that nobody writes to would be waited for.
        flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        with on_local_disk("read", self.name):
            self._descriptor = os.open(self.name, os.O_RDONLY | flags)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise no_file(self.name, found)
        self.size: int | None = found.st_size

    def read_end(self, length: int) -> memoryview:
        """The last ``length`` bytes, or the whole file when it has fewer; a new buffer."""
        return _read_end(self, self.size, length)

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly ``length`` bytes from ``offset``; memory that is used again when it is let go."""
        check_range(self.name, self.size, offset, length)
        if self._descriptor < 0:
            raise file_is_closed(self.name)
        data, done = self._memory.borrow(length).data, 0
        while done < length:
            try:
                more = os.preadv(self._descriptor, [data[done:]], offset + done)
            except OSError:
                with on_local_disk("read", self.name):
                    raise
            if not more:
                raise short_read(self.name, offset, length, done)
            done += more
        return data.toreadonly()

    @property
    def descriptor(self) -> int:
        """The open file, for reads that leave its position alone."""
        return self._descriptor

    def again(self) -> Source:
        """The file that is open, whatever has its name by now."""
        other = LocalSource.__new__(LocalSource)
        other.name, other._memory = self.name, KeptMemory()
        other._descriptor = os.dup(self._descriptor)
        other.size = os.fstat(other._descriptor).st_size
        return other

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        self._memory.clear()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At the end of the process modules have lost their names, so it uses none: no lock either.
        descriptor, self._descriptor = getattr(self, "_descriptor", -1), -1
        if descriptor >= 0:
            close(descriptor)


class FilesystemSource:
    """A file of any fsspec file system, read by ranges.

    connect: Gives the file system again in a forked process, which connections do not survive;
        None: the same is used there.
    timeout_s: Seconds after which a read is given up (see `ReadOptions`).

    Attributes:
    prefetch_bytes: How much of the end to read first, by what the file system says of itself; None:
        as ever.
    """

    is_local = False

    def __init__(
        self,
        filesystem: fsspec.AbstractFileSystem,
        path: str,
        connect: Callable[[], fsspec.AbstractFileSystem] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.timeout_s = timeout_s
        self._connection = PerProcess(connect or (lambda: filesystem), filesystem)
        self._path = path
        self.prefetch_bytes: int | None = getattr(filesystem, "prefetch_bytes", None)
        self.name = redacted(filesystem.unstrip_protocol(path))
        self.size: int | None = None

    @property
    def _filesystem(self) -> fsspec.AbstractFileSystem:
        return self._connection.get()

    def read_end(self, length: int) -> memoryview:
        """The last ``length`` bytes, or the whole file when it has fewer; a new buffer.

        Where the storage answers a suffix range (RFC 9110, section 14.1.2) that is one request, and
        a full answer leaves the size unknown; elsewhere the size is asked for first.
        """
        if SUFFIX_PROTOCOLS.isdisjoint(remote.protocols(self._filesystem)):
            found = self._ask("info")
            if found.get("type") == "directory":
                raise is_a_directory(self.name)
            self.size = int(found.get("size") or 0)
            return _read_end(self, self.size, length)
        data = self._ask("cat_file", start=-length)
        if len(data) != length:  # All of a shorter file, or a server that ignores ranges.
            self.size = len(data)
        return memoryview(data)[-length:]

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly ``length`` bytes from ``offset``; a new buffer."""
        check_range(self.name, self.size, offset, length)
        data = self._ask("cat_file", start=offset, end=offset + length)
        if len(data) > length and "http" in self.name[:5]:
            raise StorageError(
                errno.EOPNOTSUPP,
                f"read {self.name}: the server does not support ranges: it sent {len(data)} bytes "
                f"where {length} from byte {offset} on were asked for",
                operation="read",
                url=self.name,
            )
        if len(data) != length:
            raise short_read(self.name, offset, length, len(data))
        return memoryview(data)

    def _ask(self, method: str, **keywords: Any) -> Any:
        """Call a method of the file system, which gives up in time and says what it did where."""
        filesystem = self._filesystem
        try:
            return remote.ask(filesystem, method, self._path, timeout_s=self.timeout_s, **keywords)
        except (FermionError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - clients have errors of their own
            if remote.is_missing(error):
                # Its own text may name the URL with a password or a signature.
                raise FileNotFoundError(
                    errno.ENOENT, os.strerror(errno.ENOENT), self.name
                ) from None
            raise remote.storage_error("read", self.name, error) from as_cause(error)

    def again(self) -> Source:
        """The object that has the name now, of which no listing that was kept is asked."""
        self._filesystem.invalidate_cache()
        other = FilesystemSource(self._filesystem, self._path, timeout_s=self.timeout_s)
        other.name = self.name
        return other

    def close(self) -> None:
        """Nothing is held open between reads."""


def _read_end(source: Source, size: int | None, length: int) -> memoryview:
    length = min(length, size or 0)
    return source.read((size or 0) - length, length)


def check_range(name: str, size: int | None, offset: int, length: int) -> None:
    """Raise TruncatedFileError for a range that ends outside the file, where its size is known."""
    if offset < 0 or length < 0 or (size is not None and offset + length > size):
        raise TruncatedFileError(
            f"{name}: range {offset}+{length} ends past the end of the file ({size} bytes)"
        )


class CountingSource:
    """A source's coalesced reads, counted; safe to share between threads.

    executor: Sends requests side by side where a read needs several; None: one after the other.
    """

    def __init__(
        self,
        source: Source,
        *,
        gap_bytes_max: int,
        span_bytes_max: int,
        executor: ThreadPool | None = None,
    ) -> None:
        self.source, self._executor = source, executor
        self.gap_bytes_max = gap_bytes_max
        self.span_bytes_max = span_bytes_max
        self._timeout_s: float = getattr(source, "timeout_s", TIMEOUT_S)
        self._lock = Lock()
        self._totals = 0, 0, 0
        self._held = memoryview(b""), 0

    def again(self) -> CountingSource:
        """The same file, read in the same way, nothing of it held or counted yet."""
        return self.of(self.source.again())

    def of(self, source: Source) -> CountingSource:
        """Another file, read in the same way."""
        return CountingSource(
            source,
            gap_bytes_max=self.gap_bytes_max,
            span_bytes_max=self.span_bytes_max,
            executor=self._executor,
        )

    @property
    def stats(self) -> IoStats:
        """What was read so far; a value that does not change any more."""
        return IoStats(*self._totals)

    def read(self, offset: int, length: int) -> memoryview:
        """One counted read; a view without one where the bytes are held."""
        data = self._fetch(offset, length)
        if not self._holds(offset, length):
            self._count(1, length, length)
        return data

    def hold(self, data: memoryview, offset: int) -> None:
        """Keep bytes that were read; what lies within them is not asked for again."""
        self._held = data, offset

    def _renew(self, requests: list[tuple[int, int]], buffers: list[memoryview]) -> None:
        """Replace what is held by what was read again."""
        held, first = self._held
        sent = zip(requests, buffers, strict=True)
        fresh = [(place[0] - first, data) for place, data in sent if self._holds(*place)]
        if fresh:
            renewed = bytearray(held)
            for at, data in fresh:
                renewed[at : at + len(data)] = data
            self._held = memoryview(renewed).toreadonly(), first

    def _holds(self, offset: int, length: int) -> bool:
        held, first = self._held
        return 0 <= offset - first <= len(held) - length

    def _fetch(self, offset: int, length: int) -> memoryview:
        held, first = self._held  # together: another thread may let go of them
        if 0 <= offset - first <= len(held) - length:
            return held[offset - first : offset - first + length]
        return self.source.read(offset, length)

    def read_end(self, length: int) -> memoryview:
        """The end of the file, counted as one read, as `Source.read_end` gives it."""
        data = self.source.read_end(length)
        self._count(1, len(data), len(data))
        return data

    def read_checked(self, ranges: _Ranges, decode: Callable[[list[memoryview]], T]) -> T:
        """What is decoded of ranges; bytes that fail their checksum are read once more.

        Raises ChecksumError: They fail it again.
        """
        with self.in_time(len(ranges)):
            try:
                one = len(ranges) == 1
                return decode([self.read(*ranges[0])] if one else self.read_many(ranges))
            except ChecksumError:
                return decode(self.read_many(ranges, again=True))

    def in_time(self, ranges: int = 1) -> contextlib.AbstractContextManager[Any]:
        """A limit of time for what a ``with`` block reads, with what it reads once more.

        ranges: How many: each has the time-out of the source. Local files have none.
        """
        return _NO_LIMIT if self.source.is_local else deadline(self._timeout_s * max(1, ranges))

    def read_many(self, ranges: _Ranges, *, again: bool = False) -> list[memoryview]:
        """The bytes of every range, in the order given, in as few requests as the limits allow.

        ranges: (offset, length) pairs; an empty one gives an empty view without a request.
        again: See `read_places`.
        """
        wanted = np.array(ranges, np.int64).reshape(-1, 2)
        buffers, places = self.read_places(wanted, again=again)
        return [buffers[buffer][at : at + size] for buffer, at, size in places.tolist()]

    def read_views(self, parts: Sequence[np.ndarray]) -> list[memoryview]:
        """The same for ranges in some arrays, each of shape (n, 2): ``int64``."""
        if not parts:
            return []
        buffers, places = self.read_places(np.concatenate(parts))
        return [buffers[buffer][at : at + size] for buffer, at, size in places.tolist()]

    def read_chunk(self, ranges: np.ndarray) -> list[memoryview]:
        """The same for pages of a chunk, ascending: one request if next to nothing lies between.

        ranges: ``int64``, shape (n, 2), n > 0.
        """
        first, wanted = int(ranges[0, 0]), int(ranges[:, 1].sum())
        size = int(ranges[-1, 0] + ranges[-1, 1]) - first
        if size > self.span_bytes_max or size - wanted > self.gap_bytes_max:
            return self.read_views([ranges])
        data = self._fetch(first, size)
        if not self._holds(first, size):
            self._count(1, size, wanted)
        return [data[at - first : at - first + length] for at, length in ranges.tolist()]

    def read_places(
        self, ranges: np.ndarray, *, again: bool = False
    ) -> tuple[list[memoryview], np.ndarray]:
        """The same without an object a range, for thousands of them.

        ranges: ``int64``, shape (n, 2): offset and length of each.
        again: Ask the storage, whatever is held: that was wrong. The executor's threads may do so.
        Returns: At least one buffer, and ``int64``, shape (n, 3): in which buffer each range lies,
            from which byte on, and its length.
        """
        if len(ranges) <= FEW_RANGES and not again:
            few = self._read_few(ranges.tolist())
            if few is not None:
                return few
        first, end = span_of(ranges)
        held, held_offset = self._held
        if not again and held_offset <= first < end <= held_offset + len(held):
            places = np.zeros((len(ranges), 3), np.int64)
            places[:, 1] = np.where(ranges[:, 1] > 0, ranges[:, 0] - held_offset, 0)
            places[:, 2] = ranges[:, 1]
            return [held], places
        requests, members = coalesce(
            ranges, gap_bytes_max=self.gap_bytes_max, span_bytes_max=self.span_bytes_max
        )
        executor = None if again or len(requests) < 2 else self._executor
        run = map if executor is None else executor.map
        fetch = self.source.read if again else self._fetch
        buffers = list(run(fetch, *requests.T.tolist()))
        places = np.zeros((len(ranges), 3), np.int64)
        if len(requests):
            some = members >= 0
            places[some, 0] = members[some]
            places[some, 1] = ranges[some, 0] - requests[members[some], 0]
            places[:, 2] = ranges[:, 1]
        if again:
            self._renew(requests.tolist(), buffers)
        sent = np.array([again or not self._holds(*each) for each in requests.tolist()], bool)
        inside = np.append(sent, False)[members]  # an empty range is a member of -1, the last
        self._count(int(sent.sum()), int(requests[sent, 1].sum()), int(ranges[inside, 1].sum()))
        return buffers or [memoryview(b"")], places

    def _read_few(self, ranges: list[list[int]]) -> tuple[list[memoryview], np.ndarray] | None:
        """The same for few ranges, without numpy; None if they need several requests."""
        filled = [each for each in ranges if each[1]]
        if not filled:
            return None
        first = min([offset for offset, _ in filled])
        size = max([offset + length for offset, length in filled]) - first
        held, start = self._held
        if start <= first and first + size <= start + len(held):
            data = held
        elif size > min(self.gap_bytes_max, self.span_bytes_max) and len(filled) > 1:
            return None
        else:
            start, data = first, self._fetch(first, size)
            self._count(1, size, sum([length for _, length in filled]))
        places = [(0, offset - start if length else 0, length) for offset, length in ranges]
        return [data], np.array(places, np.int64)

    def _count(self, requests: int, requested: int, used: int) -> None:
        with self._lock.get():
            before = self._totals
            self._totals = before[0] + requests, before[1] + requested, before[2] + used


class MappedSource(LocalSource):
    """A file of the local file system whose bytes are views of a mapping.

    The mapping lasts as long as a view of it. A file that is truncated, or whose disk fails, ends
    the process with SIGBUS when its bytes are looked at.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._view: memoryview | None = memoryview(b"")
        if self.size:  # an empty file can't be mapped
            try:
                with on_local_disk("map", self.name):
                    mapping = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ)
            except BaseException:
                self.close()
                raise
            self._view = memoryview(mapping)

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly ``length`` bytes from ``offset``; a view of the mapping."""
        view = self._view
        if view is None:
            raise file_is_closed(self.name)
        check_range(self.name, self.size, offset, length)
        return view[offset : offset + length]

    def close(self) -> None:
        """Close the descriptor, and let go of the mapping; a second call does nothing."""
        self._view = None
        super().close()


class BufferSource:
    """A file that lies in memory: any object with the buffer protocol."""

    is_local = True

    def __init__(self, buffer: Any, name: str = "<buffer>") -> None:
        self.name = name
        self._view = memoryview(buffer).cast("B")
        self.size: int | None = len(self._view)

    def read_end(self, length: int) -> memoryview:
        """The last ``length`` bytes, or the whole file when it has fewer; a view."""
        return self._view[max(0, len(self._view) - length) :]

    def read(self, offset: int, length: int) -> memoryview:
        """``length`` bytes from ``offset``; a view."""
        check_range(self.name, self.size, offset, length)
        return self._view[offset : offset + length]

    def again(self) -> BufferSource:
        """The same bytes."""
        return BufferSource(self._view, self.name)

    def close(self) -> None:
        """The buffer is the caller's."""


def buffer_of(given: Any, name: str) -> memoryview:
    """The bytes of an object with the buffer protocol; names the parameter if it has none."""
    try:
        return memoryview(given)
    except TypeError:
        raise TypeError(
            f"{name}: expected a path, a URL or an object with the buffer protocol, found "
            f"{type(given).__name__}"
        ) from None


def open_source(
    path: Any,
    storage_options: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_map: bool = False,
) -> Source:
    """Open a path, an fsspec URL, or an object with the buffer protocol.

    memory_map: Map a file of the local file system; others are read as ever.
    Raises FileNotFoundError, PermissionError: As the storage says.
    Raises IsADirectoryError, InvalidArgumentError: It is a directory, or a pipe or a device.
    Raises TypeError: The path is none of these.
    """
    if not isinstance(path, (str, os.PathLike)):
        if hasattr(path, "read_end"):
            return path  # a source already, as packages above make of storages of other libraries
        return BufferSource(buffer_of(path, "path"))
    mapping(storage_options, "storage_options")
    local = plain_path(path)
    filesystem, inner = remote.resolve(path, storage_options) if local is None else (None, local)
    if filesystem is None:
        return MappedSource(inner) if memory_map else LocalSource(inner)

    def connect() -> Any:
        return _one_file(remote.resolve(path, storage_options)[0], inner)

    return FilesystemSource(_one_file(filesystem, inner), inner, connect, timeout_s=timeout_s)


def _one_file(filesystem: Any, path: str) -> Any:
    """A file system, or what it has for one file, of which it need not ask again where it lies."""
    opened = getattr(filesystem, "opened", None)
    return filesystem if opened is None else opened(path)
