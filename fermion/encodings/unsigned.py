"""Unsigned integers at the smallest width: codes of dictionaries, lengths of strings and runs."""

from __future__ import annotations

import numpy as np

from fermion.columns.types import PhysicalKind, PhysicalType, number
from fermion.errors import InvalidArgumentError, InvalidFileError

UNSIGNED: dict[int, PhysicalType] = {
    1: number(PhysicalKind.UINT8),
    2: number(PhysicalKind.UINT16),
    4: number(PhysicalKind.UINT32),
}
_DTYPES = {width: physical.dtype for width, physical in UNSIGNED.items()}


def narrowest(values: np.ndarray) -> np.ndarray:
    """Non-negative integers as ``uint8``, ``uint16`` or ``uint32``, whichever just holds them.

    Raises InvalidArgumentError: One does not fit in 32 bits.
    """
    top = int(values.max()) if len(values) else 0
    if top > 0xFFFF_FFFF:
        raise InvalidArgumentError(f"a length of {top}: expected at most {0xFFFF_FFFF}")
    return values.astype(_DTYPES[1 if top < 0x100 else 2 if top < 0x1_0000 else 4], copy=False)


def unsigned_dtype(width: int) -> np.dtype:
    """The dtype of a width read from a file.

    Raises InvalidFileError: No such width.
    """
    if width not in _DTYPES:
        raise InvalidFileError(
            f"encoding tree: expected integers of 1, 2 or 4 bytes, found {width}"
        )
    return _DTYPES[width]
