"""The kernels that pick slots again in NumPy: what the compiled ones must agree with."""

from __future__ import annotations

import numpy as np

from tests.kit.numpy_kernels import fsst as reference_fsst
from tests.kit.numpy_kernels import functions as reference

_BLOCK = 1024


def _check_slots(slots: np.ndarray, count: int) -> None:
    if np.any(np.diff(slots, prepend=-1) <= 0) or np.any(slots >= count):
        raise ValueError(f"expected slots that ascend below {count}")


def bitpack_pick(payload: np.ndarray, count: int, slots: np.ndarray, out: np.ndarray) -> None:
    """Decode the blocks of the slots one by one, and index."""
    _check_slots(slots, count)
    if len(out) != len(slots):
        raise ValueError(f"out has {len(out)} elements, expected {len(slots)}")
    reference.bitpack_decode(payload, count, 0, 0, np.empty(0, out.dtype))
    for block in np.unique(slots // _BLOCK):
        first = block * _BLOCK
        values = np.empty(min(_BLOCK, count - first), out.dtype)
        reference.bitpack_decode(payload, count, first, first + len(values), values)
        own = slots // _BLOCK == block
        out[own] = values[slots[own] - first]


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
    """Decode slot by slot, each from the start of its block."""
    count = len(bounds) - 1
    _check_slots(slots, count)
    if block_slots < 1 or count < 0 or len(code_ends) * block_slots < count:
        raise ValueError(f"{len(code_ends)} blocks of {block_slots} do not hold {count} values")
    starts = np.concatenate(([0], code_ends))
    for limits, size in ((bounds, np.iinfo(np.int64).max), (starts, len(codes))):
        if np.any(np.diff(limits) < 0) or limits[0] < 0 or limits[-1] > size:
            raise ValueError("offsets decrease, or lie outside")
    at = 0
    for slot in slots.tolist():
        block = slot // block_slots
        skip = int(bounds[slot] - bounds[block * block_slots])
        size = int(bounds[slot + 1] - bounds[slot])
        if at + size > len(out):
            raise ValueError(f"out has {len(out)} bytes, which is not enough")
        own = codes[starts[block] : starts[block + 1]]
        reference_fsst.fsst_decode(own, sizes, symbols, skip, out[at : at + size])
        at += size
    if at != len(out):
        raise ValueError(f"out has {len(out)} bytes, expected {at}")
