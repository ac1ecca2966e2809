"""What a table must have kept, whatever happened: checked against what its storage ever held.

The state of every snapshot is computed anew, by carrying out the operations that the messages of
its history tell, one after the other. Every read, every acknowledged commit, every tag, every
branch and every version that is left is compared with that.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from fermion_table.metadata.history import latest
from fermion_table.metadata.references import HEAD_PROPERTY, list_branches, snapshot_of
from fermion_table.metadata.snapshot import Snapshot, decode_snapshot
from fermion_table.storage.paths import MAIN, branch_path, snapshot_path, tag_path
from fermion_table.table.table import Table
from tests.kit.simulation.history_rows import COMPUTED, Rows, image_of, rows_after
from tests.kit.simulation.simulated_storage import SimulatedStorage, SimulatedStore


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
    branch
        Where.
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
    seen
        Keys of the rows that a function was given: rows of others, added meanwhile, get no values.
    """

    key: str
    operation: dict[str, Any]
    branch: str = MAIN
    acknowledged: Snapshot | None = None
    may_be_published: bool = False
    failure: Exception | None = None
    is_refused: bool = False
    is_settled: bool = False
    seen: set[str] = field(default_factory=set)

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
    branch: str = MAIN


@dataclass(slots=True)
class Records:
    """All that the processes tried, saw and were told."""

    attempts: list[Attempt] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    tags_deleted: set[str] = field(default_factory=set)
    branches: set[str] = field(default_factory=set)
    branches_deleted: set[str] = field(default_factory=set)

    def complain(
        self, storage: SimulatedStorage, error: Exception, who: str, branch: str = MAIN
    ) -> None:
        """Accept an error that faults explain.

        Raises
        ------
        Violation
            They don't: metadata is corrupt, or missing though nothing of the branch has expired.
        """
        expected = isinstance(error, OSError) and error.errno in (errno.EIO, errno.ETIMEDOUT)
        if not expected and storage.first_kept(branch) == 0:
            raise Violation(f"{who}: {error!r}, though nothing has expired") from error


class Histories:
    """Every snapshot that a slot ever held, and the rows that it has to have.

    Parameters
    ----------
    storage
        Of the table.
    records
        What was tried.
    cloned
        The rows of the snapshot that the table is a clone of.
    """

    def __init__(self, storage: SimulatedStorage, records: Records, cloned: Rows = ()) -> None:
        self._cloned = cloned
        self._seen = {each.key: each.seen for each in records.attempts}
        self._rows: dict[str, Rows] = {}
        self._written: dict[str, Snapshot] = {}
        for path, data in storage.slots:
            if not path.endswith("/branch.json"):
                snapshot = decode_snapshot(data, path)
                if path == snapshot_path(snapshot.id, snapshot.branch):
                    self._written[snapshot.hash] = snapshot

    def chain(self, newest: Snapshot) -> list[Snapshot]:
        """Every snapshot from 0 to one, expired ones included, each its child's parent."""
        snapshots = [newest]
        while snapshots[-1].parent is not None:
            child, parent = snapshots[-1], snapshots[-1].parent
            found = self._written.get(parent.hash)
            if (
                found is None
                or found.id != child.id - 1
                or found.branch not in (child.branch, MAIN)
            ):
                raise Violation(f"snapshot {child.id} has a parent that was never published")
            snapshots.append(found)
        snapshots.reverse()
        return snapshots

    def rows(self, snapshot_hash: str) -> Rows:
        """The rows of a snapshot."""
        found = self._rows.get(snapshot_hash)
        if found is None:
            found = self._rows[snapshot_hash] = self._computed(self._written[snapshot_hash])
        return found

    def _computed(self, snapshot: Snapshot) -> Rows:
        if snapshot.parent is None:
            return ()
        moved_to = snapshot.properties.get(HEAD_PROPERTY)
        if moved_to is not None:
            return self.rows(moved_to)
        operation = _operation(snapshot)
        if operation["kind"] == "clone":
            return self._cloned
        if operation["kind"] == "compute":
            operation["seen"] = self._seen[operation["of"]]
        return rows_after(self.rows(snapshot.parent.hash), operation)


def rows_of(table: Table, **version: Any) -> Rows:
    """The rows of a table, sorted."""
    computed = [name for name in table.schema.names if name.startswith(COMPUTED)]
    nothing = [None] if table.schema.primary_key else []  # values can be taken back
    images = list(table.schema.blob_columns)
    found = table.scan(columns=["k", "v", *computed, *images], threads=1, **version).to_arrow()
    for name in images:
        read = zip(found[name].to_pylist(), found["k"].to_pylist(), strict=True)
        if any(each not in (image_of(key), *nothing) for each, key in read):
            raise Violation("a row has another image than it was written with")
    rows = zip(*(found[name].to_pylist() for name in ("k", "v")), strict=True)
    if not computed:
        return tuple(sorted(rows))
    values = zip(*(found[name].to_pylist() for name in computed), strict=True)
    return tuple(sorted(map(_with_computed, rows, values, repeat(computed))))


def _with_computed(row: tuple[Any, ...], values: tuple[Any, ...], names: list[str]) -> Any:
    known = tuple(each for each in zip(names, values, strict=True) if each[1] is not None)
    return (*row, known) if known else row


def check_history(
    store: SimulatedStore, storage: SimulatedStorage, records: Records, cloned: Rows = ()
) -> tuple[Histories, int]:
    """Each history is one chain that holds what was acknowledged, and was seen as it is.

    Returns
    -------
    Histories, int
        All of them, and the newest snapshot of main.
    """
    histories = Histories(storage, records, cloned)
    names = {branch.name for branch in list_branches(store)}
    if not names >= records.branches:
        raise Violation(f"branches {records.branches - names} were made, and are gone")
    chains = {name: histories.chain(latest(store, branch=name)) for name in (MAIN, *sorted(names))}
    published: dict[str, dict[str, Snapshot]] = {}
    for snapshot in (each for chain in chains.values() for each in chain):
        key = _key(snapshot)
        if key is not None:
            published.setdefault(key, {})[snapshot.hash] = snapshot
    for key, found in published.items():
        if len(found) > 1:
            ids = sorted(snapshot.id for snapshot in found.values())
            raise Violation(f"{key} was committed more than once: snapshots {ids}")
    for attempt in records.attempts:
        if attempt.branch in chains and attempt.branch not in records.branches_deleted:
            _check_attempt(attempt, chains[attempt.branch], list(published.get(attempt.key, ())))
    seen_in_main = {snapshot.hash for snapshot in chains[MAIN]}
    for seen in records.observations:
        if seen.branch == MAIN and seen.hash not in seen_in_main:
            raise Violation(f"snapshot {seen.snapshot_id} was read, and is not in the history")
        rows = histories.rows(seen.hash)
        if seen.rows != rows:
            raise Violation(f"snapshot {seen.snapshot_id} was read as {seen.rows}, and is {rows}")
    return histories, chains[MAIN][-1].id


def check_reachable(store: SimulatedStore, records: Records, histories: Histories) -> None:
    """Every kept snapshot, tag and branch verifies, and has the rows that it should."""
    table = Table(store, latest(store))
    report = table.verify(data=True)
    if not report.ok:
        raise Violation(f"verify: {report}")
    versions = {f"snapshot {snapshot.id}": Table(store, snapshot) for snapshot in table.snapshots()}
    tags = {tag.name: tag for tag in table.tags.list()}
    for name in records.tags:
        if name not in tags:
            raise Violation(f"tag {name} was made, and is gone")
    for name, tag in tags.items():
        versions[f"tag {name}"] = Table(store, snapshot_of(tag, tag_path(name)))
    for branch in list_branches(store):
        left = snapshot_of(branch, branch_path(branch.name))
        versions[f"the start of branch {branch.name}"] = Table(store, left)
        table = Table(store, latest(store, branch=branch.name), branch=branch.name)
        for snapshot in table.snapshots():
            if snapshot.branch == branch.name:
                what = f"snapshot {snapshot.id} of branch {branch.name}"
                versions[what] = Table(store, snapshot, branch=branch.name)
    compared: set[str] = set()
    for what, version in versions.items():
        if version.snapshot.hash not in compared:
            compared.add(version.snapshot.hash)
            _compare(what, version, histories)


def _operation(snapshot: Snapshot) -> dict[str, Any]:
    text = snapshot.message or ""
    return json.loads(text) if text.startswith("{") else {"kind": snapshot.kind}


def _key(snapshot: Snapshot) -> str | None:
    return _operation(snapshot).get("of")


def _check_attempt(attempt: Attempt, chain: list[Snapshot], found: list[str]) -> None:
    """Compare what somebody was told with the hashes of the commits of that name."""
    snapshot = attempt.acknowledged
    if snapshot is not None:
        if snapshot.id >= len(chain) or chain[snapshot.id].hash != snapshot.hash:
            raise Violation(f"{attempt.key} was acknowledged as {snapshot.id}, and is lost")
        if found != [snapshot.hash]:
            raise Violation(f"{attempt.key} was acknowledged as {snapshot.id}, and is not that")
    elif found and not attempt.may_be_published:
        if attempt.is_refused:
            raise Violation(f"{attempt.key} was refused, and is published")
        if attempt.failure is not None:
            raise Violation(f"{attempt.key} failed, and is published") from attempt.failure


def _compare(what: str, table: Table, histories: Histories) -> None:
    rows, wanted = rows_of(table), histories.rows(table.snapshot.hash)
    if rows != wanted:
        raise Violation(f"{what} reads as {rows}, and is {wanted}")
