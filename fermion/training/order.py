"""The order in which an epoch's rows come: computed from a seed, for any place in it.

Rows lie in blocks (see `blocks`), a block has slots, one for each of its rows. Blocks come in a
random order and are dealt to lanes in turn. A lane's blocks form windows; the slots of a window
come in a random order. A global step takes slots from all lanes as evenly as it can, lane by lane,
and each rank takes an equal part of that. Nothing here depends on the number of ranks, but for the
last sentence.

Random orders come from sorting numbers by a hash of them (splitmix64: Steele, Lea and Flood, "Fast
splittable pseudorandom number generators", 2014). They stay the same with every version of NumPy.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Literal

import numpy as np

from fermion.exports import NamedTuple

Shuffle = Literal["rows", "blocks", "batches"]

_TICKS = 1 << 28
"""Parts of an epoch's time. A slot of a lane comes at the middle of its share of the time."""


class Piece(NamedTuple):
    """Slots of a window, by their places in the window's own order.

    lane, window: Which window.
    start, stop: Places, stop exclusive.
    """

    lane: int
    window: int
    start: int
    stop: int


class EpochOrder:
    """The order of one epoch's slots.

    block_slots: ``int64``, shape (b,): slots of each block.
    shuffle: ``"rows"``: of blocks and within windows; ``"blocks"``: of blocks alone; None: neither.
        (``"batches"`` has an order of its own, see `UnitOrder`.)
    seed, epoch: What the random order depends on.
    lanes: How many there are at most; with ``shuffle=None`` there is one.
    window_slots: Slots of the windows of all lanes together.

    Attributes:
    total: How many slots there are.
    """

    def __init__(
        self,
        block_slots: np.ndarray,
        *,
        shuffle: Shuffle | None,
        seed: int,
        epoch: int,
        lanes: int,
        window_slots: int,
    ) -> None:
        self._is_shuffled = shuffle == "rows"
        self._keys = (seed, epoch)
        blocks = len(block_slots)
        lanes = 1 if shuffle is None else max(min(lanes, blocks), 1)
        order = np.arange(blocks) if shuffle is None else permutation(blocks, seed, epoch)
        self._lanes = [
            _Lane(
                order[lane::lanes],
                block_slots[order[lane::lanes]],
                -(-window_slots // lanes),
                (lane + 1) / lanes,
            )
            for lane in range(lanes)
        ]
        self._lengths = np.array([lane.slots for lane in self._lanes], np.int64)
        self.total = int(self._lengths.sum())
        self._last_taken = 0, np.zeros_like(self._lengths)

    def taken(self, place: int) -> np.ndarray:
        """How many slots of each lane come before a place of the epoch: ``int64``, shape (lanes,).

        They add up to the place, and none of them is smaller for a later place.
        """
        if place == self._last_taken[0]:  # a step begins where another ended
            return self._last_taken[1]
        if place <= 0 or place >= self.total:
            return self._lengths if place > 0 else np.zeros_like(self._lengths)
        slack = len(self._lengths) + 1
        low = max((place - slack) * _TICKS // self.total - 1, 0)
        high = min((place + slack) * _TICKS // self.total + 2, _TICKS)
        while high - low > 1:  # at `low` at most `place` slots have come, at `high` more
            middle = (low + high) // 2
            if self._come(middle).sum() <= place:
                low = middle
            else:
                high = middle
        counts = self._come(low)
        rest = place - int(counts.sum())
        if rest:  # those of one tick, lane after lane
            more = self._come(low + 1) - counts
            counts += np.clip(rest - (np.cumsum(more) - more), 0, more)
        self._last_taken = place, counts
        return counts

    def _come(self, tick: int) -> np.ndarray:
        """How many slots of each lane come before a tick."""
        return (2 * self._lengths * tick + _TICKS - 1) // (2 * _TICKS)

    def pieces(self, start: int, stop: int, part: tuple[int, int]) -> list[Piece]:
        """What comes between two places, arranged lane by lane, or a part of that.

        part: Places within that arrangement, (start, stop), stop exclusive.
        """
        first, last = self.taken(start), self.taken(stop)
        ends = np.cumsum(last - first)
        begins = ends - (last - first)
        lanes = np.flatnonzero((ends > part[0]) & (begins < part[1]))
        offsets = (first - begins)[lanes]
        starts = offsets + np.maximum(begins[lanes], part[0])
        stops = offsets + np.minimum(ends[lanes], part[1])
        pieces = []
        for lane, low, high in zip(lanes.tolist(), starts.tolist(), stops.tolist(), strict=True):
            pieces += self._lanes[lane].pieces(lane, low, high)
        return pieces

    def next_window(self, piece: Piece) -> Piece | None:
        """The window after that of a piece, whole; None after a lane's last one."""
        starts = self._lanes[piece.lane].window_starts
        window = piece.window + 1
        if window >= len(starts) - 1:
            return None
        return Piece(piece.lane, window, 0, starts[window + 1] - starts[window])

    def window_slots(self, piece: Piece) -> int:
        """Slots of the window of a piece."""
        starts = self._lanes[piece.lane].window_starts
        return starts[piece.window + 1] - starts[piece.window]

    def blocks_of(self, piece: Piece) -> np.ndarray:
        """The numbers of the blocks of a window, in the order in which its slots are numbered."""
        lane = self._lanes[piece.lane]
        first, last = lane.window_blocks[piece.window : piece.window + 2]
        return lane.blocks[first:last]

    def slots_of(self, piece: Piece) -> np.ndarray | None:
        """The slots of a window in the order in which they come; None: as they are numbered."""
        if not self._is_shuffled:
            return None
        return permutation(self.window_slots(piece), *self._keys, piece.lane + 1, piece.window + 1)


class _Lane:
    """Blocks that come one after the other, cut into windows."""

    def __init__(
        self, blocks: np.ndarray, block_slots: np.ndarray, window_slots: int, first_share: float
    ) -> None:
        self.blocks = blocks
        ends = np.cumsum(block_slots)
        self.slots = int(ends[-1]) if len(ends) else 0
        # The first window is shorter, another length in each lane: they do not all end at once.
        first = max(int(window_slots * first_share), 1)
        windows = (ends - block_slots - first) // window_slots
        cuts = np.flatnonzero(np.diff(windows, prepend=-2, append=windows[-1:] + 1))
        self.window_blocks = cuts.tolist()
        self.window_starts: list[int] = np.concatenate(([0], ends))[cuts].tolist()

    def pieces(self, lane: int, start: int, stop: int) -> list[Piece]:
        """Slots of the lane by their places in it, window by window."""
        window = bisect_right(self.window_starts, start) - 1
        pieces = []
        while start < stop:
            begin, end = self.window_starts[window], self.window_starts[window + 1]
            pieces.append(Piece(lane, window, start - begin, min(stop, end) - begin))
            start, window = end, window + 1
        return pieces


class UnitOrder:
    """The order of units that are never split, as many to a global step as it has room for.

    unit_rows: ``int64``, shape (u,): rows of each unit.
    seed, epoch: What the random order depends on.
    """

    def __init__(self, unit_rows: np.ndarray, *, seed: int, epoch: int) -> None:
        self.order = permutation(len(unit_rows), seed, epoch)
        self._rows = unit_rows[self.order]
        self._ends = np.cumsum(self._rows)
        self.total = len(unit_rows)

    def step_end(self, start: int, rows: int) -> int:
        """The place after a step that starts at a place: units of ``rows`` rows, at least one."""
        before = int(self._ends[start - 1]) if start else 0
        return max(int(np.searchsorted(self._ends, before + rows, "right")), start + 1)

    def rows_from(self, place: int) -> int:
        """Rows of the units from a place on."""
        return int(self._rows[place:].sum())

    def of_rank(self, start: int, stop: int, rank: int, world_size: int) -> np.ndarray:
        """The units of a rank, of those between two places: a like number of rows each.

        A unit goes to the rank in whose part of the rows its middle lies.
        """
        before = int(self._ends[start - 1]) if start else 0
        middles = 2 * (self._ends[start:stop] - before) - self._rows[start:stop]
        rows = max(int(self._ends[stop - 1]) - before, 1)
        ranks = np.minimum(middles * world_size // (2 * rows), world_size - 1)
        return self.order[start:stop][ranks == rank]


def permutation(length: int, *keys: int) -> np.ndarray:
    """The numbers from 0 to ``length`` in a random order that depends on the keys: ``int64``."""
    hashes = _mixed(np.arange(length, dtype=np.uint64) * np.uint64(_GAMMA) + _key(keys))
    return np.argsort(hashes)  # they all differ, so that every kind of sort gives this order


_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@lru_cache(maxsize=256)
def _key(keys: tuple[int, ...]) -> np.uint64:
    """One number of several."""
    state = 0
    for key in keys:
        while True:  # an integer of any size, 64 bits at a time
            state = (state + _GAMMA + (key & _MASK)) & _MASK
            state = int(_mixed(np.array([state], np.uint64))[0])
            key >>= 64
            if key in (0, -1):
                break
    return np.uint64(state)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64: ``uint64``; the argument is changed."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
