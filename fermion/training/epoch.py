"""One epoch of one rank, step by step: which rows a step has, and reading them ahead of time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Literal, Protocol

import numpy as np

from fermion.exports import dataclass
from fermion.forks import ThreadPool
from fermion.training.batch import NullRule, Window
from fermion.training.blocks import BlockRows, Blocks, ReadPlaces, TrainingUnits
from fermion.training.order import EpochOrder, Piece, UnitOrder

Last = Literal["short", "drop", "repeat"]


@dataclass(frozen=True)
class Share:
    """The part of every step that a rank takes.

    rank, world_size: Which part of how many.
    batch_rows: Rows of a rank; ``batch_rows * world_size`` are those of a global step.
    last: What becomes of the rows that are left after the last full step.
    """

    rank: int
    world_size: int
    batch_rows: int
    last: Last

    @property
    def step_rows(self) -> int:
        """Rows of a global step."""
        return self.batch_rows * self.world_size

    def of(self, rows: int) -> tuple[int, int]:
        """The rank's part of some rows, stop exclusive."""
        return self.rank * rows // self.world_size, (self.rank + 1) * rows // self.world_size


class Epoch(Protocol):
    """The steps of an epoch. A place is a number in its order."""

    def step_end(self, place: int) -> int | None:
        """The place after the step that begins at a place; None at the end of the epoch."""

    def rows(self, place: int) -> Sequence[tuple[Window, slice]]:
        """The rank's rows of the step that begins at a place."""

    def close(self) -> None:
        """Drop what is being read."""


class SlotEpoch:
    """Steps of slots, which come from windows of all lanes.

    A window is read when a step needs it, and the next one of its lane when three quarters of it
    have been given out.
    """

    def __init__(
        self,
        read: ReadPlaces,
        blocks: Blocks,
        order: EpochOrder,
        share: Share,
        rule: NullRule,
        pool: ThreadPool,
    ) -> None:
        self._read, self._blocks, self._order = read, blocks, order
        self._share, self._rule, self._pool = share, rule, pool
        self._windows: dict[int, dict[int, Window | Future[Window]]] = {}  # by lane, then by window

    def step_end(self, place: int) -> int | None:
        """As of `Epoch`."""
        total, end = self._order.total, place + self._share.step_rows
        if place >= total or (end > total and self._share.last == "drop"):
            return None
        return min(end, total)

    def rows(self, place: int) -> Sequence[tuple[Window, slice]]:
        """As of `Epoch`."""
        pieces = self._pieces(place)
        for piece in pieces:
            self._begin(piece)
        rows = []
        wanted: dict[int, set[int]] = {}
        for piece in pieces:
            of_lane = self._windows[piece.lane]
            window = of_lane[piece.window]
            if isinstance(window, Future):
                window = of_lane[piece.window] = window.result()
            rows.append((window, window.bounds(piece.start, piece.stop)))
            wanted.setdefault(piece.lane, set()).update((piece.window, piece.window + 1))
        for lane, numbers in wanted.items():
            for number in self._windows[lane].keys() - numbers:
                del self._windows[lane][number]
        return rows

    def _pieces(self, place: int) -> list[Piece]:
        total, step_rows = self._order.total, self._share.step_rows
        left = total - place
        if left >= step_rows or self._share.last == "short":
            rows = min(left, step_rows)
            return self._order.pieces(place, place + rows, self._share.of(rows))
        first, last = self._share.of(step_rows)  # "repeat": goes on from the start of the epoch
        pieces, begin = [], 0
        while begin < last:
            rows = min(left, step_rows - begin)
            part = max(first - begin, 0), min(last - begin, rows)
            pieces += self._order.pieces(place, place + rows, part)
            place, begin, left = 0, begin + rows, total
        return pieces

    def _begin(self, piece: Piece) -> None:
        """Have a window read, and in time the one after it."""
        of_lane = self._windows.setdefault(piece.lane, {})
        if piece.window not in of_lane:
            of_lane[piece.window] = self._pool.submit(self._read_window, piece)
        if piece.window + 1 not in of_lane and self._is_nearly_used(piece):
            following = self._order.next_window(piece)
            if following is not None:
                of_lane[following.window] = self._pool.submit(self._read_window, following)

    def _is_nearly_used(self, piece: Piece) -> bool:
        return 4 * piece.stop > 3 * self._order.window_slots(piece)

    def _read_window(self, piece: Piece) -> Window:
        blocks = self._blocks
        numbers = self._order.blocks_of(piece)
        places = zip(
            blocks.parts[numbers].tolist(),
            blocks.starts[numbers].tolist(),
            blocks.stops[numbers].tolist(),
            strict=True,
        )
        rows = [row for place in places for row in self._read([place])]
        order = self._order.slots_of(piece)
        if all(each.slots is None for each in rows):
            return Window([each.batch for each in rows], order, None, self._rule)
        present = _row_of_slot(rows, blocks.slots[numbers])
        if order is not None:
            present = present[order]
        is_there = present >= 0
        before = np.concatenate(([0], np.cumsum(is_there)))
        return Window([each.batch for each in rows], present[is_there], before, self._rule)

    def close(self) -> None:
        """As of `Epoch`."""
        for of_lane in self._windows.values():
            for window in of_lane.values():
                if isinstance(window, Future):
                    window.cancel()
        self._windows.clear()


class UnitEpoch:
    """Steps of whole units."""

    def __init__(
        self,
        read: ReadPlaces,
        units: TrainingUnits,
        order: UnitOrder,
        share: Share,
        rule: NullRule,
        pool: ThreadPool,
    ) -> None:
        self._read, self._units, self._order = read, units, order
        self._share, self._rule, self._pool = share, rule, pool

    def step_end(self, place: int) -> int | None:
        """As of `Epoch`."""
        if place >= self._order.total:
            return None
        if self._share.last == "drop" and self._order.rows_from(place) < self._share.step_rows:
            return None
        return self._order.step_end(place, self._share.step_rows)

    def rows(self, place: int) -> Sequence[tuple[Window, slice]]:
        """As of `Epoch`."""
        stop = self._order.step_end(place, self._share.step_rows)
        chosen = self._order.of_rank(place, stop, self._share.rank, self._share.world_size)
        read = self._pool.map(self._read_unit, chosen.tolist())
        return [(window, slice(0, rows)) for unit in read for window, rows in unit]

    def _read_unit(self, number: int) -> list[tuple[Window, int]]:
        units = self._units
        first, last = np.searchsorted(units.numbers, (number, number + 1)).tolist()
        bounds = (units.parts, units.starts, units.stops)
        places = zip(*(column[first:last].tolist() for column in bounds), strict=True)
        return [
            (Window([rows.batch], None, None, self._rule), rows.batch.num_rows)
            for rows in self._read(list(places))
        ]

    def close(self) -> None:
        """As of `Epoch`."""


def _row_of_slot(rows: Sequence[BlockRows], slots: np.ndarray) -> np.ndarray:
    """The number of each slot's row among all rows, -1 where there is none: ``int64``."""
    numbers = np.full(int(slots.sum()), -1, np.int64)
    first_slot = first_row = 0
    for each, count in zip(rows, slots.tolist(), strict=True):
        taken = np.arange(count) if each.slots is None else each.slots
        numbers[first_slot + taken] = first_row + np.arange(len(taken))
        first_slot, first_row = first_slot + count, first_row + len(taken)
    return numbers
