"""Signatures and contracts of the compiled kernels.

Inputs may be read-only, empty, strided or unaligned (the latter two are copied). Outputs must be
writable, contiguous and aligned. Every function raises ValueError, before it writes anything, when
lengths disagree or a range, offset or code lies outside of what it indexes, and TypeError or
ValueError for a dtype it has no loop for. Loops run without the GIL.

A kernel has a twin of the same name in `tests/kit/numpy_kernels`, or a comment that begins with
"Oracle:" and names the test that compares it with the general way.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import Buffer

from fermion.kernels._compiled_columns import arrow_batch as arrow_batch
from fermion.kernels._compiled_columns import build_flat_blocks as build_flat_blocks
from fermion.kernels._compiled_columns import decode_flat as decode_flat
from fermion.kernels._compiled_columns import encode_flat as encode_flat
from fermion.kernels._compiled_columns import flat_chunks as flat_chunks
from fermion.kernels._compiled_columns import join_flat as join_flat
from fermion.kernels._compiled_columns import pick_flat as pick_flat
from fermion.kernels._compiled_metadata import bind_checksum as bind_checksum
from fermion.kernels._compiled_metadata import bind_checksums as bind_checksums
from fermion.kernels._compiled_metadata import find_name as find_name
from fermion.kernels._compiled_metadata import place_of as place_of
from fermion.kernels._compiled_metadata import read_names as read_names
from fermion.kernels._compiled_metadata import write_names as write_names
from fermion.kernels._compiled_picks import PageForm as PageForm
from fermion.kernels._compiled_picks import PageReader as PageReader
from fermion.kernels._compiled_picks import PageTest as PageTest
from fermion.kernels._compiled_picks import bitpack_pick as bitpack_pick
from fermion.kernels._compiled_picks import decode_pages as decode_pages
from fermion.kernels._compiled_picks import fsst_pick as fsst_pick
from fermion.kernels._compiled_picks import match_pages as match_pages
from fermion.kernels._compiled_picks import pick_pages as pick_pages
from fermion.kernels._compiled_picks import wanted_numbers as wanted_numbers
from fermion.kernels._compiled_picks import wanted_text_range as wanted_text_range
from fermion.kernels._compiled_picks import wanted_texts as wanted_texts
from fermion.kernels._compiled_variant import variant_find as variant_find
from fermion.kernels._compiled_variant import variant_from_json as variant_from_json
from fermion.kernels._compiled_variant import variant_to_json as variant_to_json

def crc32c(data: Buffer, seed: int = 0, *, portable: bool = False) -> int:
    """CRC-32C (Castagnoli) of a contiguous buffer.

    seed: The checksum of the bytes before these: ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    portable: Use the table even where the processor has an instruction (for tests).
    """

def count_bits(data: np.ndarray, start: int, count: int) -> int:
    """How many of the bits ``start`` to ``start + count`` (exclusive) are set.

    data: ``uint8``, least significant bit first.
    """

def copy_bits(
    source: np.ndarray, source_bit: int, out: np.ndarray, out_bit: int, count: int
) -> None:
    """Copy ``count`` bits from one bit position to another; other bits of ``out`` stay.

    source, out: ``uint8``, least significant bit first; they must not overlap.
    """

def page_bounds(
    values: np.ndarray,
    bits: np.ndarray | None,
    cuts: np.ndarray,
    mins: np.ndarray,
    maxs: np.ndarray,
    nulls: np.ndarray,
    nans: np.ndarray,
) -> None:
    """Order-preserving bounds, nulls and NaNs of each page.

    Signed numbers and dates are extended; ``uint64`` is taken XOR 2**63; floats are widened to
    float64 and mapped to their place in its total order, a zero as -0.0 for a minimum and +0.0
    for a maximum. NaNs and null slots do not take part.

    values: Any number dtype, float16 and datetime64 included, shape (n,).
    bits: ``uint8``, packed, 1 is valid; None where all are valid.
    cuts: ``int64``, shape (pages + 1,): page p holds slots ``cuts[p]`` to ``cuts[p + 1]``.
    mins, maxs: ``int64``, shape (pages,), written: the bounds, or 2**63 - 1 and -2**63 for a page
        without any comparable value.
    nulls, nans: ``int64``, shape (pages,), written: slots that are null; valid slots that are NaN.
    """

def page_bounds_binary(
    offsets: np.ndarray,
    data: np.ndarray,
    bits: np.ndarray | None,
    cuts: np.ndarray,
    min_index: np.ndarray,
    max_index: np.ndarray,
    nulls: np.ndarray,
) -> None:
    """The first smallest and first greatest byte string of each page.

    offsets, data: ``int64`` of shape (n + 1,), and ``uint8``: value i is
        ``data[offsets[i]:offsets[i + 1]]``.
    bits, cuts, nulls: As in `page_bounds`.
    min_index, max_index: ``int64``, shape (pages,), written: slot numbers, -1 where all slots are
        null.
    """

def build_dictionary(values: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Distinct values and their codes; equal means equal bytes.

    values: Any dtype of fixed width, shape (n,).
    limit: Give up at the first value beyond this many distinct ones.
    Returns: ``uint32`` of shape (n,), and ``int64`` of shape (distinct,): where each value appeared
        first, in order; so ``values[first][codes]`` is ``values``. None over the limit.
    """

def build_dictionary_binary(
    offsets: np.ndarray, data: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """As `build_dictionary`, for byte strings given by ``int64`` offsets and ``uint8`` data."""

def gather_fixed(dictionary: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
    """``out[:] = dictionary[codes]``.

    dictionary, out: Arrays of one item size.
    codes: ``uint32``, shape (n,), each below ``len(dictionary)``.
    """

def gather_binary(
    dict_offsets: np.ndarray, dict_data: np.ndarray, codes: np.ndarray, out_offsets: np.ndarray
) -> int:
    """Offsets of the byte strings that codes stand for.

    dict_offsets, dict_data: The dictionary: ``int64`` offsets and ``uint8`` bytes.
    codes: ``uint32``, shape (n,).
    out_offsets: ``int64``, shape (n + 1,), written.
    Returns: Total bytes: the size of the array to give to `gather_binary_data`.
    """

def gather_binary_data(
    dict_offsets: np.ndarray,
    dict_data: np.ndarray,
    codes: np.ndarray,
    out_offsets: np.ndarray,
    out_data: np.ndarray,
) -> None:
    """Bytes of the byte strings that codes stand for; ``out_data`` must fit exactly."""

def lengths_to_offsets(lengths: np.ndarray, out: np.ndarray) -> int:
    """Running total of lengths, starting at 0.

    lengths: Any integer dtype, shape (n,).
    out: ``int64``, shape (n + 1,), written; its content is unspecified after an error.
    Raises ValueError: For a negative length, or a total of 2**63 or more.
    """

def count_runs(values: np.ndarray) -> int:
    """How many runs of equal bytes there are; 0 for no values."""

def fill_nulls(values: np.ndarray, bits: np.ndarray) -> None:
    """Overwrite null slots with the last valid value before them, or zero bytes, in place."""

def remove_nulls(values: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
    """The values whose bit is set, in order.

    values: Any dtype of fixed width, shape (n,).
    bits: ``uint8``: 1 = valid, least significant bit first.
    out: Same item size, shape (set bits,), written.
    """

def restore_nulls(values: np.ndarray, bits: np.ndarray, start: int) -> None:
    """Spread values that lie at the end over the slots whose bits are set, in place.

    A null slot gets the value before it, or zero bytes where there is none.

    values: Any dtype of fixed width, shape (n,); the last ones, as many as bits are set, hold
        values.
    bits: ``uint8``; slot i's bit is ``start + i``.
    """

def remove_nulls_bits(data: np.ndarray, bits: np.ndarray, count: int, out: np.ndarray) -> None:
    """The bits of ``data`` whose bit in ``bits`` is set, packed from bit 0 of ``out`` on.

    count: Bits of ``data`` and ``bits`` to look at.
    out: ``uint8``, as many bits at least as are set, written.
    """

def restore_nulls_bits(
    data: np.ndarray, bits: np.ndarray, start: int, count: int, out: np.ndarray, out_bit: int
) -> None:
    """Undo `remove_nulls_bits`; null slots get 0.

    bits: ``uint8``; slot i's bit is ``start + i``.
    out: ``uint8``, written; slot i's bit is ``out_bit + i``. Other bits stay.
    """

def narrow_fixed(values: np.ndarray, out: np.ndarray) -> bool:
    """Low 8 bytes of two's-complement integers of 16 or 32 bytes.

    Returns: Whether every value fits ``int64``; ``out`` (``int64``) is of no use otherwise.
    """

def widen_fixed(values: np.ndarray, out: np.ndarray) -> None:
    """Sign-extend ``int64`` to items of 16 or 32 bytes."""

def gather_ranges(
    values: np.ndarray, starts: np.ndarray, stops: np.ndarray, out: np.ndarray
) -> None:
    """Join ``values[starts[i]:stops[i]]`` of all i; ``out`` must fit exactly."""

def gather_ranges_bits(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, out: np.ndarray
) -> None:
    """Join bit ranges, from bit 0 of ``out`` on."""

def bitpack_size(values: np.ndarray) -> int:
    """Bytes that `bitpack_encode` would make of whole numbers, shape (n,)."""

def bitpack_encode(values: np.ndarray) -> np.ndarray:
    """Whole numbers as a payload of `fermion.encodings.bitpack`; ``uint8``, a new array.

    Raises ValueError: The payload could pass 4 GiB.
    """

def bitpack_decode(payload: np.ndarray, count: int, start: int, stop: int, out: np.ndarray) -> None:
    """Decode values ``start`` to ``stop`` (exclusive) of a payload of ``count`` values.

    payload: ``uint8``, untrusted: everything is checked before it is used.
    out: Whole numbers of the encoded width, shape (stop - start,), written; unspecified after an
        error.
    Raises ValueError: The payload is malformed; the message says what and in which block.
    """

def delta_encode(values: np.ndarray, out: np.ndarray, bases: np.ndarray) -> None:
    """Differences of neighbours, modulo the width, restarted every 1,024 values.

    values: Whole numbers, shape (n,).
    out: Written, shape (n,), same width: ``values[i] - values[i - 1]``; at the start of a block the
        difference after it again, so that it does not widen the block (zero if there is none).
    bases: Written, shape (ceil(n / 1024),), same width: the first value of each block.
    """

def delta_decode(deltas: np.ndarray, bases: np.ndarray, out: np.ndarray) -> None:
    """Undo `delta_encode`; the arrays may begin at any block."""

def run_starts(values: np.ndarray, out: np.ndarray) -> None:
    """Where each run of equal bytes starts; ``out`` is ``int64``, shape (count_runs(values),)."""

def expand_runs(
    values: np.ndarray, ends: np.ndarray, start: int, stop: int, out: np.ndarray
) -> None:
    """Slots ``start`` to ``stop`` (exclusive) of repeated values.

    values: One value a run, any dtype of fixed width, shape (runs,).
    ends: ``int64``, shape (runs,): where each run ends, exclusive; never decreasing.
    out: Same item size, shape (stop - start,), written.
    """

def byte_stream_split(values: np.ndarray, out: np.ndarray) -> None:
    """First bytes of all values, then all second bytes...; ``out`` is ``uint8``."""

def byte_stream_merge(data: np.ndarray, count: int, start: int, stop: int, out: np.ndarray) -> None:
    """Values ``start`` to ``stop`` (exclusive) of ``count`` split ones.

    data: ``uint8``, shape (count × item size of out,).
    out: Shape (stop - start,), written.
    """

def hash_fixed(values: np.ndarray, out: np.ndarray) -> None:
    """XXH64 (seed 0) of the bytes of each value; ``out`` is ``uint64``, shape (n,)."""

def hash_binary(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """XXH64 (seed 0) of each byte string; ``out`` is ``uint64``, shape (n,)."""

def bloom_insert(hashes: np.ndarray, words: np.ndarray) -> None:
    """Add hashes to a split-block bloom filter, as Parquet's format specifies it.

    hashes: ``uint64``, shape (n,).
    words: ``uint32``, 8 a block, at least one block; written in place.
    """

def bloom_contains(hashes: np.ndarray, words: np.ndarray, out: np.ndarray) -> None:
    """Whether each hash may have been added; ``out`` is ``uint8``, shape (n,): 1 or 0."""

def fsst_train(offsets: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symbols that make byte strings short: up to 255, of up to 8 bytes each, all distinct.

    offsets, data: ``int64`` of shape (n + 1,), and ``uint8``; 16 MiB at most.
    Returns: ``uint8``: bytes of each symbol, and the symbols' bytes one after the other.
    """

def fsst_encode(
    offsets: np.ndarray,
    data: np.ndarray,
    sizes: np.ndarray,
    symbols: np.ndarray,
    out: np.ndarray,
    ends: np.ndarray,
) -> int:
    """Write each byte string as codes: the longest symbol at each place, else 255 and a byte.

    offsets, data: ``int64`` of shape (n + 1,), and ``uint8``.
    sizes, symbols: As `fsst_train` gives them.
    out: ``uint8``, two bytes a byte of the strings, written.
    ends: ``int64``, shape (n,), written: where the codes of each string end.
    Returns: Bytes of codes.
    """

def fsst_decode(
    codes: np.ndarray, sizes: np.ndarray, symbols: np.ndarray, skip: int, out: np.ndarray
) -> int:
    """Fill ``out`` with what codes stand for, without the first ``skip`` bytes of that.

    codes, sizes, symbols: ``uint8``, untrusted: everything is checked before it is used.
    skip: Bytes; like the end of ``out`` it must not lie within a symbol.
    out: ``uint8``, written; unspecified after an error.
    Returns: Bytes of codes that were used.
    Raises ValueError: The codes end too early, have no symbol, or a symbol is cut.
    """

def lz4_decode(block: np.ndarray, out: np.ndarray) -> int:
    """Fill ``out`` from an LZ4 block.

    block: ``uint8``, untrusted: everything is checked before it is used. Bytes may follow.
    out: ``uint8``, written: as many bytes as the block holds; unspecified after an error.
    Returns: Bytes of ``block`` that were used.
    Raises ValueError: The block holds fewer bytes, or more, or is damaged.
    """

def stable_order(values: np.ndarray, out: np.ndarray) -> None:
    """The order of whole numbers: by value, those of equal values as they come.

    In time that grows with the count and the bytes of the greatest difference, whatever the order
    is; sorted runs are NumPy's to merge. Needs 24 bytes a value besides.

    values: ``int64``, less than 2^32 of them.
    out: ``int64``, as many: the places of the values; written.
    Raises ValueError: ``out`` has another length.
    """

# Oracle: tests/claims/fermion/test_shredded_variants.py::
# test_kernels_agree_with_values_taken_apart_in_python
def variant_paths(
    metas: np.ndarray,
    meta_ends: np.ndarray,
    values: np.ndarray,
    value_ends: np.ndarray,
    rows: np.ndarray,
    parents: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Find the paths of some Variant values; as many as there is room for.

    metas, values: ``uint8``; meta_ends, value_ends: ``int64``, shape (all rows + 1,).
    rows: ``int64``: which values; one without bytes is null.
    parents: ``int32``, shape (room,), written: the node around each; node 0 is the value itself.
    ends: ``int64``, shape (room + 1,), written: where in ``text`` (``uint8``) their names are.
    counts: ``uint32``, shape (room * 8,), added to: of each node the values of each type.
    Returns: How many nodes there are.
    Raises ValueError: A value is damaged.
    """

# Oracle: tests/claims/fermion/test_shredded_variants.py::
# test_kernels_agree_with_values_taken_apart_in_python
def split_variants(
    metas: np.ndarray,
    meta_ends: np.ndarray,
    values: np.ndarray,
    value_ends: np.ndarray,
    parents: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    columns: np.ndarray,
    kinds: np.ndarray,
    incomplete: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Take the values of some paths out of Variant values.

    parents, ends, text: The nodes of a tree, as of `variant_paths`.
    columns: ``int32``, shape (nodes,): the column of each; -1: none. Each column has one node.
    kinds: ``uint8``, shape (columns,): the types that they take; 9: all, as bytes like text.
    incomplete: ``uint8``, shape (columns,): 1 is set where another value but null stays.
    Returns: The rest, ``uint8``, and where its values end, ``int64``, shape (rows + 1,); the column
        (``uint32``), the row (``int64``) and the value (``int64``) of each entry, by row; all
        texts, ``uint8``. The value of a text is where it ends.
    Raises ValueError: A value is damaged.
    """

# Oracle: tests/claims/fermion/test_shredded_variants.py::
# test_kernels_agree_with_values_taken_apart_in_python
def variant_ranks(values: np.ndarray, value_ends: np.ndarray, back: bool) -> None:
    """Put ranks of values in place of their offsets in objects and arrays, or offsets of ranks.

    Ranks only where values lie without gaps, and 64 levels deep; other offsets stay.

    values: ``uint8``, Variant values, changed in place.
    value_ends: ``int64``, shape (rows + 1,): where values begin, and the last one ends.
    back: Put offsets in place of ranks.
    Raises ValueError: A value is damaged; names the row.
    """

# Oracle: tests/claims/fermion/test_shredded_variants.py::
# test_kernels_agree_with_values_taken_apart_in_python
def assemble_variants(
    metas: np.ndarray,
    meta_ends: np.ndarray,
    values: np.ndarray,
    value_ends: np.ndarray,
    parents: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    columns: np.ndarray,
    kinds: np.ndarray,
    codes: np.ndarray,
    rows: np.ndarray,
    words: np.ndarray,
    text_ends: np.ndarray,
    texts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Put the values of paths back into the rest of Variant values.

    parents ... kinds: As of `split_variants`.
    codes, rows, words: The column, the row and the value of each entry, in any order; the value of
        a text is its number.
    text_ends: ``int64``, shape (texts + 1,).
    Returns: The values, ``uint8``, and where they end, ``int64``, shape (rows + 1,).
    Raises ValueError: A value is damaged, or does not fit the rest.
    """

def count_keys(codes: np.ndarray, rows: np.ndarray, bits: np.ndarray, counts: np.ndarray) -> int:
    """Count the valid entries of each key of some maps.

    codes: ``uint32``, shape (entries,): the key of each.
    rows: ``int64``, shape (entries,), ascending.
    bits: ``uint8``: which entries are valid, least significant bit first; none: all of them.
    counts: ``int64``, shape (keys,), added to.
    Returns: The first entry whose key its row has already, or -1.
    """

def spread_keys(
    values: np.ndarray,
    codes: np.ndarray,
    rows: np.ndarray,
    bits: np.ndarray,
    places: np.ndarray,
    total: int,
    out: np.ndarray,
    out_bits: np.ndarray,
) -> None:
    """Put the valid values of maps into the columns of their keys; other slots stay.

    values: Any dtype of fixed width, shape (entries,).
    codes, rows, bits: As of `count_keys`; each row is below ``total``.
    places: ``int64``, shape (keys,): the column of each; entries of one that is not there are left.
    out: Same item size, shape (columns * total,), written: column after column.
    out_bits: ``uint8``, shape (columns * ceil(total / 8),): a bit is set for each value.
    """

def join_keys(
    values: np.ndarray,
    bits: np.ndarray,
    ranks: np.ndarray,
    rows: int,
    rest_rows: np.ndarray,
    rest_ranks: np.ndarray,
    offsets: np.ndarray,
    out_ranks: np.ndarray,
    out: np.ndarray,
    places: np.ndarray,
) -> None:
    """Put the columns of keys together as the entries of maps: by row, and there by rank.

    values: Any dtype of fixed width, shape (columns * rows,): column after column.
    bits: ``uint8``: which of them are valid; none: all of them.
    ranks: ``uint32``, shape (columns,), ascending.
    rest_rows, rest_ranks: ``int64`` and ``uint32``: other entries, which come after a column's of
        their rank; those of each 64 rows follow one another, by rank.
    offsets: ``int64``, shape (rows + 1,), written: where the entries of each row begin.
    out_ranks: ``uint32``, shape (valid values + others,), written.
    out: Same item size and length, written but for the other entries.
    places: ``int64``, written: where each of the others is.
    """
