"""The kernels for symbols again in Python: what the compiled ones must agree with."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

SYMBOLS_MAX = 255
SYMBOL_BYTES_MAX = 8
ESCAPE = 255
_GENERATIONS = 7
_COARSE_GENERATIONS = 3
_COARSE_STEP = 4
_USES_MIN = 4
_SINGLE_WEIGHT = 8


def _items(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    if len(offsets) < 1 or offsets[0] < 0 or offsets[-1] > len(data):
        raise ValueError(f"offsets are outside of {len(data)} bytes")
    if np.any(offsets[1:] < offsets[:-1]):
        raise ValueError("offsets decrease")
    return [data[start:stop].tobytes() for start, stop in pairwise(offsets.tolist())]


def _parse(value: bytes, symbols: set[bytes]) -> list[tuple[bytes, bool]]:
    """What a value is made of: at each place the longest symbol, or else a literal byte.

    The flag tells a literal.
    """
    found, at = [], 0
    while at < len(value):
        for size in range(min(SYMBOL_BYTES_MAX, len(value) - at), 0, -1):
            part = value[at : at + size]
            if part in symbols:
                break
        found.append((part, part not in symbols))
        at += len(part)
    return found


def fsst_train(offsets: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Generation after generation: parse, count, keep and join what occurs often; give the best."""
    values = _items(offsets, data)
    kept: list[bytes] = []
    best, best_written = kept, float("inf")
    for generation in range(_GENERATIONS + 1):
        coarse = generation < _COARSE_GENERATIONS
        written = 0
        singles: Counter[tuple[bytes, bool]] = Counter()
        pairs: Counter[tuple[bytes, bytes, bool, bool]] = Counter()
        for value in values[:: _COARSE_STEP if coarse else 1]:
            previous = None
            for part, literal in _parse(value, set(kept)):
                written += 1 + literal
                for use in [(part, literal)] + [(part[:1], True)] * (len(part) > 1):
                    singles[use] += 1
                    if previous is not None:
                        pairs[previous[0], use[0], previous[1], use[1]] += 1
                previous = part, literal
        if not coarse and written < best_written:
            best, best_written = kept, written
        gains: Counter[bytes] = Counter()
        for (part, _), uses in singles.items():
            if uses >= _USES_MIN:
                gains[part] += uses * (_SINGLE_WEIGHT if len(part) == 1 else len(part))
        for (left, right, _, _), uses in pairs.items():
            last = generation == _GENERATIONS - 1
            if uses >= _USES_MIN and len(left) < SYMBOL_BYTES_MAX and not last:
                joined = (left + right)[:SYMBOL_BYTES_MAX]
                gains[joined] += uses * len(joined)
        kept = sorted(gains, key=lambda it: (-gains[it], -len(it), int.from_bytes(it, "little")))
        del kept[SYMBOLS_MAX:]
    return np.array([len(each) for each in best], np.uint8), np.frombuffer(b"".join(best), np.uint8)


def _symbols(sizes: np.ndarray, symbols: np.ndarray) -> list[bytes]:
    if len(sizes) > SYMBOLS_MAX or np.any(sizes < 1) or np.any(sizes > SYMBOL_BYTES_MAX):
        raise ValueError("expected at most 255 symbols of 1 to 8 bytes")
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    if (ends[-1] if ends else 0) != len(symbols):
        raise ValueError(f"the symbols do not have {len(symbols)} bytes together")
    return [symbols[start:stop].tobytes() for start, stop in pairwise([0, *ends])]


def fsst_encode(
    offsets: np.ndarray,
    data: np.ndarray,
    sizes: np.ndarray,
    symbols: np.ndarray,
    out: np.ndarray,
    ends: np.ndarray,
) -> int:
    """The longest symbol at each place; a byte without one after an escape."""
    values, known = _items(offsets, data), _symbols(sizes, symbols)
    if len(ends) != len(values) or len(out) < 2 * (offsets[-1] - offsets[0]):
        raise ValueError("out or ends have no room")
    codes = {symbol: bytes([code]) for code, symbol in reversed(list(enumerate(known)))}
    written = b""
    for slot, value in enumerate(values):
        for part, literal in _parse(value, set(known)):
            written += bytes([ESCAPE]) + part if literal else codes[part]
        ends[slot] = len(written)
    out[: len(written)] = np.frombuffer(written, np.uint8)
    return len(written)


def fsst_decode(
    codes: np.ndarray, sizes: np.ndarray, symbols: np.ndarray, skip: int, out: np.ndarray
) -> int:
    """Put symbols together until there are enough bytes."""
    known, stored = _symbols(sizes, symbols), codes.tobytes()
    found, at, bounds = b"", 0, {0}
    if skip < 0:
        raise ValueError(f"skip is {skip}, expected at least 0")
    while len(found) < skip + len(out):
        escaped = at < len(stored) and stored[at] == ESCAPE
        if at + escaped >= len(stored):
            raise ValueError("the codes end early")
        if not escaped and stored[at] >= len(known):
            raise ValueError(f"code {stored[at]} is not below {len(known)}")
        found += stored[at + 1 : at + 2] if escaped else known[stored[at]]
        at += 1 + escaped
        bounds.add(len(found))
    if not {skip, skip + len(out)} <= bounds:
        raise ValueError("a symbol goes beyond the value that it belongs to")
    out[:] = np.frombuffer(found[skip:], np.uint8)
    return at
