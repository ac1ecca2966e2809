"""How far a stream has read, and where its next micro-batch ends: pure functions over values.

As JSON, which Spark keeps in the query's checkpoint:

========  ===========  ===========================================================================
key       type         meaning
========  ===========  ===========================================================================
snapshot  int          the last snapshot that was read; -1 before the first
table     text?        the table's uuid; missing in offsets of earlier versions
files     int?         the number of the snapshot's files that were read; missing: all of them
initial   true?        with ``files``: they are all live files of the snapshot, because the stream
                       began with it; missing: they are the files that the snapshot added
========  ===========  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fermion.exports import dataclass
from spark_ext.errors import StreamSourceChanged

BEFORE_ALL = -1
"""The snapshot of a stream that has read nothing: it reads all rows of the table first."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has read; see the module."""

    snapshot: int
    table: str | None = None
    files: int | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The offset as JSON; see the module."""
        offset: dict[str, Any] = {"snapshot": self.snapshot}
        if self.table is not None:
            offset["table"] = self.table
        if self.files is not None:
            offset["files"] = self.files
            if self.initial:
                offset["initial"] = True
        return offset


@dataclass(frozen=True, slots=True)
class Portion:
    """Some files of a snapshot, by their positions in its order.

    snapshot: Its id.
    initial: Whether these are its live files, or only those that it added.
    start, stop: Positions of the first file, and after the last one; None: to the end.
    """

    snapshot: int
    initial: bool = False
    start: int = 0
    stop: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has all of the files."""
        return self.start == 0 and self.stop is None


def parse_offset(given: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset of a checkpoint.

    Raises StreamSourceChanged: It is not an offset of this source.
    """
    snapshot: Any = given.get("snapshot")
    table, files = given.get("table"), given.get("files")
    initial = given.get("initial", False)
    if (
        not _is_count(snapshot, BEFORE_ALL)
        or not (table is None or isinstance(table, str))
        or not (files is None or _is_count(files, 0))
        or not isinstance(initial, bool)
    ):
        raise StreamSourceChanged(
            f"the checkpoint has the offset {dict(given)}: expected one of a Fermion table, "
            'like {"snapshot": 5, "table": "<uuid>"}; start the query with a new checkpoint'
        )
    return StreamOffset(snapshot, table, files, initial)


def check_table(offset: StreamOffset, table: str, newest: int, where: str) -> None:
    """Check that a stream continues with the table that it has read.

    table, newest: The uuid of the table that is at the location now, and its newest snapshot.
    where: Names the table in messages.
    Raises StreamSourceChanged.
    """
    if offset.table is not None and offset.table != table:
        raise StreamSourceChanged(
            f"{where}: the stream has read table {offset.table} up to snapshot {offset.snapshot}, "
            f"and now table {table} is there: it was dropped and created again. "
            "Start the query with a new checkpoint"
        )
    if offset.snapshot > newest:
        raise StreamSourceChanged(
            f"{where}: the stream has read up to snapshot {offset.snapshot}, and the newest is "
            f"{newest}: another table is there now. Start the query with a new checkpoint"
        )


def next_offset(
    start: StreamOffset,
    newest: int,
    limit: int | None,
    table: str,
    files_in: Callable[[int, bool], int],
    *,
    divides_commits: bool = True,
) -> StreamOffset:
    """Compute where the next micro-batch ends; it is the start if there is nothing new.

    newest: The last snapshot to read.
    limit: The most files that a micro-batch reads, at least 1; None: any number.
    table: The table's uuid.
    files_in: Gives the number of files that a snapshot has for a stream: its live files if the
        second argument is true, or those that it added.
    divides_commits: Whether a micro-batch may end between the files that a commit added. If not, it
        has at least one commit.
    """
    begins = start.snapshot == BEFORE_ALL
    if begins:
        start = StreamOffset(newest, table, 0, initial=True)
    if limit is None:
        return StreamOffset(max(newest, start.snapshot), table)
    snapshot, initial, read = start.snapshot, start.initial, start.files
    left = limit
    while True:
        if read is not None:
            total = files_in(snapshot, initial)
            if total - read > left and (initial or divides_commits):
                return StreamOffset(snapshot, table, read + left, initial)
            if total - read > left and left < limit:
                return StreamOffset(snapshot - 1, table)
            left -= min(left, max(0, total - read))
        if begins or left == 0 or snapshot >= newest:
            return StreamOffset(snapshot, table)
        snapshot, initial, read = snapshot + 1, False, 0


def portions(start: StreamOffset, end: StreamOffset) -> Iterator[Portion]:
    """The files between two offsets, in order."""
    if start.snapshot == BEFORE_ALL:
        if end.snapshot != BEFORE_ALL:
            yield Portion(end.snapshot, True, 0, end.files)
        return
    if start.files is not None:
        stop = end.files if end.snapshot == start.snapshot else None
        yield Portion(start.snapshot, start.initial, start.files, stop)
    for snapshot in range(start.snapshot + 1, end.snapshot + 1):
        yield Portion(snapshot, stop=end.files if snapshot == end.snapshot else None)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
