"""Memory for rows that wait to be sorted and written, shared by the buffers of some writers.

When there is more than the pool may hold, the largest buffer is flushed by its writer, until there
is room again. Writers in several threads may share a pool: one of them at a time adds or flushes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import field
from typing import Protocol

import pyarrow as pa
from sortedcontainers import SortedKeyList

from fermion.exports import dataclass
from fermion.forks import Lock, process
from fermion_table.schema.property_kinds import parse_size
from fermion_table.writing.incoming_rows import Partition

COLUMN_BYTES = 128
"""What a column of a batch takes beside its values, about."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree of a table: a partition and a bucket."""

    partition: Partition
    bucket: int


class BufferOwner(Protocol):
    """What flushes buffers."""

    def flush(self, tree: Tree, batches: list[pa.RecordBatch]) -> None:
        """Write the rows of a buffer."""

    def fail(self, error: BaseException) -> None:
        """Learn that rows of its buffers were lost."""


@dataclass(slots=True, eq=False)
class Buffer:
    """The rows of one tree that one writer has not written yet; only the pool changes it.

    owner: The writer, which the pool does not keep alive.
    """

    owner: weakref.ref[BufferOwner]
    tree: Tree
    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class BufferPool:
    """Memory shared by the writers that have it in their `WriteSettings`.

    A copy, as in another process, is another pool of the same size.

    Parameters
    ----------
    bytes_max
        Arrow bytes kept, or a text such as ``"512MB"``. Sorting the largest buffer needs as much
        again as that has.

    Raises
    ------
    TypeError, InvalidArgumentError
        No size.
    """

    def __init__(self, bytes_max: int | str) -> None:
        self.bytes_max = parse_size(bytes_max, "bytes_max")
        self._lock = Lock()
        self._process = process()
        self._bytes = 0
        self._buffers: SortedKeyList = SortedKeyList(key=lambda buffer: buffer.bytes)

    def __reduce__(self) -> tuple[type[BufferPool], tuple[int]]:
        return BufferPool, (self.bytes_max,)

    def __repr__(self) -> str:
        return f"BufferPool({self.bytes_max})"

    @property
    def bytes(self) -> int:
        """Arrow bytes of the rows that wait now."""
        return self._bytes

    def add(self, buffer: Buffer, rows: pa.RecordBatch, data_bytes: int | None = None) -> None:
        """Keep rows; flush the largest buffers if there are too many bytes then.

        Parameters
        ----------
        data_bytes
            Bytes of their values, where they share memory with the rows of other buffers; None:
            those that Arrow counts.

        Raises
        ------
        Exception
            What flushing a buffer of the same writer raises; other writers learn of it themselves.
        """
        with self._lock.get():
            self._leave_the_parents_rows()
            if buffer.batches:
                self._buffers.remove(buffer)
            size = rows.nbytes if data_bytes is None else data_bytes
            size += COLUMN_BYTES * (rows.num_columns + 1)
            buffer.batches.append(rows)
            buffer.bytes += size
            self._bytes += size
            self._buffers.add(buffer)
            while self._bytes > self.bytes_max:
                self._flush(self._buffers[-1], asking=buffer.owner())

    def flush(self, buffers: Iterable[Buffer]) -> None:
        """Flush buffers of one writer.

        Raises
        ------
        Exception
            What its flushing raises.
        """
        with self._lock.get():
            for buffer in buffers:
                if buffer.batches:
                    self._flush(buffer, asking=buffer.owner())

    def discard(self, buffers: Iterable[Buffer]) -> None:
        """Forget the rows of buffers."""
        with self._lock.get():
            for buffer in buffers:
                if buffer.batches:
                    self._bytes -= buffer.bytes
                    self._take(buffer)

    def _take(self, buffer: Buffer) -> list[pa.RecordBatch]:
        self._buffers.discard(buffer)  # an interrupted addition may have left it out
        batches, buffer.batches, buffer.bytes = buffer.batches, [], 0
        return batches

    def _flush(self, buffer: Buffer, asking: BufferOwner | None) -> None:
        size, owner = buffer.bytes, buffer.owner()
        batches = self._take(buffer)
        try:
            if owner is not None:  # else nobody will commit the rows
                owner.flush(buffer.tree, batches)
        except BaseException as error:
            assert owner is not None
            owner.fail(error)
            if owner is asking or not isinstance(error, Exception):
                raise
        finally:
            self._bytes -= size

    def _leave_the_parents_rows(self) -> None:
        """In a forked process: what waits belongs to writers of the parent."""
        if self._process is not process():
            self._process = process()
            self._bytes = 0
            self._buffers.clear()
