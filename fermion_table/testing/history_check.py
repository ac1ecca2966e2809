"""What a table must have kept, whatever happened: checked against what its storage ever held.

The state of every snapshot is computed anew, by carrying out the operations that the messages of
its history tell, one after the other. Every read, every acknowledged commit, every tag and every
version that is left is compared with that.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fermion_table.history import latest
from fermion_table.paths import MAIN, snapshot_path
from fermion_table.snapshot import Snapshot, decode_snapshot
from fermion_table.table import Table
from fermion_table.testing.simulated_storage import SimulatedStorage, SimulatedStore

Rows = tuple[tuple[str, int], ...]


class Violation(AssertionError):
    """A promise of the table was broken."""


@dataclass(slots=True)
class Attempt:
    """An operation that somebody tried, and what they were told.

    Attributes
    ----------
    key
        Its name; also the value of ``k`` in its rows.
    operation
        What it does; goes into the commit's message.
    acknowledged
        The snapshot, once the table said that it was published.
    may_be_published
        The table said that it could not tell.
    failure
        The error that it ended with, which does not speak of being published.
    is_refused
        The table said that it can't be, and was not.
    is_settled
        There is nothing left to try.
    """

    key: str
    operation: dict[str, Any]
    acknowledged: Snapshot | None = None
    may_be_published: bool = False
    failure: Exception | None = None
    is_refused: bool = False
    is_settled: bool = False

    @property
    def is_open(self) -> bool:
        """Whether to try again."""
        return not (self.is_settled or self.failure is not None)

    @property
    def message(self) -> str:
        """The commit's message."""
        return json.dumps({"of": self.key, **self.operation})

    def result(self, snapshot: Snapshot | None) -> None:
        """The table gave an answer: published, or (None) nothing to do."""
        self.acknowledged, self.is_settled = snapshot, True

    def refuse(self) -> None:
        """The table refused."""
        self.is_refused = self.is_settled = True


@dataclass(frozen=True, slots=True)
class Observation:
    """What a reader saw."""

    snapshot_id: int
    hash: str
    rows: Rows


@dataclass(slots=True)
class Records:
    """All that the processes tried, saw and were told."""

    attempts: list[Attempt] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    tags_deleted: set[str] = field(default_factory=set)

    def complain(self, storage: SimulatedStorage, error: Exception, who: str) -> None:
        """Accept an error that faults explain.

        Raises
        ------
        Violation
            They don't: metadata is corrupt, or missing though nothing has expired.
        """
        expected = isinstance(error, OSError) and error.errno in (errno.EIO, errno.ETIMEDOUT)
        if not expected and storage.earliest == 0:
            raise Violation(f"{who}: {error!r}, though nothing has expired") from error


@dataclass(slots=True)
class Chain:
    """The history, expired snapshots included, and the rows of every state."""

    snapshots: list[Snapshot]
    states: list[Rows]


def rows_of(table: Table, **version: Any) -> Rows:
    """The rows of a table, sorted."""
    found = table.scan(columns=["k", "v"], threads=1, **version).to_arrow()
    return tuple(sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)))


def check_history(store: SimulatedStore, storage: SimulatedStorage, records: Records) -> Chain:
    """The history is one chain that holds what was acknowledged, and was seen as it is."""
    newest = latest(store)
    chain = _chain(newest, storage)
    keys = [_key(snapshot) for snapshot in chain.snapshots]
    by_key: dict[str, list[int]] = {}
    for snapshot_id, key in enumerate(keys):
        if key is not None:
            by_key.setdefault(key, []).append(snapshot_id)
    for key, ids in by_key.items():
        if len(ids) > 1:
            raise Violation(f"{key} was committed more than once: snapshots {ids}")
    for attempt in records.attempts:
        _check_attempt(attempt, chain, by_key.get(attempt.key, []))
    for seen in records.observations:
        if seen.snapshot_id > newest.id or chain.snapshots[seen.snapshot_id].hash != seen.hash:
            raise Violation(f"snapshot {seen.snapshot_id} was read, and is not in the history")
        if seen.rows != chain.states[seen.snapshot_id]:
            raise Violation(
                f"snapshot {seen.snapshot_id} was read as {seen.rows}, and is "
                f"{chain.states[seen.snapshot_id]}"
            )
    return chain


def check_reachable(store: SimulatedStore, records: Records, chain: Chain) -> None:
    """Every kept snapshot and every tag verifies, and has the rows that it should."""
    table = Table(store, latest(store))
    report = table.verify(data=True)
    if not report.ok:
        raise Violation(f"verify: {report}")
    for snapshot in table.snapshots():
        _compare(
            f"snapshot {snapshot.id}", rows_of(table, snapshot_id=snapshot.id), chain, snapshot.id
        )
    names = {tag.name for tag in table.tags.list()}
    for name, snapshot_id in records.tags.items():
        if name not in names:
            raise Violation(f"tag {name} was made, and is gone")
        _compare(f"tag {name}", rows_of(table, tag=name), chain, snapshot_id)


def _chain(newest: Snapshot, storage: SimulatedStorage) -> Chain:
    """Every snapshot from 0 to the newest, by what its slot ever held, each its child's parent."""
    written: dict[tuple[str, str], Snapshot] = {}
    for path, data in storage.slots:
        if path.startswith("snapshot/"):
            snapshot = decode_snapshot(data, path)
            written[path, snapshot.hash] = snapshot
    snapshots = [newest]
    while snapshots[-1].parent is not None:
        parent = snapshots[-1].parent
        found = written.get((snapshot_path(parent.id, MAIN), parent.hash))
        if found is None or found.id != snapshots[-1].id - 1:
            raise Violation(f"snapshot {snapshots[-1].id} has a parent that was never published")
        snapshots.append(found)
    snapshots.reverse()
    return Chain(snapshots, list(_states(snapshots)))


def _states(snapshots: Iterable[Snapshot]) -> Iterable[Rows]:
    rows: Rows = ()
    for snapshot in snapshots:
        rows = _after(rows, _operation(snapshot))
        yield rows


def _operation(snapshot: Snapshot) -> dict[str, Any]:
    text = snapshot.message or ""
    return json.loads(text) if text.startswith("{") else {"kind": snapshot.kind}


def _key(snapshot: Snapshot) -> str | None:
    return _operation(snapshot).get("of")


def _after(rows: Rows, operation: dict[str, Any]) -> Rows:
    """The rows after an operation."""
    key, new = operation.get("key"), tuple(map(tuple, operation.get("rows", ())))
    match operation["kind"]:
        case "append":
            return tuple(sorted((*rows, *new)))
        case "overwrite":
            return tuple(sorted((*(row for row in rows if row[0] != key), *new)))
        case "delete":
            return tuple(row for row in rows if row[0] != key)
        case "update":
            value = operation["value"]
            return tuple(sorted((k, value) if k == key else (k, v) for k, v in rows))
    return rows


def _check_attempt(attempt: Attempt, chain: Chain, found: list[int]) -> None:
    snapshot = attempt.acknowledged
    if snapshot is not None:
        if (
            snapshot.id >= len(chain.snapshots)
            or chain.snapshots[snapshot.id].hash != snapshot.hash
        ):
            raise Violation(f"{attempt.key} was acknowledged as {snapshot.id}, and is lost")
        if found != [snapshot.id]:
            raise Violation(f"{attempt.key} was acknowledged as {snapshot.id}, and is in {found}")
    elif found and not attempt.may_be_published:
        if attempt.is_refused:
            raise Violation(f"{attempt.key} was refused, and is snapshot {found[0]}")
        if attempt.failure is not None:
            raise Violation(
                f"{attempt.key} failed, and is snapshot {found[0]}"
            ) from attempt.failure


def _compare(what: str, rows: Rows, chain: Chain, snapshot_id: int) -> None:
    if rows != chain.states[snapshot_id]:
        raise Violation(f"{what} reads as {rows}, and is {chain.states[snapshot_id]}")
