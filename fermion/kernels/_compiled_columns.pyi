"""Signatures and contracts of the kernels over whole columns, a part of those of `_compiled`.

There is no module of this name at run time: only the signatures are too many for one file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fermion.kernels._compiled_picks import PageReader

# Oracle: tests/fermion/reading/test_one_page.py::test_both_ways_give_the_same_arrays
def flat_chunks(
    buffers: list[memoryview],
    places: np.ndarray,
    stripe_rows: np.ndarray,
    stripe: int,
    chunk_stop: int,
    sizes: Sequence[int],
    offsets: np.ndarray | None = None,
    place_key: int = 0,
) -> np.ndarray:
    """Chunks of flat columns (VALIDITY and DATA alone) in a stripe, from their CMBs.

    buffers, places: The CMBs; ``int64``, shape (n, 3): buffer, first byte and length of each.
    stripe_rows: ``int64``: rows of each stripe of the file; CMBs must agree.
    chunk_stop: Where chunks of the file must end.
    sizes: Bytes of STRIPE_META, STREAM_META, SIMPLE_CHUNK_DESC and FULL_CHUNK_DESC.
    offsets, place_key: ``int64``: where each CMB lies in the file, and the file's key; see
        `place_of`.
    Returns: ``int64``, shape (n, 4): offset and length in the file of the VALIDITY chunk (length 0:
        all valid, 0xFFFFFFFF: all null), then of the DATA chunk. -1 in all four where the CMB is
        damaged, or a chunk is more than one page.
    """

# Oracle: tests/fermion/reading/test_one_page.py::test_both_ways_give_the_same_arrays
def decode_flat(
    buffers: list[memoryview],
    places: np.ndarray,
    offsets: np.ndarray,
    forms: np.ndarray,
    slots: int,
    how: PageReader,
    borrow: bool,
) -> list[tuple[int, object | None, object, object | None] | None]:
    """Columns of one stripe, each from one page of data and at most one page of validity.

    buffers, places: The pages, of each column its validity, then its data, as `flat_chunks` takes
        its blocks; a page of validity of 0 bytes means all valid.
    offsets: ``int64``, shape (2 * n,): where the pages lie in the file.
    forms: ``int64``, shape (n, 3): of each column the letter of its kind (``i``, ``u``, ``f``,
        ``V`` as NumPy has them, ``b`` for booleans, ``s`` for strings), bytes of a value (of an
        offset for strings, 4 or 8), and whether it may have nulls.
    slots: Slots that every page must hold.
    borrow: Whether to give views of ``buffers`` where values lie there as Arrow wants them.
    Returns: For each column (null count, bitmap, values or offsets, bytes of strings) as objects
        with the buffer protocol, laid out as Arrow wants them; None where the page is damaged or
        has an encoding that is not known here.
    """

class DecodedColumns:
    """Columns that `pick_flat` decoded."""

    @property
    def fine(self) -> np.ndarray:
        """Which of them were: ``bool``, shape (columns,)."""

class ArrowBatch:
    """A struct array in Arrow's C data interface; freed with the object, unless it was imported."""

    @property
    def address(self) -> int:
        """Where the ``ArrowArray`` lies, for one import while this object is held."""

    @property
    def columns(self) -> int:
        """The number of its children."""

# Oracle: tests/claims/fermion/test_flat_rows.py::test_both_ways_give_the_same_rows
def pick_flat(
    buffers: list[memoryview],
    places: np.ndarray,
    offsets: np.ndarray,
    forms: np.ndarray,
    slots: int,
    picks: np.ndarray | None,
    how: PageReader,
) -> DecodedColumns:
    """Some slots of columns of one stripe, which alone are decoded where their encodings allow it.

    The other parameters are those of `decode_flat`.

    picks: ``int64``, ascending, not empty: the slots; None: all of them.
    """

# Oracle: tests/claims/fermion/test_flat_rows.py::test_columns_of_numbers_are_joined
def join_flat(parts: list[DecodedColumns], values: np.ndarray, bits: np.ndarray) -> bool:
    """Copy the numbers of all columns of all parts one behind the other; False, and nothing is
    copied, where a column was not decoded or holds no numbers.

    values: ``uint8``, shape (bytes of the columns' slots,).
    bits: ``uint8``, zero: of the slots that are not null.
    """

# Oracle: tests/claims/fermion/test_flat_rows.py::test_both_ways_give_the_same_rows
def arrow_batch(parts: list[DecodedColumns]) -> ArrowBatch:
    """The columns that were decoded, of all parts, which have the same slots; takes them over."""

# Oracle: tests/fermion/writing/test_flat.py::
# test_columns_are_written_to_the_same_bytes_as_one_by_one
def encode_flat(
    columns: object,
    forms: np.ndarray,
    policy: np.ndarray,
    zip: Callable[[memoryview], bytes],
    entropy: Callable[[memoryview, str, int], bytes],
) -> tuple[bytearray, np.ndarray]:
    """Columns of one stripe, each as one page of data and at most one page of validity.

    columns: A record batch of at least one row: the capsule ``arrow_array`` of Arrow's PyCapsule
        interface. Its buffers must be large enough for their slots: that is for Arrow to check.
    forms: Structs of ``int64``, shape (n,), one for each column to encode: its place in the batch;
        its letter and its width, as `decode_flat` takes them, but that ``V`` is not known here, and
        ``d`` stands for integers of 16 or 32 bytes; whether it may have nulls (one that has some
        and must have none is left); and how many bytes it may have (one with more is left).
    policy: One struct, shape (1,): the rules and limits of `fermion.encodings.choice.policy`, and
        what `fermion.writing.flat` adds to them.
    zip: Gives a zstd frame; what it raises is raised here.
    entropy: What a node of pcodec has after its header, for numbers, their letter and their width;
        no bytes where it cannot hold them. What it raises is raised here.
    Returns bytearray: The pages of all columns in order, the validity of each before its data;
        their checksums are bound to no place.
    Returns np.ndarray: ``int64``, shape (n, 8): bytes of the page of validity (0: all valid,
        0xFFFFFFFF: all null, which needs no page) and of that of data, keys of the minimum and the
        maximum, nulls, `ChunkFlag` bits, NaNs, and where the first page starts; all 0 where the
        column is left.
    Raises ValueError: A column is not of the form that its letter and width say.
    """

# Oracle: tests/fermion/writing/test_flat.py::
# test_column_metadata_blocks_are_the_same_bytes_as_one_by_one
def build_flat_blocks(chunks: np.ndarray, stripe_rows: np.ndarray) -> tuple[bytearray, np.ndarray]:
    """CMBs of flat columns.

    chunks: ``int64``, shape (stripes, columns, 8): what `encode_flat` found of each column in each
        stripe, but that pages are counted from the start of the file.
    stripe_rows: ``int64``: rows of each stripe.
    Returns bytearray: The CMBs end to end; their checksums are bound to no place.
    Returns np.ndarray: ``int64``, shape (columns,): bytes of each; 0 for a column that is null in
        all rows, or was left in some stripe.
    """
