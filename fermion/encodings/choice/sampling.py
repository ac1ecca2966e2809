"""Samples of a chunk, and trials on them: what pcodec and codecs would make of the whole."""

from __future__ import annotations

import numpy as np

from fermion.columns.types import BinaryValues, Bits, Values, slice_values
from fermion.encodings.encoding import EncodeSettings
from fermion.encodings.pcodec import compress_blocks
from fermion.errors import InvalidArgumentError
from fermion.io.compression import pack

RUNS = 16
RUN_VALUES = 64
SAMPLE_FRACTION = 100
LZ_RUN_BYTES = 64 * 1024
LZ_RUN_BYTES_MIN = 4 * 1024
LZ_PART = 4
# A third of the time of pcodec's usual effort, which needs this part of the trial's bytes, but for
# noise.
_TRIAL_LEVEL = 4
_USUAL_PART = 0.985
_NOISE_PART = 0.95
# Bytes that one more pcodec block costs, beside its share of the values.
_BLOCK_OVERHEAD = 8


def sample_runs(values: np.ndarray) -> np.ndarray:
    """About 1 % of an array, at least 1,024 values, as 16 runs spread evenly; always the same ones.

    A view where that is everything, else a copy.
    """
    count = len(values)
    run = max(RUN_VALUES, count // (SAMPLE_FRACTION * RUNS))
    if count <= RUNS * run * 2:
        return values
    starts = (np.arange(RUNS) * (count - run)) // (RUNS - 1)
    return values[(starts[:, None] + np.arange(run)).reshape(-1)]


def sample_middle(values: np.ndarray) -> np.ndarray:
    """As many values as `sample_runs` takes, all neighbours, from the middle; a view.

    For values that follow each other: every bound between runs would look like a leap.
    """
    size = max(RUN_VALUES, len(values) // (SAMPLE_FRACTION * RUNS)) * RUNS
    start = max(len(values) - size, 0) // 2
    return values[start : start + size]


def sample_contiguous(values: Values) -> Values:
    """Neighbouring values from the middle: repeats show only among neighbours.

    A fourth of the bytes, but at least 4 KiB and at most 64 KiB.
    """
    count = len(values)
    if isinstance(values, BinaryValues):
        total = int(values.offsets[-1])
        size = min(max(total // LZ_PART, LZ_RUN_BYTES_MIN), LZ_RUN_BYTES)
        if total <= size:
            return values
        start = int(values.offsets.searchsorted((total - size) // 2))
        stop = int(values.offsets.searchsorted(values.offsets[start] + size))
        return slice_values(values, start, max(min(stop, count), min(start + 1, count)))
    per_byte = 8 if isinstance(values, Bits) else 1 / values.dtype.itemsize
    part = int(count / per_byte) // LZ_PART
    slots = max(int(min(max(part, LZ_RUN_BYTES_MIN), LZ_RUN_BYTES) * per_byte), 1)
    if count <= slots:
        return values
    start = (count - slots) // 2 // 8 * 8
    return slice_values(values, start, start + slots)


def pcodec_size(values: np.ndarray, sample: np.ndarray, pages: int, block_slots: int) -> float:
    """Bytes that pcodec would make of ``values`` in ``pages`` pages, by a trial on a sample."""
    try:
        meta, blocks = compress_blocks(sample, len(sample), level=_TRIAL_LEVEL)
    except (RuntimeError, InvalidArgumentError):
        return float("inf")
    body = len(blocks[0]) * len(values) / len(sample)
    if body < _NOISE_PART * values.nbytes:
        body *= _USUAL_PART
    return body + len(meta) * pages + _BLOCK_OVERHEAD * (len(values) / block_slots)


def packed_ratio(data: np.ndarray, settings: EncodeSettings) -> float:
    """Compressed bytes over raw bytes, for ``uint8`` bytes that are a contiguous run."""
    return len(pack(settings.codec, data, settings.level)) / data.size if data.size else 1.0
