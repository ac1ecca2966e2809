"""Signatures and contracts of the kernels over many pages of a stream, a part of `_compiled`.

There is no module of this name at run time: only the signatures are too many for one file.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from typing_extensions import Buffer

def bitpack_pick(payload: np.ndarray, count: int, slots: np.ndarray, out: np.ndarray) -> None:
    """Decode values of single slots of a payload of ``count`` values.

    payload: ``uint8``, untrusted: everything is checked before it is used.
    slots: ``int64``, ascending.
    out: Whole numbers of the encoded width, shape (len(slots),), written; unspecified after an
        error.
    Raises ValueError: The payload is damaged, or of other values, or a slot lies outside of it.
    Raises TypeError: ``out`` does not hold whole numbers.
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

    codes, sizes, symbols: ``uint8``, untrusted: everything is checked before it is used.
    code_ends: ``int64``: where the codes of each block end, from 0.
    block_slots: Values of a block but the last.
    bounds: ``int64``, shape (values + 1,): where each value starts and ends among all bytes.
    slots: ``int64``, ascending.
    out: ``uint8``, as many bytes as the slots have together; unspecified after an error.
    Raises ValueError: The codes stand for other bytes than the bounds say, or an argument does not
        fit.
    """

class PageForm:
    """What values of some pages are.

    letter, width: NumPy's kind of the values, ``s`` for strings; bytes of a value.
    dictionary, offsets: What DICTIONARY nodes refer to: numbers, or the bytes of strings and their
        offsets, ``int64``. Views.
    """

    def __init__(
        self, letter: int, width: int, dictionary: np.ndarray, offsets: np.ndarray
    ) -> None: ...

class PageReader:
    """How pages are read, for any number of threads.

    decode: Called as ``decode(node, depth, letter, width, count, output_bytes_max, out)`` for nodes
        of numbers in other encodings; writes all values. With the slots wanted of a node, as bytes
        of ``int64``, after the other arguments, it writes those.
    unzip: Gives the bytes of a zstd frame, which padding may follow.
    verify: Whether to verify CRC-32C checksums.
    place_key: The file's key; see `place_of`.
    """

    def __init__(
        self,
        decode: Callable[..., None],
        unzip: Callable[[memoryview, int], bytes],
        verify: bool,
        place_key: int,
    ) -> None: ...

class PageTest:
    """Which values of some pages are wanted.

    letter, width: As for `PageForm`; wide integers are known where pages hold them as 64-bit ones.
        Of strings only codes are known, unless they are ``wanted``.
    bounds: Shape (2,): the least and the greatest value in the range, of ``int64``, ``uint64`` for
        unsigned values, or ``float64``. Strings have none.
    entries: ``uint8``: 1 for each entry of the chunk's dictionary that is wanted, 0 for the others.
    wanted: What is asked for in place of ``bounds``; the column's kind is that of the values.
    """

    def __init__(
        self,
        letter: int,
        width: int,
        bounds: np.ndarray,
        entries: np.ndarray,
        wanted: Wanted | None = None,
    ) -> None: ...

# Oracle: tests/fermion/kernels/wide/test_page_picks.py::test_both_ways_give_the_same_rows
def pick_pages(
    pages: list[Buffer],
    counts: np.ndarray,
    page_offsets: np.ndarray,
    slots: np.ndarray,
    cuts: np.ndarray,
    form: PageForm,
    how: PageReader,
    out: np.ndarray,
) -> Buffer | None:
    """Some slots of each of some pages of one stream, end to end, without a call a page.

    counts, page_offsets: ``int64``: slots that each page must hold, and where it lies in the file.
    slots, cuts: ``int64``: the slots wanted of all pages, ascending within each; bounds of each
        page's, from 0 to their number.
    out: ``uint8``, written: the width of the form a slot; for strings where each ends, ``int64``.
    Returns: The bytes of the strings, none of numbers; None where a page is damaged or has an
        encoding that is not known here. ``out`` is unspecified then.
    """

# Oracle: tests/claims/fermion/test_whole_columns.py::test_both_ways_give_the_same_columns
def decode_pages(
    pages: list[Buffer],
    counts: np.ndarray,
    page_offsets: np.ndarray,
    form: PageForm,
    how: PageReader,
    out: np.ndarray,
    text: np.ndarray | None = None,
) -> Buffer | None:
    """All slots of some pages of one stream, end to end, without a call a page.

    Parameters
    ----------
    form
        Of strings the width is that of an offset, 4 or 8.
    out
        ``uint8``, written: the width of the form a slot; for strings all offsets, from 0 on.
    text
        ``uint8``, written: memory for the bytes of strings; None: it is allocated.

    The other parameters are those of `pick_pages`.

    Returns
    -------
    Buffer
        The bytes of the strings, a part of ``text`` where that is given; none of numbers. None
        where a page is damaged, has an encoding that is not known here, or ``text`` is too small.
        ``out`` and ``text`` are unspecified then.
    """

# Oracle: tests/fermion/reading/test_encoded_filter.py::
# test_any_filter_selects_the_same_rows_both_ways
def match_pages(
    pages: list[Buffer],
    counts: np.ndarray,
    page_offsets: np.ndarray,
    test: PageTest,
    how: PageReader,
    out: np.ndarray,
) -> bool:
    """Whether each slot of some pages of one stream is wanted, without a call a page.

    Parameters
    ----------
    out
        ``uint8``, written: 1 or 0 for each slot.

    The other parameters are those of `pick_pages`.

    Returns
    -------
    bool
        Whether all pages were known here and sound; else ``out`` is unspecified.
    """

class Wanted:
    """Values that a filter asks for: opaque, made once, used by any number of threads."""

# Oracle: tests/fermion/kernels/wide/test_wanted.py::test_numbers_of_a_set_are_found
def wanted_numbers(values: np.ndarray, width: int) -> Wanted:
    """A set of whole numbers, to be compared with values of ``width`` bytes.

    values: ``int64`` or ``uint64``, 1 or more, ascending, each once; copied.
    Raises ValueError: For values that are not like that, and another width than 1, 2, 4 and 8.
    """

# Oracle: tests/fermion/kernels/wide/test_wanted.py::test_strings_of_a_set_are_found
def wanted_texts(values: list[bytes]) -> Wanted:
    """A set of strings, 1 or more.

    Raises ValueError: For an empty list, and for values that are no ``bytes``.
    """

# Oracle: tests/fermion/kernels/wide/test_wanted.py::test_strings_of_a_range_are_found
def wanted_text_range(low: bytes, high: bytes | None) -> Wanted:
    """Strings from ``low`` on, in the order of their bytes, and below ``high``, if there is one.

    Raises TypeError, ValueError: For limits that are no ``bytes``.
    """
