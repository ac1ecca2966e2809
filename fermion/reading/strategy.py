"""What a way to read columns of a stripe is asked, and what it answers; work for several threads.

`stripe.StripeReader` asks the strategies in order, each for the columns that are left. The last one
reads everything: `column.GeneralRead`, the first to understand. The others take fewer steps for
some columns and rows, and leave what they do not know, damage too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.columns.types import Node
from fermion.exports import NamedTuple, dataclass
from fermion.forks import ThreadPool, cached_property
from fermion.options import columns_per_task
from fermion.reading.chunk_pages import FetchedPages
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected

T = TypeVar("T")

# To start threads and take turns at Python's lock costs more than to decode less than that.
THREADED_SLOTS_MIN = 512 * 1024
THREADED_BYTES_MIN = 4 * 1024 * 1024


@dataclass
class ReadRequest:
    """Some rows of some stored columns of a stripe.

    columns: None of them virtual.
    slots: Rows of the stripe.
    rows: Those to read, counted within the stripe; None: all.
    executor: Decodes columns, or parts of them, side by side; None: one after the other.
    schema: Of the columns, where a record batch is as good as arrays.
    kept: Pages that are here already, to which those that are fetched are added; None: none are
        kept.
    verified: Pages that are here already, whose checksums were verified.
    fetched: Pages that another strategy fetched.
    is_joined: Whether the values of all columns, which are of one type, may come in one array.
    """

    columns: Sequence[Projected]
    stripe: int
    slots: int
    rows: RowRanges | None = None
    executor: ThreadPool | None = None
    schema: pa.Schema | None = None
    kept: FetchedPages | None = None
    verified: FetchedPages = field(default_factory=dict)
    fetched: FetchedPages = field(default_factory=dict)
    is_joined: bool = False

    @cached_property
    def total(self) -> int:
        """How many rows are read."""
        return self.slots if self.rows is None else self.rows.total

    @cached_property
    def listed(self) -> np.ndarray:
        """The rows one by one, where not all are read: ``int64``, ascending."""
        assert self.rows is not None
        return self.rows.to_indices()

    @cached_property
    def trees(self) -> list[Node]:
        """The columns' trees, each under the name of any column of its shape."""
        return [column.tree for column in self.columns if column.tree is not None]

    @cached_property
    def is_plain(self) -> bool:
        """Whether Arrow arrays are all that is asked for: no pages to keep, no dictionaries."""
        return self.kept is None and True not in [column.as_dictionary for column in self.columns]

    def only(self, places: Sequence[int], fetched: FetchedPages) -> ReadRequest:
        """The same for some of the columns, of which some pages were fetched."""
        columns = [self.columns[place] for place in places]
        return replace(self, columns=columns, schema=None, fetched=self.fetched | fetched)


class ReadResult(NamedTuple):
    """What a strategy read.

    arrays: Of each column; None for one that has to be read otherwise.
    fetched: The pages of such columns, as far as they were fetched.
    batch: All columns, instead of the arrays.
    joined: Instead of both the places of columns, and their values one behind the other; the other
        columns are null.
    """

    arrays: list[pa.Array | None]
    fetched: FetchedPages
    batch: pa.RecordBatch | None = None
    joined: tuple[list[int], pa.Array] | None = None

    @classmethod
    def nothing(cls, request: ReadRequest) -> ReadResult:
        """All columns have to be read otherwise."""
        return cls([None] * len(request.columns), {})


class ReadStrategy(ABC):
    """A way to read columns of a file's stripes."""

    def __init__(self, index: FileIndex) -> None:
        self._index, self._checks = index, index.page_checks

    @abstractmethod
    def applies(self, request: ReadRequest) -> bool:
        """Whether it may know some of the columns; reads nothing."""

    @abstractmethod
    def read(self, request: ReadRequest) -> ReadResult:
        """Read those of the columns that it knows.

        Raises ChecksumError, InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError:
            Of strategies that leave no column.
        """


def is_worth_threads(slots: int, stored: int) -> bool:
    """Whether so many values out of so many bytes are decoded side by side."""
    return slots >= THREADED_SLOTS_MIN or stored >= THREADED_BYTES_MIN


def run_by_size(
    executor: ThreadPool | None,
    function: Callable[..., T],
    sizes: Sequence[int],
    slots: int,
    *items: Sequence[Any],
) -> list[T]:
    """What a function gives for each item of some lists; side by side where that is worth it.

    sizes: Bytes that each item decodes; the longest is first, so that no thread is left alone with
        it.
    slots: How many all of them give; 0: their bytes alone decide.
    """
    if not is_worth_threads(slots, sum(sizes)):
        executor = None
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    results = run_each(executor, function, *[[item[place] for place in order] for item in items])
    by_place = dict(zip(order, results, strict=True))
    return [by_place[place] for place in range(len(order))]


def run_each(
    executor: ThreadPool | None, function: Callable[..., T], *items: Sequence[Any]
) -> list[T]:
    """What a function gives for each item of some lists, in order; on threads if there are any."""
    count = len(items[0]) if items else 0
    if executor is None or count < 2:
        return [function(*arguments) for arguments in zip(*items, strict=True)]
    step = columns_per_task(count)

    def run(start: int) -> list[T]:
        parts = [item[start : start + step] for item in items]
        return [function(*arguments) for arguments in zip(*parts, strict=True)]

    return [result for part in executor.map(run, range(0, count, step)) for result in part]
