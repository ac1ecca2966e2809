"""Where a stream's chunk is cut into pages. Pure functions over counts and offsets."""

from __future__ import annotations

import numpy as np

from fermion.layout import CHUNK_SLOTS_MAX

ROW_MULTIPLE = 1024


def cut_fixed(slots: int, slot_bytes: float, *, page_bytes: int, page_rows_max: int) -> np.ndarray:
    """Cuts for slots of one size: pages of equal slot counts, a multiple of 1,024 where possible.

    Returns: ``int64``, shape (pages + 1,), from 0 to ``slots``; ``[0]`` for no slots.
    """
    if slots == 0:
        return np.zeros(1, np.int64)
    rows = min(page_rows_max, max(int(page_bytes / slot_bytes), 1) if slot_bytes else slots)
    if rows >= ROW_MULTIPLE:
        rows -= rows % ROW_MULTIPLE
    return _closed(np.arange(0, slots, rows, dtype=np.int64), slots)


def cut_offsets(offsets: np.ndarray, *, page_bytes: int, page_rows_max: int) -> np.ndarray:
    """Cuts for slots of different sizes.

    offsets: ``int64``, shape (slots + 1,): raw bytes before each slot. A page holds at least one
        slot.
    """
    slots = len(offsets) - 1
    total = int(offsets[-1] - offsets[0])
    if slots == 0 or (total <= page_bytes and slots <= page_rows_max):
        return np.array([0, slots] if slots else [0], np.int64)
    cuts, start = [0], 0
    while start < slots:
        stop = int(np.searchsorted(offsets, offsets[start] + page_bytes, side="right")) - 1
        stop = min(max(stop, start + 1), start + page_rows_max, slots)
        if stop < slots and stop - start >= ROW_MULTIPLE:
            stop -= (stop - start) % ROW_MULTIPLE
        cuts.append(stop)
        start = stop
    return np.array(cuts, np.int64)


def cut_batches(
    ends: np.ndarray, byte_ends: np.ndarray, *, page_bytes: int, page_rows_max: int
) -> np.ndarray:
    """Cuts only where a batch ends; a batch larger than a page gets a page of its own.

    ends: ``int64``, shape (batches,): the stream's slots up to the end of each batch.
    byte_ends: ``float64`` or ``int64``, shape (batches,): raw bytes up to the end of each batch.
    """
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        return np.zeros(1, np.int64)
    cuts, start, start_byte, first = [0], 0, 0.0, 0
    while start < total:
        by_bytes = int(np.searchsorted(byte_ends, start_byte + page_bytes, side="right"))
        by_rows = int(np.searchsorted(ends, start + page_rows_max, side="right"))
        last = max(min(by_bytes, by_rows), first + 1)
        while int(ends[last - 1]) == start:  # batches without slots at this level
            last += 1
        start, start_byte, first = int(ends[last - 1]), float(byte_ends[last - 1]), last
        cuts.append(start)
    return np.array(cuts, np.int64)


def _closed(starts: np.ndarray, stop: int) -> np.ndarray:
    assert stop <= CHUNK_SLOTS_MAX
    return np.append(starts, np.int64(stop))
