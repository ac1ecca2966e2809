"""Rows that an engine has found and written again: they go, files of its writers come.

An engine decides and writes in tasks, from one snapshot. Nothing of this can be made again here:
where another commit has changed what was read, the engine has to run its statement again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from pyroaring import BitMap64

from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.commit.conflict import Partitions
from fermion_table.errors import CommitConflict
from fermion_table.metadata.deletion_vector import ranges_of
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind, Snapshot
from fermion_table.operations.draft import Draft, Matched
from fermion_table.operations.keyed_rows import keys_may_match
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.plan import plan_scan


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """What an engine has decided from one snapshot; see `Table.commit_found`.

    Attributes
    ----------
    base
        The snapshot.
    action
        What the statement is called in the history, such as ``merge``.
    filters
        What was read: rows that none of them selects made no difference. None selects all.
    gone
        Rows that go, by their ``_row_id``. Rows of a primary-key table have none: there writers
        write what becomes of them.
    moved
        Those of them that are in the files of writers with other values.
    relied_on
        Names of files whose rows decided something, whether they change or not.
    kind
        ``delete`` where nothing is written, else ``upsert``.
    """

    base: Snapshot
    action: str
    filters: Sequence[TableFilter | None]
    gone: BitMap64 = field(default_factory=BitMap64)
    moved: BitMap64 = field(default_factory=BitMap64)
    relied_on: frozenset[str] = frozenset()
    kind: Kind = "upsert"
    scope: Partitions | None = None

    __repr__ = short_repr

    def apply(self, draft: Draft) -> None:
        """Delete the rows.

        Raises
        ------
        CommitConflict
            The draft is of another snapshot.
        InvalidArgumentError
            A row is not there, or has got other values and belongs to a batch.
        """
        if draft.base.hash != self.base.hash:
            raise CommitConflict(
                f"{draft.store.location}: {self.action}: since snapshot {self.base.id}, from which "
                "the rows were read, other commits have changed some of them or added rows that "
                f"it may concern (the latest snapshot is {draft.base.id}); run the statement again",
                mine=self.action,
                theirs=f"{draft.base.kind} (snapshot {draft.base.id})",
            )
        found = list(self._by_file(draft))
        missing = len(self.gone) - sum(each.rows.total for each in found)
        if missing:
            raise InvalidArgumentError(
                f"{draft.store.location}: {self.action}: {missing:,} rows that are to be deleted "
                f"are not in snapshot {self.base.id}"
            )
        for each in found:
            draft.delete(each, rewrites=False)
        draft.relied_on |= self.relied_on

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """Whether a file that another commit added may hold rows that would have been read."""
        if entry.schema_id not in draft.schemas:
            return bool(self.filters)
        for chosen in self.filters:
            if chosen is None:
                return True
            if draft.key is not None:
                if keys_may_match(entry, draft, draft.key, chosen):
                    return True
            elif plan_scan([entry], draft.schemas, draft.schema, chosen)[0]:
                return True
        return False

    def describe(self) -> str:
        """What was done where."""
        texts = {"TRUE" if chosen is None else chosen.to_sql() for chosen in self.filters}
        only = texts.pop() if len(texts) == 1 else "TRUE"
        return self.action if only == "TRUE" else f"{self.action} where {only}"

    def _by_file(self, draft: Draft) -> Iterator[Matched]:
        """The rows that go, file by file."""
        if not self.gone:
            return
        for entry in draft.live():
            first = entry.row_id_base
            if first is None or not self.gone.range_cardinality(first, first + entry.rows):
                continue
            window = BitMap64()
            window.add_range(first, first + entry.rows)
            if entry.batch is not None and self.moved & window:
                raise InvalidArgumentError(
                    f"{draft.store.location}: {self.action}: {entry.file} was written in batches, "
                    "and rows with other values would leave their batch: use Table.update or "
                    "Table.merge, or delete the rows and append the batch again"
                )
            live = draft.live_rows(entry)
            rows = ranges_of((self.gone & window).shift(-first)) & live
            yield Matched(entry, rows, rows.total == live.total)
