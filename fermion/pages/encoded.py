"""Encoded streams: a chunk's pages with the record that describes them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fermion.errors import InvalidArgumentError
from fermion.layout import CHUNK_LENGTH_MAX, INT64_MAX, INT64_MIN, ChunkFlag
from fermion.metadata.cmb import ChunkRecord
from fermion.pages.pages import EncodedChunk
from fermion.statistics.bloom import BuiltFilters


@dataclass(slots=True)
class EncodedStream:
    """Pages of one stream's chunk, its bloom filters, and its record, which lacks only offsets."""

    record: ChunkRecord
    pages: list[bytearray] = field(default_factory=list)
    filters: list[BuiltFilters] = field(default_factory=list)


def encoded_stream(
    chunk: EncodedChunk,
    cuts: np.ndarray,
    mins: np.ndarray,
    maxs: np.ndarray,
    *,
    minimum: int = INT64_MAX,
    maximum: int = INT64_MIN,
    flags: int = 0,
    null_count: int = 0,
) -> EncodedStream:
    """Put a chunk's pages together with the record that describes them.

    Parameters
    ----------
    cuts
        ``int64``, shape (pages + 1,): slots at which pages begin and end, without a dictionary.
    mins, maxs
        ``int64``, shape (pages,): PAGE_META bounds.
    minimum, maximum, flags, null_count
        Of the chunk.
    """
    sizes = tuple([len(page) for page in chunk.pages])
    rows, lows, highs = (tuple(each.tolist()) for each in (np.diff(cuts), mins, maxs))
    if chunk.has_dictionary:
        rows, lows, highs = (0, *rows), (INT64_MIN, *lows), (INT64_MAX, *highs)
        flags |= ChunkFlag.FIRST_PAGE_IS_DICT
    if chunk.nulls_removed:
        flags |= ChunkFlag.DENSE_NO_NULL_SLOTS
    if chunk.shared_entries:
        flags |= ChunkFlag.USES_GLOBAL_DICT
    if sum(sizes) > CHUNK_LENGTH_MAX:
        raise InvalidArgumentError(
            f"a chunk of {sum(sizes)} bytes; at most {CHUNK_LENGTH_MAX} fit: lower stripe_bytes"
        )
    record = ChunkRecord(
        length=sum(sizes),
        flags=int(flags),
        minimum=minimum,
        maximum=maximum,
        null_count=null_count,
        page_sizes=sizes,
        page_rows=rows,
        page_mins=lows,
        page_maxs=highs,
        shared_entries=chunk.shared_entries,
    )
    return EncodedStream(record, list(chunk.pages))
