"""Small flat columns of a stripe → pages, dozens in one call; `flat_columns` is the way back.

A wide table is thousands of columns with a few kilobytes each, where looking for the best encoding
in Python takes far longer than encoding. The kernel does both for what such columns mostly are,
and leaves the others to `column`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.types import Form, Order, flat_form
from fermion.columns.values import PhysicalKind
from fermion.encodings.alp import SAMPLE_PART_MIN, SAMPLE_VALUES
from fermion.encodings.choice.choose import SMALL_LZ_BYTES_MIN
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.choice.search import (
    SLOTS_PER_ENTRY_MIN,
    STRINGS_TRIAL_BYTES_MIN,
    TRIAL_BYTES_MIN,
)
from fermion.encodings.rle import RUN_SLOTS_MIN
from fermion.io.compression import compress
from fermion.layout import INT64_MAX, INT64_MIN, PAGE_ALIGNMENT, ChunkFlag, Codec, EncodingId
from fermion.metadata.cmb import DEFAULT_CHUNK, ChunkRecord
from fermion.options import WriteOptions
from fermion.pages.encoded import EncodedStream
from fermion.pages.pages import WORTHWHILE_RATIO
from fermion.statistics.bounds import chunk_statistics
from fermion.statistics.details import LONG_CHUNK_BYTES_MIN, nan_records
from fermion.writing.column import ColumnPlan, EncodedColumn

COLUMN_BYTES_MAX = 64 * 1024
"""Of columns with more bytes, encoding takes so long that nothing is gained."""

# Fewer than elsewhere: the kernels leave null slots out and put them back in no time.
NULLS_SHARE_MIN = 0.1
_NOTHING = b""
_DENSE = int(ChunkFlag.DENSE_NO_NULL_SLOTS)
_ENCODINGS = {
    EncodingId.PLAIN,
    EncodingId.CONSTANT,
    EncodingId.BITMAP,
    EncodingId.FOR_BITPACK,
    EncodingId.ALP,
    EncodingId.SPLIT_LENGTHS,
    EncodingId.DICTIONARY_LOCAL,
}
_KINDS_LEFT = (PhysicalKind.BITS, PhysicalKind.FIXED, PhysicalKind.UINT64)


class FlatWriter:
    """Encodes those columns of a table that can be encoded the short way.

    Parameters
    ----------
    plans
        One a column.
    options
        How to write; some leave no column to be encoded so.
    """

    def __init__(self, plans: Sequence[ColumnPlan], options: WriteOptions) -> None:
        policy = policy_for(options)
        self._plans, self._ratio = plans, policy.entropy_ratio
        self._zip = partial(compress, level=policy.settings.level)
        suited = (
            0 < self._ratio < 1
            and self._ratio == policy.numbers_lz_ratio == policy.strings_lz_ratio
            and policy.settings.codec is Codec.ZSTD
            and set(policy.settings.encodings) >= _ENCODINGS
            and options.align != PAGE_ALIGNMENT
            and options.checksum == "crc32c"
        )
        self._rows_max = options.page_rows_max if suited else 0
        self._forms = [_form(plan) if suited else None for plan in plans]
        self.has_columns = any(form is not None for form in self._forms)

    def encode(
        self, columns: Sequence[pa.ChunkedArray], ordinals: Sequence[int]
    ) -> list[EncodedColumn | None]:
        """Some columns of a stripe; any number of threads may call this.

        Returns
        -------
        None for a column that has to be encoded otherwise.
        """
        found: list[EncodedColumn | None] = [None] * len(ordinals)
        arrays = [
            (place, array)
            for place, ordinal in enumerate(ordinals)
            if (array := self._suited(ordinal, columns[ordinal])) is not None
        ]
        if not arrays:
            return found
        try:
            pages, results = self._pages([ordinals[place] for place, _ in arrays], arrays)
        except (ValueError, TypeError):  # not well-formed, which the way around tells in words
            return found
        rows = len(arrays[0][1])
        start = 0
        for (place, _), result in zip(arrays, results.tolist(), strict=True):
            if result[1]:
                stop = start + result[0] + result[1]
                plan = self._plans[ordinals[place]]
                found[place] = _encoded(plan, rows, pages[start:stop], *result)
                start = stop
        return found

    def _pages(
        self, ordinals: Sequence[int], arrays: Sequence[tuple[int, pa.Array]]
    ) -> tuple[bytearray, np.ndarray]:
        """What the kernel makes of some columns; see `kernels.encode_flat`."""
        buffers = [array.buffers() for _, array in arrays]
        forms = [self._forms[ordinal] or (0, 0) for ordinal in ordinals]
        return kernels.encode_flat(
            [
                (parts[0] if array.null_count else None) or _NOTHING
                for parts, (_, array) in zip(buffers, arrays, strict=True)
            ],
            [parts[1] or _NOTHING for parts in buffers],
            [(parts[2] if len(parts) > 2 else None) or _NOTHING for parts in buffers],
            np.array([array.offset for _, array in arrays], np.int64),
            bytes([letter for letter, _ in forms]),
            np.array([width for _, width in forms], np.int64),
            len(arrays[0][1]),
            NULLS_SHARE_MIN,
            self._ratio,
            TRIAL_BYTES_MIN,
            STRINGS_TRIAL_BYTES_MIN,
            LONG_CHUNK_BYTES_MIN,
            WORTHWHILE_RATIO,
            SMALL_LZ_BYTES_MIN,
            RUN_SLOTS_MIN,
            SLOTS_PER_ENTRY_MIN,
            SAMPLE_VALUES,
            SAMPLE_PART_MIN,
            self._zip,
        )

    def _suited(self, ordinal: int, column: pa.ChunkedArray) -> pa.Array | None:
        """The array of a column that the kernel may take; it may still leave it."""
        form = self._forms[ordinal]
        if form is None or column.num_chunks != 1:
            return None
        array = column.chunk(0)
        plan = self._plans[ordinal]
        page_bytes = min(COLUMN_BYTES_MAX, plan.page_limits()["page_bytes"])
        fits = 0 < len(array) <= self._rows_max and len(array) * form[1] <= page_bytes
        if not fits or array.type != plan.node.type:
            return None
        if array.null_count and (not plan.node.nullable or array.null_count == len(array)):
            return None
        return array if form[0] != ord("s") or array.nbytes <= page_bytes else None


def _form(plan: ColumnPlan) -> Form | None:
    """The form of a column of which nothing special is asked; None for any other."""
    node = plan.node
    form = flat_form(node)
    if form is None or node.physical is None or node.physical.kind in _KINDS_LEFT or form[1] == 1:
        return None
    stream = node.stream
    options = plan.options
    special = (*options.bloom_filters, *options.page_bloom_filters, *options.summaries)
    plain = plan.forced(stream) is None and not plan.dictionaries and not plan.is_sorted_by()
    plain = plain and not plan.is_named(stream, special)
    wanted = node.order is not Order.NONE and plan.wants_statistics(stream)
    half = form == (ord("f"), 2)
    return form if plain and wanted and not half else None


def _encoded(
    plan: ColumnPlan,
    rows: int,
    pages: bytearray,
    validity_bytes: int,
    data_bytes: int,
    minimum: int,
    maximum: int,
    nulls: int,
    flags: int,
    nans: int,
) -> EncodedColumn:
    node = plan.node
    validity = EncodedStream(DEFAULT_CHUNK)
    if validity_bytes:
        record = _record(validity_bytes, rows, nulls, 0, null_count=nulls)
        validity = EncodedStream(record, [pages[:validity_bytes]])
    record = _record(data_bytes, rows, minimum, maximum, null_count=nulls)
    record.minimum, record.maximum, record.flags = minimum, maximum, flags
    record.extension.update(nan_records(nans))
    data = EncodedStream(record, [pages[validity_bytes:]])
    seen = flags & ~_DENSE
    statistics = chunk_statistics(minimum, maximum, seen, nulls, nans, rows, node.order)
    return EncodedColumn([validity, data], {plan.paths[node.stream]: statistics}, False)


def _record(size: int, rows: int, low: int, high: int, *, null_count: int) -> ChunkRecord:
    return ChunkRecord(
        length=size,
        minimum=INT64_MAX,
        maximum=INT64_MIN,
        null_count=null_count,
        page_sizes=(size,),
        page_rows=(rows,),
        page_mins=(low,),
        page_maxs=(high,),
    )
