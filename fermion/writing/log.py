"""What a writer notes of the columns that it has written, stripe by stripe, for the metadata.

Of the columns that the kernel has encoded (see `flat`) it keeps one array a stripe, and makes
records of single columns only where they are asked for.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fermion import kernels
from fermion.exports import NamedTuple
from fermion.forks import cached_property
from fermion.layout import ALL_NULL_LENGTH, INT64_MAX, INT64_MIN, ChunkFlag, StreamType
from fermion.metadata.cmb import ALL_NULL_CHUNK, DEFAULT_CHUNK, ChunkRecord, build_cmb
from fermion.statistics.bounds import (
    EXACT_FLAGS,
    ColumnStatistics,
    MergedStatistics,
    chunk_statistics,
    merge_columns,
    nan_records,
)
from fermion.writing.column import ColumnPlan, ColumnPlans, EncodedColumn

Path = tuple[str, ...]
FLAT_STREAMS = 2
_DENSE = int(ChunkFlag.DENSE_NO_NULL_SLOTS)


class Chunk(enum.IntEnum):
    """What `kernels.encode_flat` says of a column in a stripe, by place in the array."""

    VALIDITY_BYTES = 0
    DATA_BYTES = 1
    MINIMUM = 2
    MAXIMUM = 3
    NULLS = 4
    FLAGS = 5
    NANS = 6
    OFFSET = 7


class WrittenColumn(NamedTuple):
    """What is kept of a column in one stripe: its records, by stream, and statistics of leaves."""

    records: Sequence[ChunkRecord]
    statistics: Mapping[Path, ColumnStatistics]
    all_null: bool


class ColumnLog:
    """Chunk records and statistics of one column, stripe by stripe."""

    __slots__ = ("has_data", "statistics", "streams")

    def __init__(self, num_streams: int) -> None:
        self.streams: list[list[ChunkRecord]] = [[] for _ in range(num_streams)]
        self.statistics: dict[Path, list[ColumnStatistics]] = {}
        self.has_data = False

    def add(self, column: WrittenColumn) -> None:
        """Note one stripe."""
        for records, record in zip(self.streams, column.records, strict=True):
            records.append(record)
        for path, statistics in column.statistics.items():
            self.statistics.setdefault(path, []).append(statistics)
        self.has_data |= not column.all_null

    def merged(self) -> MergedStatistics:
        """Statistics of the column's leaves over all stripes."""
        return MergedStatistics(self.statistics)


class _Stripe(NamedTuple):
    """Columns of one stripe.

    chunks: ``int64``, shape (columns, 8): see `Chunk`; zeros for the others.
    """

    rows: int
    chunks: np.ndarray
    others: dict[int, WrittenColumn]


class FileLog:
    """What was written of all columns of a file."""

    def __init__(self, plans: ColumnPlans) -> None:
        self._plans = plans
        self._stripes: list[_Stripe] = []

    @property
    def has_stripes(self) -> bool:
        """Whether there is any stripe."""
        return bool(self._stripes)

    def begin_stripe(self, rows: int) -> None:
        """What is added from here on is of a new stripe."""
        chunks = np.zeros((len(self._plans), len(Chunk)), np.int64)
        self._stripes.append(_Stripe(rows, chunks, {}))

    def grow(self, plans: ColumnPlans) -> None:
        """More columns follow those so far, null in every row of the stripes so far.

        plans: Of all columns; of those that follow all nodes are nullable if there are stripes.
        """
        self._plans = plans
        for place, stripe in enumerate(self._stripes):
            chunks = np.zeros((len(plans), len(Chunk)), np.int64)
            chunks[:, Chunk.VALIDITY_BYTES] = ALL_NULL_LENGTH
            chunks[:, Chunk.MINIMUM], chunks[:, Chunk.MAXIMUM] = INT64_MAX, INT64_MIN
            chunks[:, Chunk.FLAGS], chunks[:, Chunk.NULLS] = EXACT_FLAGS, stripe.rows
            chunks[: len(stripe.chunks)] = stripe.chunks
            for ordinal in range(len(stripe.chunks), len(plans)):
                types = plans.node(ordinal).stream_types()
                if len(types) > FLAT_STREAMS:
                    records = [
                        ALL_NULL_CHUNK if each is StreamType.VALIDITY else DEFAULT_CHUNK
                        for each in types
                    ]
                    stripe.others[ordinal] = WrittenColumn(records, {}, True)
                    chunks[ordinal] = 0
            self._stripes[place] = stripe._replace(chunks=chunks)

    def add(self, ordinal: int, column: EncodedColumn) -> None:
        """Note a column of the stripe."""
        records = [stream.record for stream in column.streams]
        self._stripes[-1].others[ordinal] = WrittenColumn(
            records, column.statistics, column.all_null
        )

    def add_flat(self, ordinals: np.ndarray, chunks: np.ndarray) -> None:
        """Note columns of the stripe that the kernel encoded.

        ordinals: ``int64``, shape (n,).
        chunks: ``int64``, shape (n, 8): see `Chunk`; offsets are those in the file.
        """
        self._stripes[-1].chunks[ordinals] = chunks

    def column(self, ordinal: int) -> ColumnLog:
        """What was written of one column."""
        plan = self._plans[ordinal]
        log = ColumnLog(plan.node.stop)
        for stripe in self._stripes:
            other = stripe.others.get(ordinal)
            log.add(
                flat_column(plan, stripe.chunks[ordinal], stripe.rows) if other is None else other
            )
        return log

    def others(self) -> list[int]:
        """The columns that the kernel left in some stripe, ascending."""
        return sorted({ordinal for stripe in self._stripes for ordinal in stripe.others})

    def has_data(self) -> np.ndarray:
        """Whether a column has a value: ``bool``, shape (columns,)."""
        found = np.zeros(len(self._plans), bool)
        for stripe in self._stripes:
            found |= stripe.chunks[:, Chunk.DATA_BYTES] > 0
            found[[at for at, column in stripe.others.items() if not column.all_null]] = True
        return found

    def blocks(self) -> tuple[bytearray, np.ndarray]:
        """The CMBs of all columns.

        Returns bytearray: The CMBs end to end, bound to no place.
        Returns np.ndarray: ``int64``, shape (columns,): bytes of each, 0 for a column that is null
            in all rows.
        """
        shape = len(self._stripes), len(self._plans), len(Chunk)
        chunks = np.array([stripe.chunks for stripe in self._stripes], np.int64).reshape(shape)
        stripe_rows = [stripe.rows for stripe in self._stripes]
        area, lengths = kernels.build_flat_blocks(chunks, np.array(stripe_rows, np.int64))
        others = self.others()
        if not others:
            return area, lengths
        ends, at = np.cumsum(lengths), 0
        parts: list[bytearray | memoryview] = []
        for ordinal in others:
            parts.append(memoryview(area)[at : ends[ordinal]])
            at = int(ends[ordinal])
            log = self.column(ordinal)
            if log.has_data:
                types = self._plans[ordinal].node.stream_types()
                parts.append(build_cmb(types, stripe_rows, log.streams))
                lengths[ordinal] = len(parts[-1])
        parts.append(memoryview(area)[at:])
        return bytearray().join(parts), lengths

    def statistics(self) -> Mapping[Path, ColumnStatistics]:
        """Statistics of all leaves over all stripes, by path."""
        return WrittenStatistics(self._plans, self)


class WrittenStatistics(Mapping[Path, ColumnStatistics]):
    """Statistics of leaves by their paths, merged when asked for.

    A wide file has far more columns than anybody asks for.
    """

    def __init__(self, plans: ColumnPlans, log: FileLog) -> None:
        self._plans, self._log = plans, log

    @cached_property
    def _ordinals(self) -> dict[Path, int]:
        """The column of each leaf, in the order of the columns."""
        if not self._log.has_stripes:
            return {}
        names, others = self._plans.names, set(self._log.others())
        found: dict[Path, int] = {}
        for ordinal, name in enumerate(names):
            if ordinal in others:
                found.update(dict.fromkeys(self._log.column(ordinal).statistics, ordinal))
            else:
                found[(name,)] = ordinal
        return found

    def __getitem__(self, path: Path) -> ColumnStatistics:
        return merge_columns(self._log.column(self._ordinals[path]).statistics[path])

    def __iter__(self) -> Iterator[Path]:
        return iter(self._ordinals)

    def __len__(self) -> int:
        return len(self._ordinals)

    def __repr__(self) -> str:
        return f"<statistics of {len(self)} leaves>"


def page_starts(chunks: np.ndarray) -> tuple[np.ndarray, int]:
    """Where the pages of columns that the kernel encoded start: ``int64``; and where they end.

    chunks: ``int64``, shape (n, 8), at least one: see `Chunk`.
    """
    offsets, data = chunks[:, Chunk.OFFSET], chunks[:, Chunk.DATA_BYTES]
    validity = np.where(data > 0, chunks[:, Chunk.VALIDITY_BYTES], 0)
    starts = np.concatenate((offsets[validity > 0], (offsets + validity)[data > 0]))
    return starts, int(offsets[-1] + validity[-1] + data[-1])


def flat_column(plan: ColumnPlan, chunk: np.ndarray, rows: int) -> WrittenColumn:
    """What `FileLog.add` would keep of a column that the kernel encoded.

    chunk: ``int64``, shape (8,): see `Chunk`.
    """
    node = plan.node
    validity_bytes, data_bytes, minimum, maximum, nulls, flags, nans, offset = chunk.tolist()
    statistics = chunk_statistics(minimum, maximum, flags & ~_DENSE, nulls, nans, rows, node.order)
    found = {plan.paths[node.stream]: statistics}
    if not data_bytes:
        return WrittenColumn([ALL_NULL_CHUNK, DEFAULT_CHUNK], found, True)
    validity = DEFAULT_CHUNK
    if validity_bytes:
        validity = _record(offset, validity_bytes, rows, nulls, 0, null_count=nulls)
    data = _record(offset + validity_bytes, data_bytes, rows, minimum, maximum, null_count=nulls)
    data.minimum, data.maximum, data.flags = minimum, maximum, flags
    data.extension.update(nan_records(nans))
    return WrittenColumn([validity, data], found, False)


def _record(
    offset: int, size: int, rows: int, low: int, high: int, *, null_count: int
) -> ChunkRecord:
    return ChunkRecord(
        offset=offset,
        length=size,
        minimum=INT64_MAX,
        maximum=INT64_MIN,
        null_count=null_count,
        page_sizes=(size,),
        page_rows=(rows,),
        page_mins=(low,),
        page_maxs=(high,),
    )
