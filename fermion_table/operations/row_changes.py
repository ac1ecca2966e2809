"""Changes of rows, each of which can be made to a draft again when another commit came first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fermion.arguments import mapping
from fermion.engine import filter_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate import RowRanges
from fermion_table.argument_checks import check_bool, check_kind
from fermion_table.commit.commit import Publisher
from fermion_table.commit.conflict import Partitions
from fermion_table.commit.fit import misfit, restated
from fermion_table.commit.schema_versions import SchemaMerge, evolved_schema
from fermion_table.errors import CommitConflict
from fermion_table.metadata.history import load_table_schema
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind
from fermion_table.operations.assignments import (
    Assignment,
    assigned,
    carries_blobs,
    overlaid,
    read_assignments,
    settled,
)
from fermion_table.operations.draft import Draft, Matched, mask_within
from fermion_table.operations.keyed_rows import (
    delete_rows,
    keys_may_match,
    replace_rows,
    update_rows,
)
from fermion_table.operations.whole_columns import is_set_beside, set_beside
from fermion_table.planning.filters import TableFilter, table_filter
from fermion_table.planning.plan import plan_scan
from fermion_table.reading.split_reader import SplitReader
from fermion_table.reading.whole_rows import known_blobs, write_again
from fermion_table.schema.changes import merge_columns
from fermion_table.schema.schema import TableSchema


def check_overwrite(schema: TableSchema, filter: Any, dynamic: bool, *, where: str) -> None:
    """Refuse an overwrite that names its rows twice, or that the table cannot do; for engines.

    Parameters
    ----------
    schema
        Of the table.
    filter, dynamic
        As for `Table.overwrite`.
    where
        The table's location, for messages.

    Raises
    ------
    TypeError
        `dynamic` is neither True nor False.
    InvalidArgumentError
        A filter and `dynamic`, or `dynamic` for a table without partitions.
    ColumnNotFoundError
        The filter names a column that the table lacks.
    """
    check_kind(schema, TableSchema, "schema")
    dynamic = check_bool(dynamic, "dynamic")
    table_filter(filter, schema, where=f"{where}: filter")
    if filter is not None and dynamic:
        raise InvalidArgumentError("overwrite: expected filter= or dynamic=True, not both")
    if dynamic and not schema.partition_by:
        raise InvalidArgumentError(
            f"{where}: dynamic=True replaces partitions, but the table has none"
        )


class RowChange(Protocol):
    """One change.

    kind: What a commit of this change alone is called.
    scope: The partitions that it looks at; None: all.
    """

    @property
    def kind(self) -> Kind:
        """See above."""

    @property
    def scope(self) -> Partitions | None:
        """See above."""

    def apply(self, draft: Draft) -> None:
        """Make the change to a draft."""

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """Whether a file that another commit added would have made a difference."""

    def describe(self) -> str:
        """The change in words; empty for one that needs none."""


class _NewFiles:
    """What new files have in common."""

    __slots__ = ()

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """New rows depend on nothing."""
        return False

    def describe(self) -> str:
        """Nothing to say."""
        return ""


@dataclass(frozen=True, slots=True)
class Addition(_NewFiles):
    """New files.

    entries: The files; stored already.
    """

    entries: tuple[Entry, ...]
    schema: TableSchema
    kind: Kind = "append"
    scope: Partitions | None = frozenset()

    def apply(self, draft: Draft) -> None:
        """Add the files.

        Raises CommitConflict: They do not fit the schema any more.
        """
        if draft.schema.id != self.schema.id:
            _refuse_misfit(draft, self.schema, self.entries)
        draft.add(self.entries)


def _refuse_misfit(draft: Draft, written: TableSchema, entries: Sequence[Entry]) -> None:
    """Refuse files that were written with a version of the schema, and don't fit the present one.

    Raises CommitConflict.
    """
    reason = misfit(written, draft.schema, entries)
    if reason is not None:
        raise CommitConflict(
            f"{draft.store.location}: append can't follow snapshot {draft.base.id}: {reason}",
            mine="append",
            theirs=f"schema {draft.schema.id}",
        )


@dataclass(frozen=True, slots=True)
class MergingAddition(_NewFiles):
    """New files, and the columns that they add to the schema.

    entries: The files; stored already.
    """

    entries: tuple[Entry, ...]
    merge: SchemaMerge
    publisher: Publisher
    kind: Kind = "append"
    scope: Partitions | None = frozenset()

    def apply(self, draft: Draft) -> None:
        """Add the columns and the files.

        Raises CommitConflict: Another commit has changed a column that they have.
        Raises SchemaMismatch: The columns do not fit the schema any more.
        """
        if draft.base.schema == self.merge.base.schema:
            draft.take_schema(self.merge.schema)
            draft.add(self.entries)
            return
        changes = merge_columns(draft.schema, self.merge.data)
        schema = evolved_schema(self.publisher.store, draft.base, changes) or draft.schema
        draft.take_schema(schema)
        known = load_table_schema(draft.store, self.merge.base.schema)
        entries = restated(
            self.merge.schema,
            schema,
            self.entries,
            last_known_id=known.last_field_id,
            where=draft.store.location,
        )
        _refuse_misfit(draft, known, self.entries)
        draft.add(entries)


def addition_of(
    entries: tuple[Entry, ...], merge: SchemaMerge, publisher: Publisher
) -> Addition | MergingAddition:
    """What adds files that were written with the schema of a merge."""
    if merge.schema.id == merge.base.schema.id:
        return Addition(entries, merge.schema)
    return MergingAddition(entries, merge, publisher)


@dataclass(frozen=True, slots=True)
class Replacement:
    """All files go, or those of some partitions.

    scope: The partitions; None: all.
    """

    scope: Partitions | None = None
    kind: Kind = "overwrite"

    def apply(self, draft: Draft) -> None:
        """Remove the files."""
        for entry in draft.live():
            if self.scope is None or entry.partition in self.scope:
                draft.remove(entry)

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """Whether the file would have gone too."""
        return self.scope is None or entry.partition in self.scope

    def describe(self) -> str:
        """What is replaced."""
        if self.scope is None:
            return "overwrite all rows"
        count = len(self.scope)
        return f"overwrite {count:,} partition{'s' * (count != 1)}"


class _Filtered:
    """A change of the rows that a filter selects.

    given: The filter as the caller has it; every draft binds it to its own schema.
    """

    scope: Partitions | None = None

    def __init__(self, given: Any) -> None:
        if given is None:
            raise InvalidArgumentError(
                "filter=None: expected a filter; pass 'TRUE' to select every row"
            )
        self.given = settled(given)
        self._bound: tuple[int, TableFilter] | None = None

    def chosen(self, draft: Draft) -> TableFilter:
        """The filter, bound to a draft's schema."""
        if self._bound is None or self._bound[0] != draft.schema.id:
            bound = table_filter(self.given, draft.schema, where=draft.store.location)
            assert bound is not None
            self._bound = draft.schema.id, bound
        return self._bound[1]

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """Whether the file may hold rows of the filter, or of keys that it selects."""
        if draft.key is not None:
            return keys_may_match(entry, draft, draft.key, self.chosen(draft))
        if entry.schema_id not in draft.schemas:
            return True
        kept, _ = plan_scan([entry], draft.schemas, draft.schema, self.chosen(draft))
        return bool(kept)

    @property
    def where(self) -> str:
        """The filter in words."""
        return self._bound[1].to_sql() if self._bound is not None else str(self.given)


class Deletion(_Filtered):
    """The rows that a filter selects go.

    kind: ``overwrite`` where new rows take their place.
    """

    def __init__(self, given: Any, kind: Kind = "delete") -> None:
        super().__init__(given)
        self.kind: Kind = kind

    def apply(self, draft: Draft) -> None:
        """Delete the rows."""
        if draft.key is not None:
            change = replace_rows if self.kind == "overwrite" else delete_rows
            change(draft, draft.key, self.chosen(draft))
            return
        for matched in draft.match(self.chosen(draft)):
            draft.delete(matched)

    def describe(self) -> str:
        """What is deleted."""
        return f"{self.kind} where {self.where}"


class Update(_Filtered):
    """The rows that a filter selects get other values."""

    kind: Kind = "upsert"

    def __init__(self, given: Any, assignments: Mapping[str, Assignment]) -> None:
        super().__init__(given)
        mapping(assignments if assignments is not None else (), "assignments")
        self.assignments = {name: settled(value) for name, value in assignments.items()}

    def apply(self, draft: Draft) -> None:
        """Write the changed rows to new files and delete the old ones; batches stay in place.

        Few columns of all rows of a file are set beside it.
        """
        assignments = read_assignments(self.assignments, draft.schema)
        if draft.key is not None:
            update_rows(draft, draft.key, self.chosen(draft), assignments)
            return
        found = draft.match(self.chosen(draft))
        matched = [each for each in found if not is_set_beside(draft, each, assignments)]
        kept = {each.entry.file for each in matched}
        for each in found:
            if each.entry.file not in kept:
                set_beside(draft, each.entry, assignments)
        plain = [each for each in matched if each.entry.batch is None]
        if plain:
            entries = [each.entry for each in plain]
            carries = carries_blobs(draft.schema, assignments)
            reader = draft.reader(entries, carries_blobs=carries)
            with draft.writer(known_blobs=known_blobs(reader, entries)) as writer:
                for batch in self._changed_rows(draft, reader, plain, assignments):
                    writer.write(batch, copy=False)
                (message,) = writer.prepare_commit()
            for each in plain:
                draft.delete(each)
            draft.add_written(message.entries)
        for each in matched:
            if each.entry.batch is not None:
                self._rewrite(draft, each, assignments)

    def describe(self) -> str:
        """What is set where."""
        return f"update {', '.join(self.assignments)} where {self.where}"

    def _changed_rows(
        self,
        draft: Draft,
        reader: SplitReader,
        matched: Sequence[Matched],
        assignments: Mapping[str, Assignment],
    ) -> Iterator[pa.RecordBatch]:
        for each in matched:
            for batch in draft.read(reader, each.entry, each.rows):
                yield assigned(batch, assignments, draft.schema)

    def _rewrite(
        self, draft: Draft, matched: Matched, assignments: Mapping[str, Assignment]
    ) -> None:
        """Write a whole file again, its rows and batches in their order."""
        entry = matched.entry

        def change(batch: pa.RecordBatch, at: int) -> pa.RecordBatch:
            return assigned(batch, assignments, draft.schema)

        carries = carries_blobs(draft.schema, assignments)
        reader = draft.reader([entry], carries_blobs=carries)
        entries = write_changed(draft, reader, entry, draft.live_rows(entry), matched.rows, change)
        draft.take_place(entry, entries)


ChangeRows = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""New rows of the same schema for some rows, of which so many were changed before."""


def write_changed(
    draft: Draft,
    reader: SplitReader,
    entry: Entry,
    kept: RowRanges,
    changed: RowRanges,
    change: ChangeRows,
) -> tuple[Entry, ...]:
    """Write a file again, its rows and batches in their order; the draft does not change.

    reader: Of whole rows.
    changed: Those of them that `change` makes others of.
    Returns: The new files, to take the place of the old one.
    """
    mask = mask_within(changed, kept, entry.rows)

    def batches() -> Iterator[pa.RecordBatch]:
        start = done = 0
        for batch in draft.read(reader, entry, kept):
            inside = mask[start : start + batch.num_rows]
            start += batch.num_rows
            if inside.any():
                batch = overlaid(batch, change(filter_batch_rows(batch, inside), done), inside)
                done += int(np.count_nonzero(inside))
            yield batch

    with draft.writer(known_blobs=known_blobs(reader, [entry])) as writer:
        write_again(writer, batches(), reader.schema, draft.batches(reader, entry, kept))
        (message,) = writer.prepare_commit()
    return message.entries
