"""Small flat columns of a stripe → pages, hundreds in one call; `reading.one_page` reads them.

A wide table is thousands of columns with a few kilobytes each, where looking for the best encoding
in Python takes far longer than encoding. The kernel does both for what such columns mostly are,
and leaves the others to `column`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import get_type_hints

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.types import Form, Node, Order, PhysicalKind
from fermion.encodings.choice.policy import (
    LIMITS,
    SMALL_BYTES_MAX,
    Limits,
    Policy,
    Rule,
    Rules,
    policy_for,
)
from fermion.encodings.pcodec import node_body
from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple, dataclass
from fermion.io.compression import compress
from fermion.layout import PAGE_ALIGNMENT, Codec, EncodingId
from fermion.options import WriteOptions
from fermion.pages.pages import EncodedStream
from fermion.statistics.bounds import LONG_CHUNK_BYTES_MIN
from fermion.writing.column import ColumnPlans, EncodedColumn
from fermion.writing.log import Chunk, FileLog


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Neighbours among the columns of a stripe, encoded.

    ordinals: ``int64``, shape (n,): the columns, in the order of their data.
    pages, chunks: Of those that the kernel encoded; see `EncodedFlat`.
    """

    ordinals: np.ndarray
    pages: bytearray
    chunks: np.ndarray
    others: dict[int, EncodedColumn] = field(default_factory=dict)

    def left(self) -> np.ndarray:
        """The columns that the kernel left: ``int64``."""
        return self.ordinals[~self._is_flat()]

    def _is_flat(self) -> np.ndarray:
        return self.chunks[:, Chunk.VALIDITY_BYTES] + self.chunks[:, Chunk.DATA_BYTES] > 0

    def runs(self) -> Iterator[slice | int]:
        """The columns in order: places of neighbours that the kernel encoded, or an ordinal."""
        at = 0
        for place in [*np.flatnonzero(~self._is_flat()).tolist(), len(self.ordinals)]:
            if at < place:
                yield slice(at, place)
            if place < len(self.ordinals):
                yield int(self.ordinals[place])
            at = place + 1

    @property
    def size(self) -> int:
        """Bytes of the pages."""
        return len(self.pages) + sum(page_bytes(column.streams) for column in self.others.values())


def page_bytes(streams: Sequence[EncodedStream]) -> int:
    """Bytes of the pages of some streams."""
    return sum(len(page) for stream in streams for page in stream.pages)


COLUMNS_PER_CALL = 1024
"""Python looks for an interrupt in between."""
COLUMN_BYTES_MAX = SMALL_BYTES_MAX
"""Of columns with more bytes, encoding takes so long that nothing is gained."""


class FlatLimits(NamedTuple):
    """What the kernel needs to know beside the policy.

    nulls_share_min: Null slots are left out where there are more. Fewer than elsewhere: the kernels
        leave them out and put them back in no time.
    chunk_bytes_max: Strings whose page would have as many bytes are left: their bounds are stored
        in full.
    strings_bytes_max: Strings of as many bytes that are mostly different are left, as they make
        such chunks.
    """

    nulls_share_min: float = 0.1
    chunk_bytes_max: int = LONG_CHUNK_BYTES_MIN
    strings_bytes_max: int = 32 * 1024


def _fields(record: type) -> list[tuple[str, str]]:
    """The fields of a named tuple of numbers, as NumPy describes them."""
    kinds = get_type_hints(record)
    return [(name, "f8" if kind is float else "i8") for name, kind in kinds.items()]


FORM = np.dtype([(name, "i8") for name in ("place", "letter", "width", "nullable", "page_bytes")])
POLICY = np.dtype(
    [*((name, _fields(Rule)) for name in Rules._fields), *_fields(Limits), *_fields(FlatLimits)]
)

_NO_FORM: Form = (0, 0)
_ENCODINGS = {
    EncodingId.PLAIN,
    EncodingId.CONSTANT,
    EncodingId.BITMAP,
    EncodingId.FOR_BITPACK,
    EncodingId.ALP,
    EncodingId.SPLIT_LENGTHS,
    EncodingId.DICTIONARY_LOCAL,
    EncodingId.DELTA,
    EncodingId.RLE,
    EncodingId.PCODEC,
    EncodingId.ZSTD,
    EncodingId.NARROW,
}


class FlatColumns(NamedTuple):
    """Columns of a stripe where the kernel finds them.

    array: The capsule of a record batch.
    places: ``int64``, shape (columns,): the place in that batch of each column of the table.
    """

    array: object
    places: np.ndarray


class EncodedFlat(NamedTuple):
    """Pages of some columns, and what the kernel found: see `kernels.encode_flat`."""

    pages: bytearray
    chunks: np.ndarray


class FlatWriter:
    """Encodes those columns of a table that can be encoded the short way.

    options: How to write; some leave no column to be encoded so.

    Attributes:
    policy: What the kernel goes by: of `POLICY`, shape (1,).
    """

    def __init__(self, plans: ColumnPlans, options: WriteOptions) -> None:
        policy = policy_for(options)
        self.policy = np.array([(*policy.rules, *LIMITS, *FlatLimits())], POLICY)
        self._zip = partial(compress, level=policy.settings.level)
        self._entropy = partial(_entropy_coded, policy.settings.block_slots)
        self._rows_max = options.page_rows_max
        nodes = plans.nodes
        suited = _is_suited(policy, options)
        forms = [_form(node) if suited else _NO_FORM for node in nodes]
        shapes = np.zeros(len(nodes), FORM)
        shapes["letter"] = [letter for letter, _ in forms]
        shapes["width"] = [width for _, width in forms]
        shapes["nullable"] = [node.nullable for node in nodes]
        shapes["page_bytes"] = min(COLUMN_BYTES_MAX, options.page_bytes)
        self._forms = shapes[plans.shapes]
        self._letters = self._forms["letter"]
        self._heed(plans.names, options)
        self.has_columns = bool(self._letters.any())

    def _heed(self, names: Sequence[str], options: WriteOptions) -> None:
        """What the options ask of single columns."""
        special = {
            *options.encodings,
            *options.global_dictionaries,
            *options.bloom_filters,
            *options.page_bloom_filters,
            *options.summaries,
            *(key.name for key in options.sort_keys),
        }
        if special:
            self._letters[[name in special for name in names]] = 0
        wanted = options.statistics
        if not isinstance(wanted, bool):
            self._letters[[name not in wanted for name in names]] = 0
        elif not wanted:
            self._letters[:] = 0
        sizes = options.column_page_bytes
        for ordinal, name in enumerate(names) if sizes else ():
            if name in sizes:
                self._forms["page_bytes"][ordinal] = min(COLUMN_BYTES_MAX, sizes[name])

    def columns(self, table: pa.Table, first: int = 0) -> FlatColumns | None:
        """The columns of a stripe; None where none of them can be encoded the short way.

        first: The ordinal of the table's first column.
        """
        if not self.has_columns or not 0 < table.num_rows <= self._rows_max:
            return None
        places = np.arange(-first, table.num_columns)
        batches = table.to_batches()
        if len(batches) > 1:
            flat = np.flatnonzero(self._letters)
            places = np.zeros(table.num_columns, np.int64)
            places[flat] = np.arange(len(flat))
            batches = table.select(flat.tolist()).combine_chunks().to_batches()
        try:
            (batch,) = batches
            batch.validate()
        except (ValueError, pa.ArrowException):  # not well-formed, which the way around says
            return None
        return FlatColumns(batch.__arrow_c_array__()[1], places)

    def encode(self, columns: FlatColumns, ordinals: np.ndarray) -> EncodedFlat:
        """Some columns of a stripe; any number of threads may call this.

        ordinals: ``int64``, shape (n,): the columns.
        """
        chunks = np.zeros((len(ordinals), len(Chunk)), np.int64)
        known = np.flatnonzero(self._letters[ordinals])
        flat = ordinals[known]
        forms = self._forms[flat]
        forms["place"] = columns.places[flat]
        pages, chunks[known] = kernels.encode_flat(
            columns.array, forms, self.policy, self._zip, self._entropy
        )
        return EncodedFlat(pages, chunks)


def _is_suited(policy: Policy, options: WriteOptions) -> bool:
    """Whether the kernel writes what the options ask for."""
    settings = policy.settings
    return (
        settings.codec is Codec.ZSTD
        and settings.frame_bytes >= COLUMN_BYTES_MAX
        and set(settings.encodings) >= _ENCODINGS
        and options.align != PAGE_ALIGNMENT
        and options.checksum == "crc32c"
    )


def _entropy_coded(block_slots: int, data: memoryview, letter: str, width: int) -> bytes:
    """A node's bytes of what pcodec makes of numbers; none where it cannot hold them."""
    try:
        return b"".join(node_body(np.frombuffer(data, f"<{letter}{width}"), block_slots))
    except (RuntimeError, InvalidArgumentError):
        return b""


def _form(node: Node) -> Form:
    """The form of a column that the kernel may take; it may still leave it."""
    form = node.form
    if form is None or node.physical is None or node.order is Order.NONE:
        return _NO_FORM
    if node.physical.kind is not PhysicalKind.FIXED:
        return form
    return (ord("d"), node.physical.width) if node.order is Order.DECIMAL else _NO_FORM


Tables = Iterator[tuple[int, pa.Table]]
"""Columns of keys of a stripe, some at once, and the place of the first."""


@dataclass(slots=True)
class ColumnSet:
    """Columns that are written in the same way: the user's, or those of the keys of a map."""

    plans: ColumnPlans
    flat: FlatWriter
    log: FileLog
    placed: list[int]

    @classmethod
    def of(cls, plans: ColumnPlans, options: WriteOptions, placed: Iterable[int]) -> ColumnSet:
        """The columns of some plans, in the order of their data."""
        return cls(plans, FlatWriter(plans, options), FileLog(plans), list(placed))

    def grow(self, fields: Sequence[pa.Field], options: WriteOptions) -> None:
        """Have more columns from the next stripe on.

        fields: Those that are there, and the new ones.
        """
        self.plans = ColumnPlans(pa.schema(fields), options)
        self.flat = FlatWriter(self.plans, options)
        self.log.grow(self.plans)
        self.placed = list(range(len(self.plans)))
