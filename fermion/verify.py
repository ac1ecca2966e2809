"""Checks a whole file: every checksum, every invariant, every value against its bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fermion.arrow_types import Node, NodeKind
from fermion.batch_lookup import BatchLookup
from fermion.bloom import BloomFilter, parse_bloom_record
from fermion.cmb import Chunk, ColumnBlock
from fermion.column_reader import ColumnTask
from fermion.errors import FermionError
from fermion.file_index import FileIndex
from fermion.footer import parse_head
from fermion.layout import HEAD, ChunkFlag, ExtTag
from fermion.statistics import PageStatistics, merge, page_statistics
from fermion.stream_decoder import DecodeOptions
from fermion.streams import ColumnStreams


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification found.

    Attributes
    ----------
    problems
        One sentence each; none when the file is sound.
    columns, pages, bytes_read
        What was checked.
    """

    path: str
    problems: tuple[str, ...]
    columns: int
    pages: int
    bytes_read: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_file(index: FileIndex) -> VerifyReport:
    """Read everything and check it; problems are collected, column by column."""
    before = index.source.stats.bytes_requested
    problems: list[str] = []
    pages = columns = 0
    try:
        parse_head(index.source.read(0, HEAD.itemsize), where=index.where)
        index.tail.verify_all()
        _ = index.schema, index.stripe_rows, index.key_value_metadata
    except FermionError as error:
        problems.append(str(error))
        return VerifyReport(index.where, tuple(problems), 0, 0, _read_since(index, before))
    options = DecodeOptions(index.footer.checksum_kind, True, index.where)
    for ordinal in range(index.footer.num_columns):
        try:
            pages += _verify_column(index, ordinal, options)
        except FermionError as error:
            problems.append(str(error))
        columns += 1
    if index.footer.is_batch:
        try:
            lookup = BatchLookup(index, verify=True, checksum=options.checksum)
            for stripe in range(index.footer.num_stripes):
                lookup.stripe(stripe)
        except FermionError as error:
            problems.append(str(error))
    return VerifyReport(index.where, tuple(problems), columns, pages, _read_since(index, before))


def _read_since(index: FileIndex, before: int) -> int:
    return index.source.stats.bytes_requested - before


def _verify_column(index: FileIndex, ordinal: int, options: DecodeOptions) -> int:
    (block,) = index.blocks([ordinal])
    node = index.node(ordinal)
    if block is None:
        if not node.nullable and index.footer.num_rows:
            raise _column_error(index, node.name, "has no CMB, but the field is not nullable")
        return 0
    pages = 0
    for stripe, rows in enumerate(index.stripe_rows.tolist()):
        task = ColumnTask(node, block, stripe, rows, None, options)
        task.feed(index.source.read_many(task.plan()))
        _validate(task.array(), block, stripe)
        for leaf in node.walk():
            chunk = block.chunk(leaf.stream, stripe) if leaf.stream >= 0 else None
            if chunk is None or chunk.is_empty:
                continue
            pages += chunk.num_pages
            if leaf.kind is NodeKind.LEAF:
                _check_bloom(index, block, chunk, leaf, task.streams)
            if leaf.kind is NodeKind.LEAF and chunk.flags & ChunkFlag.HAS_MINMAX:
                values = task.streams.data[leaf.stream]
                validity = task.streams.validity[leaf.validity]
                cuts = _cuts(block, chunk, len(values))
                found = page_statistics(values, validity, cuts, leaf)
                _check_bounds(block, chunk, found, len(values), stripe)
                nulls = int(found.null_count.sum())
                if nulls != chunk.null_count:
                    raise block.error(
                        f"stripe {stripe}: expected {chunk.null_count} nulls, found {nulls}"
                    )
    return pages


def _validate(array: pa.Array, block: ColumnBlock, stripe: int) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise block.error(
            f"stripe {stripe}: values that its type does not allow: {error}"
        ) from None


def _check_bloom(
    index: FileIndex, block: ColumnBlock, chunk: Chunk, leaf: Node, streams: ColumnStreams
) -> None:
    record = block.extension(chunk).get(ExtTag.BLOOM)
    if record is None:
        return
    offset, length, crc = parse_bloom_record(record, index.footer.cmb_offset, index.where)
    bloom = BloomFilter(index.source.read(offset, length), crc, index.where)
    if not bloom.contains_all(streams.data[leaf.stream], streams.validity[leaf.validity], leaf):
        raise block.error(f"the bloom filter at {offset} lacks a value of the chunk")


def _column_error(index: FileIndex, name: str, what: str) -> FermionError:
    """An error that names file and column."""
    return FermionError(f"{index.where}: column {name!r} {what}")


def _cuts(block: ColumnBlock, chunk: Chunk, slots: int) -> np.ndarray:
    pages = block.pages(chunk)
    if pages is None:
        return np.array([0, slots], np.int64)
    rows = (
        pages["rowCount"][1:] if chunk.flags & ChunkFlag.FIRST_PAGE_IS_DICT else pages["rowCount"]
    )
    return np.concatenate(([0], np.cumsum(rows, dtype=np.int64)))


def _check_bounds(
    block: ColumnBlock, chunk: Chunk, found: PageStatistics, rows: int, stripe: int
) -> None:
    whole = merge(found, rows)
    if whole.has_values and not chunk.minimum <= whole.min <= whole.max <= chunk.maximum:
        raise block.error(f"stripe {stripe}: values lie outside the chunk's bounds")
    pages = block.pages(chunk)
    if pages is None:
        return
    skip = int(bool(chunk.flags & ChunkFlag.FIRST_PAGE_IS_DICT))
    outside = (found.min < pages["minVal"][skip:]) | (found.max > pages["maxVal"][skip:])
    outside &= found.min <= found.max
    if outside.any():
        page = int(np.flatnonzero(outside)[0])
        raise block.error(f"stripe {stripe}, page {page}: values lie outside the page's bounds")
