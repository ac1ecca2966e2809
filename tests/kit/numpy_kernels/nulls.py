"""The kernels for null slots again in NumPy: what the compiled ones must agree with."""

from __future__ import annotations

import numpy as np


def _flags(bits: np.ndarray, start: int, count: int) -> np.ndarray:
    if start < 0 or count < 0 or start + count > 8 * len(bits):
        raise ValueError(f"bits {start} to {start + count} are outside of {8 * len(bits)} bits")
    return np.unpackbits(bits, bitorder="little")[start : start + count].astype(bool)


def remove_nulls(values: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
    """Select by mask."""
    valid = _flags(bits, 0, len(values))
    if values.dtype.itemsize != out.dtype.itemsize or len(out) != valid.sum():
        raise ValueError(f"out does not hold {valid.sum()} values")
    out[:] = values.view(out.dtype)[valid]


def restore_nulls(values: np.ndarray, bits: np.ndarray, start: int) -> None:
    """Scatter by mask, then fill forward."""
    valid = _flags(bits, start, len(values))
    places = np.cumsum(valid)
    held = np.concatenate((np.zeros(1, values.dtype), values[len(values) - int(valid.sum()) :]))
    values[:] = held[places]


def remove_nulls_bits(data: np.ndarray, bits: np.ndarray, count: int, out: np.ndarray) -> None:
    """Select by mask."""
    chosen = _flags(data, 0, count)[_flags(bits, 0, count)]
    if len(out) * 8 < len(chosen):
        raise ValueError(f"out does not hold {len(chosen)} bits")
    packed = np.packbits(chosen, bitorder="little")
    out[: len(packed)] = packed


def restore_nulls_bits(
    data: np.ndarray, bits: np.ndarray, start: int, count: int, out: np.ndarray, out_bit: int
) -> None:
    """Scatter by mask."""
    valid = _flags(bits, start, count)
    held = _flags(data, 0, int(valid.sum()))
    _flags(out, out_bit, count)
    flags = np.unpackbits(out, bitorder="little")
    slots = flags[out_bit : out_bit + count]
    slots[:] = 0
    slots[valid] = held
    out[:] = np.packbits(flags, bitorder="little")
