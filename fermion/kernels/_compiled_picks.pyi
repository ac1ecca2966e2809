"""Signatures and contracts of the kernels that pick single slots, a part of those of `_compiled`.

There is no module of this name at run time: only the signatures are too many for one file.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from typing_extensions import Buffer

def bitpack_pick(payload: np.ndarray, count: int, slots: np.ndarray, out: np.ndarray) -> None:
    """Decode values of single slots of a payload of ``count`` values.

    Parameters
    ----------
    payload
        ``uint8``, untrusted: everything is checked before it is used.
    slots
        ``int64``, ascending.
    out
        Whole numbers of the encoded width, shape (len(slots),), written; unspecified after an
        error.

    Raises
    ------
    ValueError
        The payload is damaged, or of other values, or a slot lies outside of it.
    TypeError
        ``out`` does not hold whole numbers.
    """

def fsst_pick(
    codes: np.ndarray,
    code_ends: np.ndarray,
    block_slots: int,
    bounds: np.ndarray,
    sizes: np.ndarray,
    symbols: np.ndarray,
    slots: np.ndarray,
    out: np.ndarray,
) -> None:
    """Fill ``out`` with the bytes of single slots, end to end.

    Parameters
    ----------
    codes, sizes, symbols
        ``uint8``, untrusted: everything is checked before it is used.
    code_ends
        ``int64``: where the codes of each block end, from 0.
    block_slots
        Values of a block but the last.
    bounds
        ``int64``, shape (values + 1,): where each value starts and ends among all bytes.
    slots
        ``int64``, ascending.
    out
        ``uint8``, as many bytes as the slots have together; unspecified after an error.

    Raises
    ------
    ValueError
        The codes stand for other bytes than the bounds say, or an argument does not fit.
    """

# Oracle: tests/fermion/reading/test_page_picks.py::test_both_ways_give_the_same_rows
def pick_pages(
    pages: list[Buffer],
    counts: np.ndarray,
    slots: np.ndarray,
    cuts: np.ndarray,
    letter: int,
    width: int,
    dictionary: np.ndarray,
    offsets: np.ndarray,
    verify: bool,
    decode: Callable[..., None],
    unzip: Callable[[memoryview, int], bytes],
    out: np.ndarray,
    page_offsets: np.ndarray | None = None,
    place_key: int = 0,
) -> Buffer | None:
    """Some slots of each of some pages of one stream, end to end, without a call a page.

    Parameters
    ----------
    counts
        ``int64``: slots that each page must hold.
    slots, cuts
        ``int64``: the slots wanted of all pages, ascending within each; bounds of each page's, from
        0 to their number.
    letter, width
        NumPy's kind of the values, ``s`` for strings; bytes of a value.
    dictionary, offsets
        What DICTIONARY nodes refer to: numbers, or the bytes of strings and their offsets,
        ``int64``.
    verify
        Whether to verify CRC-32C checksums.
    decode, unzip
        As `decode_flat` takes them; ``decode`` is also called with the slots wanted of a node, as
        bytes of ``int64``, after the other arguments.
    out
        ``uint8``, written: ``width`` bytes a slot; for strings where each ends, ``int64``.
    page_offsets, place_key
        ``int64``: where each page lies in the file, and the file's key; see `place_of`.

    Returns
    -------
    Buffer
        The bytes of the strings, none of numbers; None where a page is damaged or has an encoding
        that is not known here. ``out`` is unspecified then.
    """
