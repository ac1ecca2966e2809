"""FOR_BITPACK: whole numbers as a base per 1,024 values plus offsets of few bits.

The parameters of the node (a multiple of 8 bytes, zero-padded; no children):

====== ========== ============ ==========================================================
offset size       name         meaning
====== ========== ============ ==========================================================
0      1          valueBits    8, 16, 32 or 64: bits of one value, T below
1      3          reserved     0
4      4          count        values
8      4 × blocks blockEnds    end of each block, exclusive, counted from the first block
...    ...        blocks       one for every 1,024 values, the last with the rest
====== ========== ============ ==========================================================

A block of n values:

====== =========== =========== ==========================================================
offset size        name        meaning
====== =========== =========== ==========================================================
0      1           width       bits of a packed offset, W, 0 to T
1      1           patchCount  values whose offset needs more than W bits, 0 to 255
2      1           patchBytes  bytes of a patch, 1 to T / 8; 0 where there are none
3      1           reserved    0
4      T / 8       base        added to every offset, modulo 2**T
...    ⌈n × W / 8⌉ packed      the low W bits of the offsets
...    2 each      positions   slots within the block that are patched, ascending
...    patchBytes  patches     what an offset has above its low W bits
====== =========== =========== ==========================================================

A full block (n = 1,024) is packed in lanes, so that one instruction unpacks several neighbours: it
has 1024 / T lanes, value i lies in lane ``i % lanes`` at bits ``W × (i // lanes)`` onward of that
lane, and the T-bit words of the lanes take turns: word 0 of every lane, word 1 of every lane... A
partial block is one stream of bits: value i lies at bits ``W × i`` onward. Least significant bit
first in both. The value is ``base + offset + (patch << W)`` modulo 2**T; signed numbers are stored
as two's complement.

Example: the five uint8 values 7, 9, 8, 7, 10 have the base 7 and the offsets 0, 2, 1, 0, 3, which
need 2 bits each:

=========================== =====================================================
bytes                       meaning
=========================== =====================================================
``08 00 00 00 05 00 00 00`` values of 8 bits, 5 of them
``07 00 00 00``             the only block ends after 7 bytes
``02 00 00 00``             width 2, no patches
``07``                      base
``18 03``                   offsets from the lowest bits up: 00 10 01 00 11
``00 00 00 00 00``          padding
=========================== =====================================================
"""

from __future__ import annotations

import numpy as np

from fermion import kernels
from fermion.errors import InvalidArgumentError, InvalidFileError

BLOCK_VALUES = 1024
BLOCKS_SAMPLED = 64


def encode(values: np.ndarray) -> bytes:
    """Pack whole numbers.

    values: ``int8`` to ``uint64``, shape (n,).
    Returns: The parameters of a FOR_BITPACK node, a multiple of 8 bytes.
    Raises InvalidArgumentError: The values could need more than 4 GiB.
    Raises TypeError: The values are not whole numbers.
    """
    try:
        return kernels.bitpack_encode(values).tobytes()
    except ValueError as error:
        raise InvalidArgumentError(f"for_bitpack: {error}; use smaller pages") from error


def sampled_size(values: np.ndarray) -> float:
    """The length of ``encode(values)``: exact for 64 blocks, by a sample beyond."""
    blocks = sample_blocks(values)
    return kernels.bitpack_size(blocks) * (len(values) / max(len(blocks), 1))


def sample_blocks(values: np.ndarray) -> np.ndarray:
    """Up to 64 whole blocks of 1,024 neighbouring values, spread evenly; else all values.

    A view where that is everything, else a copy.
    """
    blocks = len(values) // BLOCK_VALUES
    if blocks <= BLOCKS_SAMPLED:
        return values
    rows = values[: blocks * BLOCK_VALUES].reshape(blocks, BLOCK_VALUES)
    return rows[(np.arange(BLOCKS_SAMPLED) * (blocks - 1)) // (BLOCKS_SAMPLED - 1)].reshape(-1)


def decode(
    payload: bytes | memoryview | np.ndarray,
    dtype: np.dtype | str,
    count: int,
    start: int,
    stop: int,
    out: np.ndarray,
) -> None:
    """Unpack values ``start`` to ``stop`` (exclusive); only the blocks they lie in are read.

    payload: The parameters of a FOR_BITPACK node; untrusted, and of any alignment.
    dtype: The type of the values.
    count: Values that the payload must hold.
    out: ``dtype``, shape (stop - start,), contiguous, written; unspecified after an error.
    Raises InvalidFileError: The payload is cut short, or contradicts itself, ``dtype`` or
        ``count``.
    Raises InvalidArgumentError: The range or ``out`` does not fit together.
    """
    dtype = np.dtype(dtype)
    if not 0 <= start <= stop <= count:
        raise InvalidArgumentError(f"slots {start} to {stop} are outside of {count} values")
    if out.dtype != dtype or out.shape != (stop - start,):
        raise InvalidArgumentError(
            f"out is {out.dtype} of shape {out.shape}, expected {dtype} of shape {(stop - start,)}"
        )
    try:
        kernels.bitpack_decode(np.frombuffer(payload, np.uint8), count, start, stop, out)
    except ValueError as error:
        raise InvalidFileError(f"for_bitpack: {error}") from error


def pick(
    payload: bytes | memoryview | np.ndarray, count: int, slots: np.ndarray, out: np.ndarray
) -> None:
    """Unpack single values; only the blocks they lie in are read.

    payload, count: As for `decode`.
    slots: ``int64``, ascending.
    out: Whole numbers, shape (len(slots),), contiguous, written; unspecified after an error.
    Raises InvalidFileError: The payload is cut short, or contradicts itself, the type of ``out`` or
        ``count``.
    """
    try:
        kernels.bitpack_pick(np.frombuffer(payload, np.uint8), count, slots, out)
    except ValueError as error:
        raise InvalidFileError(f"for_bitpack: {error}") from error
