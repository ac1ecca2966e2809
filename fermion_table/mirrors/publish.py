"""Publishing: a mirror catches up with its source, one commit for each snapshot.

Whatever stops it leaves copies that no commit names, at worst; the next publication uses them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.metadata.history import SchemaVersions, latest, load_snapshot, walk
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.mirrors.copies import (
    Copy,
    CopyTask,
    columns_of,
    described,
    present_ids,
    schema_key,
)
from fermion_table.mirrors.plan import compaction_changes_rows, plan_copies, reads_alike
from fermion_table.mirrors.target import MirrorTarget, Position, Source, Step, TargetState
from fermion_table.planning.split import Split
from fermion_table.scanning.scan import Scan
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.store import AtomicStore

Runner = Callable[[CopyTask, Sequence[tuple[Split, str]]], None]
"""Writes copies: of each split one, at a path of the mirror's storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a publication did.

    Attributes
    ----------
    name, kind
        Of the mirror.
    snapshot_id
        The snapshot that the mirror shows now; None: none yet.
    snapshots
        Those that this publication added to it, oldest first.
    files_added, files_removed
        Parquet files that the mirror shows since, and does no more, over all snapshots.
    """

    name: str
    kind: str
    snapshot_id: int | None
    snapshots: tuple[int, ...] = ()
    files_added: int = 0
    files_removed: int = 0

    __repr__ = short_repr


def write_here(task: CopyTask, splits: Sequence[tuple[Split, str]]) -> None:
    """Write copies in threads of this process."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for _ in pool.map(lambda each: task.write(*each), splits):
            pass


@dataclass(frozen=True)
class Publisher:
    """Brings one mirror up to its source.

    name: Of the mirror.
    store, branch: Of the source.
    target: The mirror.
    history: Whether the first publication begins with the oldest snapshot, not with the newest.
    runner: Writes the copies.
    """

    name: str
    store: AtomicStore
    branch: str
    target: MirrorTarget
    history: bool = False
    runner: Runner = write_here

    def publish(self) -> Publication:
        """Publish all snapshots that the mirror does not show.

        Raises CommitConflict: Somebody else has written to the mirror.
        Raises InvalidArgumentError: It shows a snapshot that is not in the history of the source,
            or a column or value that it can't have.
        Raises UnsupportedTypeError: A column's type; no snapshot was published.
        Raises VersionNotFound: A snapshot has expired meanwhile; the next publication goes on with
            a later one.
        """
        newest = latest(self.store, branch=self.branch)
        source = Source(newest.table_uuid, self.branch)
        state = self.target.load(source)
        pending = self._pending(newest, state.position)
        versions = SchemaVersions(self.store, newest)
        for number in sorted({snapshot.schema.id for snapshot in pending}):
            self.target.check(self._schema(versions, pending, number))
        done: list[int] = []
        added = removed = 0
        for snapshot in pending:
            while state.position is None or state.position.snapshot_id < snapshot.id:
                step = self._step(state, source, snapshot)
                after = self.target.commit(state, step)
                if after is None:
                    state = self.target.load(source)  # the other writer may be one of ours
                    self._check_position(state.position)
                    continue
                state = after
                done.append(snapshot.id)
                added += len(step.added)
                removed += len(step.removed)
        return Publication(
            name=self.name,
            kind=self.target.kind,
            snapshot_id=None if state.position is None else state.position.snapshot_id,
            snapshots=tuple(done),
            files_added=added,
            files_removed=removed,
        )

    def _schema(
        self, versions: SchemaVersions, pending: Sequence[Snapshot], number: int
    ) -> TableSchema:
        """A schema by id, of the newest snapshot's versions or, of a replaced one, by itself."""
        snapshot = next(each for each in pending if each.schema.id == number)
        if number in set(versions):
            return versions[number]
        return SchemaVersions(self.store, snapshot).current

    def _pending(self, newest: Snapshot, position: Position | None) -> list[Snapshot]:
        """The snapshots to publish, oldest first."""
        if position is None and not self.history:
            return [newest]
        pending: list[Snapshot] = []
        for snapshot in walk(self.store, newest, branch=self.branch):
            if position is not None and snapshot.id <= position.snapshot_id:
                self._check_same(position, snapshot, newest)
                break
            pending.append(snapshot)
        return pending[::-1]

    def _check_position(self, position: Position | None) -> None:
        if position is not None:
            self._check_same(
                position, load_snapshot(self.store, position.snapshot_id, branch=self.branch), None
            )

    def _check_same(self, position: Position, snapshot: Snapshot, newest: Snapshot | None) -> None:
        """Refuse a mirror that shows a snapshot of another history."""
        if position.snapshot_id != snapshot.id:
            problem = f"the newest of branch {self.branch!r} is {(newest or snapshot).id}"
        elif position.snapshot_hash not in (None, snapshot.hash):
            problem = "the table has another snapshot of this id"
        else:
            return
        raise InvalidArgumentError(
            f"{self.target.where} shows snapshot {position.snapshot_id} of "
            f"{self.store.location}, but {problem}: the table's history is not the one that was "
            "published. Drop the mirror, delete its directory, and create it anew"
        )

    def _step(self, state: TargetState, source: Source, snapshot: Snapshot) -> Step:
        """The commit that shows a snapshot; its copies are there when this returns."""
        versions = SchemaVersions(self.store, snapshot)
        schema = versions.current
        scan = Scan(store=self.store, snapshot=snapshot, schemas=versions, table_schema=schema)
        by_key = {schema_key(snapshot.schema.hash): schema.id}
        by_key |= {schema_key(each.hash): each.id for each in schema.ancestors}

        def is_readable(key: str, split: Split) -> bool:
            number = by_key.get(key)
            return number is not None and reads_alike(
                self.target, versions[number], schema, split, versions
            )

        plan = plan_copies(scan.plan().splits, state.copies, snapshot.schema.hash, is_readable)
        self._write(scan, plan.added)
        changes = snapshot.kind != "compact" or compaction_changes_rows(schema)
        return Step(
            position=Position(source, snapshot.id, snapshot.hash),
            snapshot=snapshot,
            schema=schema,
            kind=plan.kind(changes_rows=changes),
            added=list(self._described(plan.added)),
            removed=plan.removed,
        )

    def _write(self, scan: Scan, added: Mapping[str, Split]) -> None:
        """Write the copies that no earlier one has; those with the same columns together."""
        store, path_of = self.target.store, self.target.path_of
        schema = scan.table_schema
        whole = self.target.arrow_schema(schema)
        defaults = {each.id for each in schema.fields if each.stored_initial_default is not None}
        groups: dict[frozenset[int], list[tuple[Split, str]]] = defaultdict(list)
        for name, split in added.items():
            if not store.exists(path_of(name)):
                held = present_ids(split, scan.schemas) | defaults
                groups[held].append((split, path_of(name)))
        for held, splits in groups.items():
            columns = columns_of(list(whole), [field.id for field in schema.fields], held)
            chosen = scan.select([(name,) for name in columns.names])
            task = CopyTask(store, chosen.reader, chosen.schema, columns)
            self.runner(task, splits)

    def _described(self, added: Mapping[str, Split]) -> Iterator[Copy]:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            yield from pool.map(
                lambda name: described(self.target.store, self.target.path_of(name), added[name]),
                list(added),
            )
