"""Single slots out of the pages of a stream: the short way, one call of the kernels for all pages.

A few rows of a large file lie in as many pages, whose Python objects would cost more than the rows.
The kernels know the encodings that find a slot quickly; whatever else there is (other encodings,
compressed pages, damage) is left to `pages.decode_pages`, which reads everything and knows what to
say of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fermion import kernels
from fermion.columns.values import BinaryValues, PhysicalKind, PhysicalType, Values
from fermion.encodings.decoding import decode_numbers
from fermion.encodings.tree import PageBuffer
from fermion.io.checksum import PageChecks
from fermion.io.compression import decompress
from fermion.layout import ChecksumKind
from fermion.pages.pages import PageSlice

_SLOTS_MAX = 0xFFFF_FFFF
_NOTHING = np.empty(0, np.uint8)
_NO_OFFSETS = np.empty(0, np.int64)


def pick_slots(
    slices: Sequence[PageSlice],
    physical: PhysicalType,
    dictionary: Values | None,
    checks: PageChecks,
) -> Values | None:
    """The slots picked of each page, in order; None where that has to be done the way around.

    Gives new arrays.

    Parameters
    ----------
    slices
        Pages with ``picks``.
    dictionary
        What their DICTIONARY nodes refer to.
    checks
        How pages of the file are checked.
    """
    picks = [page.picks for page in slices if page.picks is not None]
    counts = [page.slot_count for page in slices if page.slot_count is not None]
    kind = checks.kind
    if kind not in (ChecksumKind.NONE, ChecksumKind.CRC32C) or len(counts) < len(slices):
        return None
    # Metadata may say anything: the way around has the words for what cannot be.
    if max(counts) > _SLOTS_MAX or any(
        page.stop > count for page, count in zip(slices, counts, strict=True)
    ):
        return None
    cuts = np.zeros(len(picks) + 1, np.int64)
    np.cumsum([len(own) for own in picks], out=cuts[1:])
    return pick_pages(
        [page.buffer for page in slices],
        np.array([page.offset for page in slices], np.int64),
        np.array(counts, np.int64),
        np.concatenate(picks),
        cuts,
        physical,
        dictionary,
        checks,
    )


def pick_pages(
    pages: Sequence[PageBuffer],
    page_offsets: np.ndarray,
    counts: np.ndarray,
    picks: np.ndarray,
    cuts: np.ndarray,
    physical: PhysicalType,
    dictionary: Values | None,
    checks: PageChecks,
) -> Values | None:
    """The same by arrays, of pages of which none leaves its null slots out.

    Parameters
    ----------
    page_offsets
        ``int64``: where each page lies in the file.
    counts
        ``int64``: the slots that each page must hold.
    picks, cuts
        ``int64``: slots of the pages, ascending in each, end to end; and which of them belong to
        each page.
    """
    offsets, entries = _NO_OFFSETS, _NOTHING
    if isinstance(dictionary, BinaryValues):
        offsets, entries = dictionary.offsets, dictionary.data
    elif isinstance(dictionary, np.ndarray):
        entries = dictionary.view(np.uint8)
    is_binary = physical.kind is PhysicalKind.BINARY
    out = np.zeros(cuts[-1] + 1, np.int64) if is_binary else np.empty(cuts[-1], physical.dtype)
    letter, width = ("s", 8) if is_binary else (out.dtype.kind, out.itemsize)
    data = kernels.pick_pages(
        list(pages),
        counts,
        picks,
        cuts,
        ord(letter),
        width,
        entries,
        offsets,
        checks.kind is ChecksumKind.CRC32C,
        decode_numbers,
        _unzip,
        (out[1:] if is_binary else out).view(np.uint8),
        page_offsets,
        checks.place_key,
    )
    if data is None:
        return None
    return BinaryValues(out, np.frombuffer(memoryview(data), np.uint8)) if is_binary else out


def _unzip(frame: memoryview, raw_length: int) -> bytes:
    return decompress(frame, raw_length)
