"""The rows that commits added and removed, read commit by commit.

The columns beside the table's own are those of Delta's change data feed. Compactions change no
rows and are passed over. A commit that rewrites files removes and adds the rows that it carries
over: such pairs, equal in all columns that were asked for, cancel out. Rows of a primary-key table
are told apart by their keys (see `keyed_changes`), or read from changelog files where commits have
recorded them (see `recorded_interval`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from fermion.display import location_text, short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.forks import cached_property
from fermion.options import BlobForm
from fermion.predicate import RowRanges
from fermion_table.change_feed.change_plan import (
    ChangePlan,
    ChangePlanner,
    ChangeSplit,
    ChangeStep,
    TreeChanges,
    shows_level0,
    step_of,
    step_without_files,
    without_files,
)
from fermion_table.change_feed.keyed_changes import DELETE, INSERT, KeyedChanges, distinct_keys
from fermion_table.change_feed.recorded_changes import RecordedChanges
from fermion_table.change_feed.recorded_interval import RecordedInterval, producer_of
from fermion_table.change_feed.row_difference import pick_rows, rows_apart
from fermion_table.merging.primary_key import PrimaryKey, primary_key_of
from fermion_table.metadata.history import dropped_fields, until_expiry
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import changelog_entries, live_entries
from fermion_table.metadata.snapshot import PRIMARY_KEY, Producer, Snapshot
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.plan import splits_of
from fermion_table.reading.run_reader import key_filter
from fermion_table.scanning.arrow_rows import ArrowRows
from fermion_table.scanning.scan import FileScan
from fermion_table.schema.repeated import repeat_text
from fermion_table.schema.schema import PathLike, TableSchema, has_buckets
from fermion_table.storage.store import AtomicStore, in_time

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
COMMIT_TIME_TYPE = pa.timestamp("ms", "UTC")
CHANGE_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, COMMIT_TIME_TYPE, nullable=False),
)


@dataclass(frozen=True, kw_only=True)
class ChangeScan(ArrowRows):
    """Rows that were added and removed, each with what happened to it, in which commit and when.

    Make one with `Table.scan_changes`. Commits come in their order; of each the rows removed
    come first, so that replaying the rows leads from one state to the other. Of a primary-key table
    that holds for each 16,384 keys of a commit, in the order of keys.

    Attributes
    ----------
    store
        Of the table.
    snapshot
        The last one; rows are read under its schema.
    schemas
        Up to that schema, by id.
    start
        The state before them; only of a primary-key table it is needed.
    snapshots
        Whose commits are read, oldest first.
    steps
        Read instead of them, if given.
    columns, filter, threads, blobs
        As of a scan.
    """

    store: AtomicStore
    snapshot: Snapshot
    schemas: Mapping[int, TableSchema]
    start: Snapshot | None = None
    snapshots: tuple[Snapshot, ...] = ()
    steps: tuple[ChangeStep, ...] = ()
    columns: tuple[PathLike, ...] | None = None
    filter: TableFilter | None = None
    threads: int | None = None
    blobs: BlobForm = "bytes"

    def __post_init__(self) -> None:
        keyed = self._keyed_changes()
        if keyed is not None:
            keyed.scan(self.snapshot)  # a column that it has not is an error now
        taken = set(self._files(()).schema.names).intersection(
            field.name for field in CHANGE_FIELDS
        )
        if taken:
            raise InvalidArgumentError(
                f"{self.store.location}: column {min(taken)!r} has the name of a change column; "
                "leave it out of columns="
            )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns asked for, and `CHANGE_FIELDS`."""
        schema = self._files(()).schema
        return pa.schema([*schema, *CHANGE_FIELDS], metadata=schema.metadata)

    def plan(self) -> ChangePlan:
        """Divide the changes into splits, which `reader` reads; opens metadata only.

        Raises
        ------
        VersionNotFound
            Metadata that is needed has expired.
        """
        given = tuple(ChangeSplit(steps=(step,), bytes=step.bytes) for step in self.steps)
        if not self.snapshots:
            return ChangePlan(given)
        with in_time(self.store):
            return ChangePlan((*given, *self._planner.splits()))

    def trees(self) -> tuple[TreeChanges, ...]:
        """The same by place, for tasks that follow a table: see `TreeChanges`.

        Raises
        ------
        VersionNotFound
            Metadata that is needed has expired.
        """
        if not self.snapshots:
            return ()
        with in_time(self.store):
            return tuple(self._planner.trees())

    @property
    def _planner(self) -> ChangePlanner:
        assert self.start is not None
        schema = self._table_schema
        return ChangePlanner(
            store=self.store,
            schemas=self.schemas,
            key=primary_key_of(schema) if has_buckets(schema) else None,
            start=self.start,
            snapshots=self.snapshots,
            prune=self._that_may_match,
            shows_others=self._show_others,
            producer=self._producer,
        )

    @cached_property
    def reader(self) -> ChangeReader:
        """What reads the splits of `plan`: picklable, for engines."""
        snapshot = without_files(self.snapshot)
        return ChangeReader(replace(self, snapshot=snapshot, start=None, snapshots=(), steps=()))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""
        keyed = self._keyed_changes()
        for step in self.steps:
            yield from self._step(step, keyed)
        if keyed is not None and self._producer is not None:
            yield from self._recorded(keyed, self._producer)
            return
        for before, snapshot in pairwise((self.start, *self.snapshots)):
            assert snapshot is not None
            batches = self._commit(before, snapshot, keyed)
            while True:
                state = before or snapshot  # may have expired before its changelog
                with until_expiry(self.store, state), until_expiry(self.store, snapshot):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch

    @cached_property
    def _producer(self) -> Producer | None:
        """What has recorded the changes that are read; None: states are compared."""
        if self.start is None or not has_buckets(self._table_schema):
            return None
        if any(self._show_others(*pair) for pair in pairwise((self.start, *self.snapshots))):
            return None  # what was recorded lacks columns that were there before, or come later
        return producer_of(self.snapshots)

    def _show_others(self, before: Snapshot, after: Snapshot) -> bool:
        """Whether a column that is asked for was dropped between two states, or came back."""
        if before.schema == after.schema:
            return False
        old, new = (
            dropped_fields(self._asked_ids, self.schemas[each.schema.id])
            for each in (before, after)
        )
        return old != new

    @cached_property
    def _asked_ids(self) -> frozenset[int]:
        """The fields of the columns that are asked for, or that the filter reads."""
        tops = self._files(()).reader.request.table_fields
        return frozenset(each.id for top in tops for _, each in top.walk())

    def _recorded(self, keyed: KeyedChanges, producer: Producer) -> Iterator[pa.RecordBatch]:
        """The changes of all commits, from changelog files of compactions where these tell them."""
        assert self.start is not None
        for before, after in pairwise((self.start, *self.snapshots)):
            step = step_of(self.store, after)
            files = tuple(changelog_entries(self.store, after))
            self._check_key(replace(step, added=step.added or files, before=before, after=after))
        key = primary_key_of(self._table_schema)
        assert key is not None
        interval = RecordedInterval(
            store=self.store,
            key=key,
            producer=producer,
            start=self.start,
            snapshots=self.snapshots,
        )
        reader = self._changelog_reader(key)
        for snapshot, change, rows in interval.read(reader, keyed, self._keys_in):
            yield self._labelled(rows, change, step_without_files(snapshot))

    def _given(self, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        """The rows of a commit as writers were given them."""
        key = primary_key_of(self._table_schema)
        assert key is not None
        entries = changelog_entries(self.store, snapshot)
        step = step_without_files(snapshot)
        self._check_key(replace(step, added=tuple(entries), after=snapshot))
        for changes, rows in self._changelog_reader(key).read(entries, "input"):
            yield self._labelled(rows, changes, step)

    def _commit(
        self, before: Snapshot | None, snapshot: Snapshot, keyed: KeyedChanges | None
    ) -> Iterator[pa.RecordBatch]:
        changelog = snapshot.changelog
        if keyed is not None and changelog is not None and changelog.producer == "input":
            yield from self._given(snapshot)
            return
        key = None if keyed is None else primary_key_of(self._table_schema)
        step = step_of(self.store, snapshot, shows_level0=shows_level0(key))
        yield from self._step(replace(step, before=before, after=snapshot), keyed)

    def count(self) -> int:
        """How many rows were added and removed."""
        return sum(batch.num_rows for batch in self.to_batches())

    def __repr__(self) -> str:
        location = location_text(self.store.location)
        return f"<ChangeScan of {location}, up to snapshot {self.snapshot.id}>"

    @property
    def _table_schema(self) -> TableSchema:
        return self.schemas[self.snapshot.schema.id]

    def _files(self, entries: Sequence[Entry], state: Snapshot | None = None) -> FileScan:
        """What reads files of a state; None: of the last one."""
        return FileScan(
            store=self.store,
            snapshot=self.snapshot if state is None else state,
            schemas=self.schemas,
            table_schema=self._table_schema,
            columns=self.columns,
            filter=self.filter,
            threads=self.threads,
            blobs=self.blobs,
            files=tuple(entries),
        )

    def _keyed_changes(self) -> KeyedChanges | None:
        """What compares states by key; None for an append table."""
        schema = self._table_schema
        if not has_buckets(schema):
            return None
        return KeyedChanges(
            self.store, self.schemas, schema, self.columns, self.filter, blobs=self.blobs
        )

    def _step(self, step: ChangeStep, keyed: KeyedChanges | None) -> Iterator[pa.RecordBatch]:
        before, after = step.before, step.after
        if before is not None and after is not None and self._show_others(before, after):
            removed, added = (tuple(live_entries(self.store, each)) for each in (before, after))
            step = replace(step, added=added, removed=removed, touched=None, shows_others=True)
        self._check_key(step)
        if keyed is None:
            yield from self._file_step(step)
        else:
            yield from self._keyed_step(step, keyed)

    def _keyed_step(self, step: ChangeStep, keyed: KeyedChanges) -> Iterator[pa.RecordBatch]:
        """The rows of the keys in the step's files, as far as they differ before and after."""
        key = primary_key_of(self._table_schema)
        assert key is not None
        assert step.before is not None
        assert step.after is not None
        files = [*step.removed, *step.added] if step.touched is None else step.touched
        for keys in distinct_keys(self._keys_in(files), key):
            for change, batch in keyed.between(step.before, step.after, keys):
                yield self._labelled(batch, change, step)

    def _keys_in(self, entries: Sequence[Entry]) -> Iterator[pa.RecordBatch]:
        """The columns of the key, of the rows of files that the filter may select."""
        if entries:
            yield from self._key_files(entries).to_batches()

    def _key_files(self, entries: Sequence[Entry]) -> FileScan:
        key = primary_key_of(self._table_schema)
        assert key is not None
        columns = tuple((name,) for name in key.names)
        return replace(self._files(entries), columns=columns, filter=key_filter(self.filter, key))

    def _that_may_match(self, entries: Sequence[Entry], state: Snapshot) -> Sequence[Entry]:
        """The files of a state that may hold rows that the filter selects, or their keys."""
        if has_buckets(self._table_schema):
            return self._key_files(entries).entries[0]
        return self._files(entries, state).entries[0]

    def _changelog_reader(self, key: PrimaryKey) -> RecordedChanges:
        return RecordedChanges(
            self.store, self.snapshot, self.schemas, key, self.columns, self.filter, self.blobs
        )

    def _check_key(self, step: ChangeStep) -> None:
        """Refuse a step on one of whose sides the rows have another primary key, or none.

        Raises InvalidArgumentError.
        """
        now = self.snapshot
        sides = ((step.before, step.removed), (step.after, (*step.removed, *step.added)))
        for then, files in sides:
            if then is None or not files:
                continue
            is_keyed = PRIMARY_KEY in now.reader_features
            if is_keyed == (PRIMARY_KEY in then.reader_features) and (
                not is_keyed
                or self.schemas[then.schema.id].primary_key == self._table_schema.primary_key
            ):
                continue
            raise InvalidArgumentError(
                f"{self.store.location}: snapshot {then.id} has another primary key than snapshot "
                f"{now.id}, as the table was replaced between them: read the changes before and "
                "after that apart"
            )

    def _file_step(self, step: ChangeStep) -> Iterator[pa.RecordBatch]:
        kept, groups = _sorted_out(step)
        for before, after in kept:
            yield from self._same_file(before, after, step)
        for removed, added in groups:
            if removed and added:
                yield from self._rewritten(removed, added, step)
                continue
            for entries, state, change in (
                (removed, step.before, DELETE),
                (added, step.after, INSERT),
            ):
                for batch in self._files(entries, state).to_batches() if entries else ():
                    yield self._labelled(batch, change, step)

    def _same_file(self, before: Entry, after: Entry, step: ChangeStep) -> Iterator[pa.RecordBatch]:
        """The rows of a file that became deleted, and those that came back."""
        scan = self._files([after], step.after)
        if not scan.plan().splits:  # no row of the file can match
            return
        old, new = splits_of([before, after], self.store)
        was, now = (scan.reader.rows(split) for split in (old, new))
        all_rows = RowRanges.all(new.rows)
        for rows, others, change in ((was, now, DELETE), (now, was, INSERT)):
            if others is not None:
                wanted = (all_rows if rows is None else rows) & others.complement(new.rows)
                for batch in scan.reader.read_file(new, rows=wanted) if wanted else ():
                    yield self._labelled(batch, change, step)

    def _rewritten(
        self, removed: Sequence[Entry], added: Sequence[Entry], step: ChangeStep
    ) -> Iterator[pa.RecordBatch]:
        """The rows that only the files removed have, and those that only the files added have."""
        removed_batches, added_batches = (
            list(self._files(entries, state).to_batches())
            for entries, state in ((removed, step.before), (added, step.after))
        )
        rows_gone, rows_new = rows_apart(removed_batches, added_batches)
        for batch in pick_rows(removed_batches, rows_gone):
            yield self._labelled(batch, DELETE, step)
        for batch in pick_rows(added_batches, rows_new):
            yield self._labelled(batch, INSERT, step)

    def _labelled(
        self, batch: pa.RecordBatch, change: str | pa.Array, step: ChangeStep
    ) -> pa.RecordBatch:
        """Rows with what happened to all of them, or to each."""
        rows = batch.num_rows
        labels = (
            pa.scalar(step.snapshot_id, pa.int64()),
            pa.scalar(step.time_ms, COMMIT_TIME_TYPE),
        )
        changes = change if isinstance(change, pa.Array) else repeat_text(change, rows)
        columns = [*batch.columns, changes, *(pa.repeat(label, rows) for label in labels)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class ChangeReader:
    """Reads the splits of a `ChangePlan`. Picklable.

    Attributes
    ----------
    scan
        The scan of changes, without its commits.
    """

    scan: ChangeScan

    __repr__ = short_repr

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.scan.schema

    def read(self, split: ChangeSplit, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The changes of a split, in their order.

        Parameters
        ----------
        threads
            As of a scan.
        """
        return replace(
            self.scan,
            start=split.start,
            snapshots=split.snapshots,
            steps=split.steps,
            threads=threads,
        ).to_batches()


_Group = tuple[list[Entry], list[Entry]]


def _sorted_out(step: ChangeStep) -> tuple[list[tuple[Entry, Entry]], list[_Group]]:
    """A step's files: those that stay with other rows deleted, before and after; and the others.

    The others come in groups, removed and added, that may have rows in common: by partition, and
    a file with other columns by itself. Groups that only remove come first, those that only add
    last.
    """
    after = {entry.file: entry for entry in step.added}
    kept = [(entry, after[entry.file]) for entry in step.removed if entry.file in after]
    stays = {entry.file for entry, _ in kept}
    kept = [
        (old, new)
        for old, new in kept
        if old.column_files == new.column_files and not step.shows_others
    ]
    same = {entry.file for entry, _ in kept}
    groups: dict[Any, _Group] = {}
    for place, entries in enumerate((step.removed, step.added)):
        for entry in entries:
            if entry.file not in same:
                group = entry.file if entry.file in stays else entry.partition
                groups.setdefault(group, ([], []))[place].append(entry)
    return kept, sorted(groups.values(), key=lambda group: (bool(group[1]), not group[0]))
