"""Where the rows of an epoch come from: parts with slots, cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from fermion.errors import InvalidFileError, TruncatedFileError
from fermion.exports import dataclass
from fermion.forks import Lock
from fermion.redaction import logger

BLOCK_ROWS = 16_384
"""Rows of a block, at most. A page has to be decoded for any of its rows: smaller blocks of large
pages cost as much each, and larger ones are shuffled less well."""
OnDamage = Literal["error", "skip"]
_log = logger(__name__)


@dataclass(frozen=True)
class BlockRows:
    """Rows that were read for some slots of a part.

    Attributes
    ----------
    batch
        The rows.
    slots
        ``int64``, shape (rows,), ascending: the slot of each, counted from the first that was
        asked for; None: there is a row for every slot.
    """

    batch: pa.RecordBatch
    slots: np.ndarray | None = None


@dataclass(frozen=True)
class TrainingUnits:
    """Slots that belong together; a unit may lie at several places.

    Attributes
    ----------
    numbers
        ``int64``, shape (places,), ascending: the unit of each place, counted from 0.
    parts, starts, stops
        ``int64``, shape (places,): the part, and its slots from start to stop, stop exclusive.
    """

    numbers: np.ndarray
    parts: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def of_batches(cls, parts: list[tuple[np.ndarray, np.ndarray]]) -> TrainingUnits:
        """Those of the batches of each part, which are given by their ids and lengths."""
        ids = np.concatenate([np.zeros(0, np.int64), *(each for each, _ in parts)])
        rows = np.concatenate([np.zeros(0, np.int64), *(each for _, each in parts)])
        stops = np.concatenate([np.zeros(0, np.int64), *(np.cumsum(each) for _, each in parts)])
        places = np.repeat(np.arange(len(parts)), [len(each) for each, _ in parts])
        numbers = np.unique(ids, return_inverse=True)[1]
        order = np.argsort(numbers, kind="stable")
        order = order[rows[order] > 0]
        numbers = np.unique(numbers[order], return_inverse=True)[1]
        return cls(numbers, places[order], (stops - rows)[order], stops[order])


class BlockSource(Protocol):
    """What is trained from: parts, each with slots for rows. Used by many threads, and pickled."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def slots(self) -> np.ndarray:
        """Slots of each part: ``int64``, shape (parts,)."""

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this source from others, as JSON values by name."""

    def read(self, part: int, start: int, stop: int) -> BlockRows:
        """The rows of some slots of a part, stop exclusive."""

    def count(self) -> int:
        """How many rows there are."""

    def units(self) -> TrainingUnits:
        """Slots that belong together, as their rows have one ``batch_id``.

        Raises InvalidArgumentError: Rows were not written in batches.
        """

    def bytes_read(self) -> int:
        """Bytes that were requested so far."""


Place: TypeAlias = tuple[int, int, int]
"""A part, and slots of it from start to stop, stop exclusive."""
ReadPlaces: TypeAlias = Callable[[Sequence[Place]], list[BlockRows]]
"""Reads places that belong together: a block, or all places of a unit."""


def read_places(source: BlockSource, places: Sequence[Place]) -> list[BlockRows]:
    """The rows of each place."""
    return [source.read(*place) for place in places]


class DamageSkipper:
    """Reads rows, and leaves out those of blocks and units whose bytes are damaged.

    source: Where they come from.

    Attributes:
    blocks, rows: That were left out so far: as often as they were to be read.
    """

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self._lock = Lock()
        self.blocks = self.rows = 0

    def read(self, places: Sequence[Place]) -> list[BlockRows]:
        """The rows of each place; none of any if one is damaged, which is a warning in the log."""
        try:
            return read_places(self._source, places)
        except (InvalidFileError, TruncatedFileError) as error:
            slots = sum(stop - start for _, start, stop in places)
            _log.warning(
                "%d rows are left out of the training: %s",
                slots,
                error,
                extra={"rows_skipped": slots},
            )
            with self._lock.get():
                self.blocks, self.rows = self.blocks + len(places), self.rows + slots
            none = pa.RecordBatch.from_pylist([], self._source.schema)
            return [BlockRows(none, np.zeros(0, np.int64))] * len(places)


@dataclass(frozen=True)
class Blocks:
    """Consecutive slots of parts, a few thousand each.

    parts, starts, stops: ``int64``, shape (blocks,): the part, and its slots from start to stop,
        stop exclusive.
    """

    parts: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def cut(cls, slots: np.ndarray, block_rows: int) -> Blocks:
        """Each part cut into pieces of about the same length, of ``block_rows`` slots at most."""
        pieces = -(-slots // block_rows)
        parts = np.repeat(np.arange(len(slots)), pieces)
        place = np.arange(len(parts)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        length, count = slots[parts], pieces[parts]
        return cls(parts, place * length // count, (place + 1) * length // count)

    @property
    def slots(self) -> np.ndarray:
        """Slots of each block: ``int64``."""
        return self.stops - self.starts
