"""Checks a whole file: every checksum, every invariant, every value against its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fermion.columns.filled import check_filled
from fermion.columns.types import Bits, ColumnStreams, Node, NodeKind, Order, Values, slice_values
from fermion.columns.validity import to_flags
from fermion.display import short_repr
from fermion.errors import FermionError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, NamedTuple, dataclass
from fermion.io.source import CountingSource, Source
from fermion.layout import (
    ALIGNED_PAGE_START,
    FILE_STATISTICS_ENTRY,
    FOOTER,
    HEAD,
    INT64_MAX,
    INT64_MIN,
    PAGE_ALIGNMENT,
    SETTING_CHECKSUM_MASK,
    ChunkFlag,
    DescType,
    ExtTag,
    SectionKind,
    Setting,
)
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.metadata.footer import parse_head
from fermion.metadata.sort_order import OrderCheck
from fermion.options import ReadOptions
from fermion.pages.global_dictionary import GlobalDictionaries, dictionary_record
from fermion.reading.batches import BatchLookup
from fermion.reading.column import ColumnTask, feed_planned
from fermion.reading.column_metadata import stored_statistics
from fermion.reading.index import FileIndex
from fermion.reading.projection import project
from fermion.reading.stream import DecodeOptions
from fermion.reading.stripe import StripeReader
from fermion.statistics.bloom import parse_bloom_record, parse_page_bloom_record, read_filters
from fermion.statistics.bounds import (
    CONTENT_TAGS,
    EXACT_FLAGS,
    ColumnStatistics,
    PageStatistics,
    chunk_statistics,
    content_records,
    long_bounds,
    merge,
    merge_columns,
    nan_count,
    page_null_counts,
    page_statistics,
    recorded_bound,
)

if TYPE_CHECKING:
    from fermion.blobs import references, values
else:  # few files have blobs
    references = LoadedWhenAskedFor("fermion.blobs.references")
    values = LoadedWhenAskedFor("fermion.blobs.values")

GAP_BYTES, SPAN_BYTES = 64 * 1024, 4 * 1024 * 1024
_CLAIMS = ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT | ChunkFlag.SORTED_ASC | ChunkFlag.SORTED_DESC


class _FileClaim(NamedTuple):
    """What the section of file statistics says of a column."""

    flags: int
    min: int
    max: int
    null_count: int


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

    __repr__ = short_repr

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def verify_again(index: FileIndex) -> VerifyReport:
    """Check an open file as it is stored now: nothing that was read before is relied on.

    Another object in its place is a problem. A local file stays the one that is open, whatever has
    its name by now.
    """
    source = index.source.again()
    try:
        found = FileIndex(source, index.options)
        if found.footer != index.footer:
            raise InvalidFileError(f"{index.where}: another file than when it was opened")
        return verify_file(found)
    except FermionError as error:
        return VerifyReport(index.where, (str(error),), 0, 0, source.stats.bytes_requested)
    finally:
        source.source.close()


def verify_file(index: FileIndex) -> VerifyReport:
    """Read everything and check it; problems are collected, column by column."""
    before = index.source.stats.bytes_requested
    try:
        parse_head(index.source.read(0, HEAD.itemsize), where=index.where)
        index.tail.verify_all()
        _ = index.schema, index.stripe_rows, index.key_value_metadata
        _ = [each.keys for each in index.map_keys.values()]
    except FermionError as error:
        return VerifyReport(index.where, (str(error),), 0, 0, _read_since(index, before))
    options = DecodeOptions(
        index.footer.page_checks(True), index.where, GlobalDictionaries(index.where)
    )
    problems, pages = _reserved_bytes(index), 0
    claims: dict[int, _FileClaim] = {}
    try:
        claims = _file_claims(index)
    except FermionError as error:
        problems.append(str(error))
    of_keys = [ordinal for keys in index.map_keys.values() for ordinal in keys.ordinals]
    for ordinal in (*range(index.footer.num_columns), *of_keys):
        try:
            pages += _verify_column(index, ordinal, options)
            if ordinal in claims:
                _check_file_claim(index, ordinal, claims[ordinal])
        except FermionError as error:
            problems.append(str(error))
    for check in (_check_order, _check_maps, _check_blobs):
        try:
            check(index, options)
        except FermionError as error:
            problems.append(str(error))
    if index.footer.is_batch:
        try:
            if index.footer.is_aligned:
                (block,) = index.blocks([index.footer.num_columns])
                if block is not None:
                    _check_alignment(index, block)
            lookup = BatchLookup(index, checks=options.checks)
            for stripe in range(index.footer.num_stripes):
                lookup.positions(stripe)
        except FermionError as error:
            problems.append(str(error))
    columns = index.footer.num_columns
    return VerifyReport(index.where, tuple(problems), columns, pages, _read_since(index, before))


def verify_written(source: Source) -> None:
    """Verify a file that a writer has just finished, and close it.

    Raises InvalidFileError: Something is wrong with it, or with what the storage gives back of it.
    """
    try:
        counting = CountingSource(source, gap_bytes_max=GAP_BYTES, span_bytes_max=SPAN_BYTES)
        report = verify_file(FileIndex(counting, ReadOptions()))
    except FermionError as error:
        raise InvalidFileError(f"{source.name}: read back after writing: {error}") from error
    finally:
        source.close()
    if not report.ok:
        raise InvalidFileError(
            f"{source.name}: read back after writing: expected no problems, found "
            f"{len(report.problems)}, the first: {report.problems[0]}"
        )


def _read_since(index: FileIndex, before: int) -> int:
    return index.source.stats.bytes_requested - before


def _reserved_bytes(index: FileIndex) -> list[str]:
    """What of the footer has no meaning and yet is not zero."""
    offset = index.footer.file_length - FOOTER.itemsize
    raw = np.frombuffer(index.source.read(offset, FOOTER.itemsize), np.uint8).copy()
    for kind, at, *_ in (FOOTER.fields or {}).values():
        raw[at : at + kind.itemsize] = 0
    found = [
        f"{index.where}: footer: byte {at} is reserved, expected 0, found {raw[at]}"
        for at in np.flatnonzero(raw).tolist()
    ]
    known = SETTING_CHECKSUM_MASK | sum(Setting)
    if index.footer.settings & ~known:
        unknown = index.footer.settings & ~known
        found.append(f"{index.where}: footer: unknown settings {unknown:#x}, expected 0")
    if index.footer.identity.place_key != index.footer.place_key:
        found.append(f"{index.where}: footer: place_key without the feature PLACED, expected 0")
    if index.footer.previous_footer_offset:
        found.append(f"{index.where}: footer: previous_footer_offset is reserved, expected 0")
    return found


def _verify_column(index: FileIndex, ordinal: int, options: DecodeOptions) -> int:
    (block,) = index.blocks([ordinal])
    node = index.node(ordinal)
    if block is None:
        if not node.nullable and index.footer.num_rows:
            raise _column_error(index, node.name, "has no CMB, but the field is not nullable")
        return 0
    pages = 0
    if index.footer.is_aligned:
        _check_alignment(index, block)
    for stripe, rows in enumerate(index.stripe_rows.tolist()):
        task = ColumnTask(node, block, stripe, rows, None, options)
        feed_planned(index.source, task)
        _validate(index.restored(node, ordinal, stripe, task.array()), block, stripe)
        for each in node.walk():
            pages += _check_node(index, block, each, stripe, task.streams)
    _check_dictionaries(block, node, options.dictionaries)
    return pages


def _check_order(index: FileIndex, options: DecodeOptions) -> None:
    """Compare each row with the next in the columns that the rows are said to be sorted by."""
    if index.footer.is_sorted != (SectionKind.SORT_ORDER in index.sections):
        raise InvalidFileError(f"{index.where}: SORTED and SORT_ORDER: expected both, found one")
    if not index.sort_order:
        return
    check = OrderCheck([key for _, key in index.sort_order])
    nodes = [index.node(ordinal) for ordinal, _ in index.sort_order]
    blocks = index.blocks(ordinal for ordinal, _ in index.sort_order)
    for stripe, rows in enumerate(index.stripe_rows.tolist()):
        columns = []
        for node, block in zip(nodes, blocks, strict=True):
            if block is None:
                check_filled(node.storage, rows, f"column {node.name!r}")
                columns.append(pa.chunked_array([pa.nulls(rows, node.storage)]))
                continue
            task = ColumnTask(node, block, stripe, rows, None, options)
            feed_planned(index.source, task)
            columns.append(pa.chunked_array([task.array()]))
        wrong = check.first_wrong(columns)
        if wrong is not None:
            raise InvalidFileError(f"{index.where}: sort order: {wrong}")


def _check_maps(index: FileIndex, options: DecodeOptions) -> None:
    """Put shredded maps together, which finds keys that a map has twice and entries below nulls."""
    for ordinal in index.map_keys:
        reader = StripeReader(index, None)
        for stripe in range(index.footer.num_stripes):
            reader.batch(project(index, [ordinal]), stripe, None)


def _check_blobs(index: FileIndex, options: DecodeOptions) -> None:
    """Read every blob within the file; those of other files are not looked at."""
    if not index.footer.has_blobs:
        return
    chosen = [at for at, field in enumerate(index.all_fields()) if references.is_reference(field)]
    blobs = values.BlobValues(index.where, index.source, index.footer.cmb_offset, verify=True)
    reader = StripeReader(index, None)

    def found() -> Iterator[references.References]:
        for stripe in range(index.footer.num_stripes if chosen else 0):
            for array in reader.batch(project(index, chosen), stripe, None).columns:
                yield references.References.of(array, index.where)

    blobs.check_apart(found())  # before any is read: a small file could claim very many
    for each in found():
        blobs.check(each)


def _check_dictionaries(block: ColumnBlock, node: Node, known: GlobalDictionaries) -> None:
    """Check the dictionaries that stripes of a column share, once all stripes were read."""
    for leaf in node.walk():
        if leaf.physical is None:
            continue
        records = [dictionary_record(block, chunk) for _, chunk in block.stored(leaf.stream)]
        used = [record for record in records if record is not None]
        if used:
            known.check(used, leaf.physical)


def _check_alignment(index: FileIndex, block: ColumnBlock) -> None:
    """In an aligned file every chunk starts where it should, and every page is a multiple."""
    for stream in range(block.num_streams):
        for stripe, chunk in block.stored(stream):
            if chunk.offset % PAGE_ALIGNMENT != ALIGNED_PAGE_START:
                raise block.error(
                    f"stripe {stripe}, stream {stream}: expected a chunk at {ALIGNED_PAGE_START} "
                    f"modulo {PAGE_ALIGNMENT}, found one at {chunk.offset}"
                )
            pages = block.pages(chunk)
            sizes = np.array([chunk.length]) if pages is None else pages["pageSize"]
            if (sizes % PAGE_ALIGNMENT).any():
                page = int(np.flatnonzero(sizes % PAGE_ALIGNMENT)[0])
                raise block.error(
                    f"stripe {stripe}, stream {stream}, page {page}: expected a multiple of "
                    f"{PAGE_ALIGNMENT} bytes, found {sizes[page]}"
                )


def _check_node(
    index: FileIndex, block: ColumnBlock, node: Node, stripe: int, streams: ColumnStreams
) -> int:
    """Compare what the CMB says of a node's streams with what they hold; gives their pages."""
    _check_validity(block, node, stripe, streams)
    chunk = block.chunk(node.stream, stripe) if node.stream >= 0 else None
    if chunk is None or chunk.is_empty:
        return 0
    if node.kind is NodeKind.LIST:
        elements = int(streams.offsets[node.stream][-1])
        is_full = block.desc_type(node.stream) is DescType.FULL
        if is_full and (chunk.minimum, chunk.maximum) != (0, elements):
            raise block.error(
                f"stripe {stripe}: expected child slots 0 to {elements}, "
                f"found {chunk.minimum} to {chunk.maximum}"
            )
        return chunk.num_pages
    _check_bloom(index, block, chunk, node, streams)
    _check_contents(block, chunk, node, streams)
    if chunk.flags & ChunkFlag.HAS_MINMAX:
        values, validity = streams.data[node.stream], streams.validity[node.validity]
        cuts = block.page_cuts(chunk, len(values))
        found = page_statistics(values, validity, cuts, node, sortedness=True)
        _check_bounds(block, chunk, found, len(values), stripe)
        _check_nulls(block, chunk, int(found.null_count.sum()), stripe)
        _check_details(block, chunk, found, values)
    return chunk.num_pages


def _check_contents(block: ColumnBlock, chunk: Chunk, leaf: Node, streams: ColumnStreams) -> None:
    """Compare what records say of all values together with the values."""
    records = block.extension(chunk) if chunk.extension_offset else {}
    claimed = {tag: records[tag] for tag in CONTENT_TAGS if tag in records}
    if not claimed:
        return
    values, validity = streams.data[leaf.stream], streams.validity[leaf.validity]
    found = content_records(values, validity, leaf, chunk.length, summary=True)
    for tag, data in claimed.items():
        if found.get(tag) != data:
            raise block.error(
                f"{tag.name}: expected {data.hex()}, found {found.get(tag, b'').hex() or 'nothing'}"
            )


def _check_details(block: ColumnBlock, chunk: Chunk, found: PageStatistics, values: Values) -> None:
    """Compare counts and bounds in extension records with the values."""
    records = block.extension(chunk) if chunk.extension_offset else {}
    counted = nan_count(records)
    if counted is not None and counted != int(found.nan_count.sum()):
        raise block.error(f"expected {counted} NaN, found {found.nan_count.sum()}")
    nulls = page_null_counts(records, len(found), block.where)
    if nulls is not None and (nulls != found.null_count).any():
        raise block.error("the recorded null counts of pages are not those of the values")
    claimed = tuple(recorded_bound(records, tag) for tag in (ExtTag.LONG_MIN, ExtTag.LONG_MAX))
    if any(claimed) and found.order is Order.BYTES:
        valid = found.min_max_slots is not None and (found.min_max_slots >= 0).any()
        actual = long_bounds(values, found) if valid else (None, None)
        if claimed != actual:
            raise block.error(f"expected values from {claimed[0]} to {claimed[1]}")


def _check_validity(block: ColumnBlock, node: Node, stripe: int, streams: ColumnStreams) -> None:
    chunk = block.chunk(node.validity, stripe)
    bits = streams.validity.get(node.validity)
    if chunk.is_empty or block.desc_type(node.validity) is not DescType.FULL:
        return
    slots = streams.slots[node.validity]
    flags = to_flags(bits, slots)
    _check_nulls(block, chunk, slots - int(flags.sum()), stripe)
    pages = block.pages(chunk)
    if pages is not None:
        cuts = block.page_cuts(chunk, slots)
        ones = np.add.reduceat(flags, cuts[:-1], dtype=np.int64)
        if (pages["minVal"] != np.diff(cuts) - ones).any():
            raise block.error(f"stripe {stripe}: pages of validity miscount their nulls")


def _check_nulls(block: ColumnBlock, chunk: Chunk, found: int, stripe: int) -> None:
    if found != chunk.null_count:
        raise block.error(f"stripe {stripe}: expected {chunk.null_count} nulls, found {found}")


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
    records, stop = block.extension(chunk), index.footer.cmb_offset
    values, validity = streams.data[leaf.stream], streams.validity[leaf.validity]
    if ExtTag.BLOOM in records:
        offset, length, crc = parse_bloom_record(records[ExtTag.BLOOM], stop, index.where)
        filters = read_filters(index.source, (offset, length), crc, index.where)
        if not filters.contains_all(values, validity, leaf):
            raise block.error(f"the bloom filter at {offset} lacks a value of the chunk")
    if ExtTag.PAGE_BLOOM not in records:
        return
    offset, length, crc, blocks = parse_page_bloom_record(
        records[ExtTag.PAGE_BLOOM], chunk.num_data_pages, stop, index.where
    )
    filters = read_filters(index.source, (offset, length), crc, index.where, blocks)
    for page, (start, end) in enumerate(pairwise(block.page_cuts(chunk, len(values)).tolist())):
        own = slice_values(validity, start, end) if isinstance(validity, Bits) else validity
        assert own is None or isinstance(own, (bool, Bits))
        if not filters.contains_all(slice_values(values, start, end), own, leaf, page):
            raise block.error(f"the bloom filter of page {page} lacks a value of the page")


def _column_error(index: FileIndex, name: str, what: str) -> InvalidFileError:
    """An error that names file and column."""
    return InvalidFileError(f"{index.where}: column {name!r} {what}")


def _check_bounds(
    block: ColumnBlock, chunk: Chunk, found: PageStatistics, rows: int, stripe: int
) -> None:
    whole = merge(found, rows)
    if whole.has_values and not chunk.minimum <= whole.min <= whole.max <= chunk.maximum:
        raise block.error(f"stripe {stripe}: values lie outside the chunk's bounds")
    _check_claims(block, chunk, whole, stripe)
    pages = block.data_pages(chunk)
    if pages is None:
        return
    outside = (found.min < pages["minVal"]) | (found.max > pages["maxVal"])
    outside &= found.min <= found.max
    if outside.any():
        page = int(np.flatnonzero(outside)[0])
        raise block.error(f"stripe {stripe}, page {page}: values lie outside the page's bounds")


def _check_claims(block: ColumnBlock, chunk: Chunk, whole: ColumnStatistics, stripe: int) -> None:
    """Check the flags that let a reader answer without reading: each must hold."""
    claimed = ChunkFlag(chunk.flags & _CLAIMS) & ~whole.flags
    inexact = (chunk.flags & ChunkFlag.MIN_EXACT and chunk.minimum != whole.min) or (
        chunk.flags & ChunkFlag.MAX_EXACT and chunk.maximum != whole.max
    )
    if whole.has_values and (claimed or inexact):
        raise block.error(f"stripe {stripe}: bounds claim too much: {claimed or 'to be exact'}")
    has_nan = bool(whole.flags & ChunkFlag.HAS_NAN)
    if has_nan and chunk.flags & ChunkFlag.NAN_KNOWN and not chunk.flags & ChunkFlag.HAS_NAN:
        raise block.error(f"stripe {stripe}: a value is NaN, though none should be")


def _file_claims(index: FileIndex) -> dict[int, _FileClaim]:
    """What the section of file statistics says, by ordinal."""
    place = index.sections.get(SectionKind.FILE_STATISTICS)
    if place is None:
        return {}
    if place[1] % FILE_STATISTICS_ENTRY.itemsize:
        raise InvalidFileError(f"{index.where}: file statistics of {place[1]} bytes")
    entries = np.frombuffer(index.tail.view(*place), FILE_STATISTICS_ENTRY)
    ordinals = entries["ordinal"].astype(np.int64)
    if (np.diff(ordinals, append=index.footer.num_columns) <= 0).any():
        raise InvalidFileError(f"{index.where}: file statistics: columns do not ascend")
    return {ordinal: _FileClaim(*claim) for ordinal, *claim in entries.tolist()}


def _check_file_claim(index: FileIndex, ordinal: int, claim: _FileClaim) -> None:
    node = index.node(ordinal)
    if node.kind is not NodeKind.LEAF:
        raise _column_error(index, node.name, "has file statistics, but is nested")
    (block,) = index.blocks([ordinal])
    stripes = index.stripe_rows.tolist()
    if block is None:
        rows = sum(stripes)
        found = chunk_statistics(INT64_MAX, INT64_MIN, EXACT_FLAGS, rows, 0, rows, node.order)
    else:
        found = merge_columns(
            [stored_statistics(block, node, stripe, rows) for stripe, rows in enumerate(stripes)]
        )
    known = bool(claim.flags & ChunkFlag.HAS_MINMAX)
    same = not known or (found.min, found.max) == (claim.min, claim.max)
    if not same or found.null_count != claim.null_count:
        raise _column_error(
            index,
            node.name,
            f"has file statistics {claim.min} to {claim.max} and {claim.null_count} nulls; "
            f"its chunks have {found.min} to {found.max} and {found.null_count}",
        )
