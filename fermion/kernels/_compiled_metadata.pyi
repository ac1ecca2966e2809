"""Kernels over what a file says of itself: places that checksums are bound to, and names."""

import numpy as np
from typing_extensions import Buffer

def place_of(key: int, offset: int) -> int:
    """What the checksum of bytes at an offset of a file is combined with, 32 bits.

    key: The file's, 64 bits; 0 for a file whose checksums are not bound to their places.
    offset: Bytes from the start of the file.
    Returns: A fixed mix of both, which `docs/format.md` specifies; 0 for the key 0.
    """

def bind_checksum(data: bytearray | memoryview, at: int, key: int, offset: int) -> None:
    """Combine a checksum with its place, in the bytes that hold it; twice leaves them as they were.

    data: Writable.
    at: Where in ``data`` the four bytes of the checksum are.
    key, offset: As `place_of` takes them.
    """

def bind_checksums(
    data: bytearray | memoryview, places: np.ndarray, key: int, offsets: np.ndarray
) -> None:
    """Combine many checksums with their places; see `bind_checksum`.

    data: Writable; nothing changes where a place lies outside of it.
    places: ``int64``: where in ``data`` the four bytes of each checksum are.
    key, offsets: As `place_of` takes them, ``int64``.
    """

def write_names(
    names: list[bytes], ordinals: np.ndarray, interval: int
) -> tuple[bytearray, np.ndarray]:
    """Names as the entries of a name index.

    names: In byte order.
    ordinals: ``int64``: the column of each.
    interval: Every so many names one is stored whole.
    Returns bytearray: The entries.
    Returns np.ndarray: ``uint32``: where each name that is stored whole starts among them.
    Raises ValueError: A name is no bytes, an ordinal is negative, or ``interval`` is less than 1.
    """

# Oracle: tests/fermion/metadata/test_cit.py::test_names_are_found_both_ways
def find_name(
    data: Buffer, bounds: np.ndarray, interval: int, count: int, wanted: bytes
) -> list[int] | None:
    """Find the columns of a name in a name index; None where what the search meets is damaged.

    data: The section.
    bounds: Where each group of entries starts, and the end; int64, shape (groups + 1,).
    interval: Entries in a group.
    count: How many names there are.
    wanted: The name, UTF-8.
    Returns: Ordinals, in the order of the index; empty where no column has the name.
    Raises ValueError: The interval is less than 1, or the count negative.
    """

# Oracle: tests/fermion/metadata/test_cit.py::test_all_names_are_read_both_ways
def read_names(data: Buffer, bounds: np.ndarray, interval: int, count: int) -> list[str] | None:
    """All names of a name index, by ordinal; None where it is damaged.

    data: The section.
    bounds: ``int64``, shape (groups + 1,): where each group of entries starts, and the last ends.
    interval: Names of every group but the last.
    count: Names in all.
    """
