"""Which clause of a merge takes which row: rows of the table find those of the source by key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from fermion.engine import joined_batches, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate import Expression, parse_filter, rename_columns
from fermion_table.operations.merge_clauses import (
    SOURCE,
    TARGET,
    BoundClause,
    Case,
    MergeClauses,
    MergeSides,
    below,
    joined,
)
from fermion_table.operations.merge_source import SourceKeys, key_filter, source_keys
from fermion_table.planning.filters import TableFilter, table_filter
from fermion_table.schema.schema import Path, TableSchema

PIECE_ROWS_MIN = 1_000_000
"""Rows of the table that are looked up at once, or as many as the source has."""
INSERT_ROWS = 65_536
"""Rows of the source that are inserted at once."""


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """How many rows a merge has inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of the table that clauses take: ``int64``, shape (n,) each.

    rows: Their numbers, ascending.
    source_rows: Their partners; -1 for rows without one.
    clauses: The numbers of the clauses.
    """

    rows: np.ndarray
    source_rows: np.ndarray
    clauses: np.ndarray

    def only(self, chosen: np.ndarray | slice) -> Taken:
        """Some of them."""
        return Taken(self.rows[chosen], self.source_rows[chosen], self.clauses[chosen])

    def by_clause(self) -> Iterator[tuple[int, Taken]]:
        """The same clause by clause."""
        for number in np.unique(self.clauses).tolist():
            yield number, self.only(self.clauses == number)


@dataclass(frozen=True, slots=True)
class BoundMerge:
    """A merge whose columns were found in one version of the table's schema.

    keys: Theirs, as the table's columns have them.
    clauses: In the order in which they are tried.
    chosen: Selects every row of the table that the merge may look at.
    """

    sides: MergeSides
    source: pa.RecordBatch
    keys: SourceKeys
    clauses: tuple[BoundClause, ...]
    chosen: TableFilter

    @property
    def asked(self) -> set[Path]:
        """Columns that conditions read."""
        return {path for clause in self.clauses for path in clause.asked}

    @property
    def carries_blobs(self) -> bool:
        """Whether the table has blobs, and no value is made of them."""
        read = {path for clause in self.clauses for path in clause.read}
        return bool(self.sides.schema.blob_columns) and not self._has_blobs(read)

    @property
    def asks_for_blobs(self) -> bool:
        """Whether a condition reads blobs of the table."""
        return self._has_blobs(self.asked)

    def _has_blobs(self, paths: set[Path]) -> bool:
        blobs = self.sides.schema.blob_columns
        return any(not path or path[0] in blobs for path in below(paths, TARGET))

    @property
    def inserts(self) -> bool:
        """Whether rows of the source may become rows of the table."""
        return any(clause.clause.action == "insert" for clause in self.clauses)

    def pairs(self, rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of rows of the table and rows of the source: see `SourceKeys.match`."""
        return self.keys.match([rows.column(name) for name in self.sides.on])

    def made_by(
        self, clause: BoundClause, source_rows: np.ndarray, target: pa.RecordBatch | None = None
    ) -> pa.RecordBatch:
        """What a clause makes of rows of the source, or of the table and their partners."""
        sides = {} if target is None else {TARGET: target}
        if clause.clause.case != "not_matched_by_source":
            sides[SOURCE] = take_batch_rows(self._of_source(clause.read), source_rows)
        return clause.made_of(joined(len(source_rows), **sides), target)

    def taken(self, data: pa.RecordBatch, rows: np.ndarray, source_rows: np.ndarray) -> Taken:
        """The rows of the table that clauses take.

        data: Rows of the table, with the columns that conditions read.
        Raises InvalidArgumentError: Clauses take several pairs with the same row of the table.
        """
        asked = self._of_source(self.asked)
        matched = self._first_clause(
            "matched", len(rows), target=(data, rows), source=(asked, source_rows)
        )
        acted = matched >= 0
        self._refuse_repeated(rows[acted], source_rows[acted])
        is_alone = np.ones(data.num_rows, bool)
        is_alone[rows] = False
        alone = np.flatnonzero(is_alone)
        others = self._first_clause("not_matched_by_source", len(alone), target=(data, alone))
        left = others >= 0
        places = np.concatenate([rows[acted], alone[left]])
        partners = [source_rows[acted], np.full(np.count_nonzero(left), -1, np.int64)]
        clauses = np.concatenate([matched[acted], others[left]])
        order = np.argsort(places, kind="stable")
        return Taken(places, np.concatenate(partners), clauses).only(order)

    def insertions(self, unmatched: np.ndarray) -> Iterator[tuple[BoundClause, np.ndarray]]:
        """Rows of the source that clauses insert, in order, some at a time.

        unmatched: Rows of the source without a partner, ascending.
        """
        if not self.inserts:
            return
        asked = self._of_source(self.asked)
        for start in range(0, len(unmatched), INSERT_ROWS):
            rows = unmatched[start : start + INSERT_ROWS]
            taken = self._first_clause("not_matched", len(rows), source=(asked, rows))
            for number in np.unique(taken[taken >= 0]).tolist():
                yield self.clauses[number], rows[taken == number]

    def key_of(self, source_row: int) -> dict[str, object]:
        """The key of a row of the source, for messages."""
        names = self.sides.on.values()
        return {name: self.source.column(name)[source_row].as_py() for name in names}

    def _first_clause(
        self, case: Case, count: int, **sides: tuple[pa.RecordBatch, np.ndarray]
    ) -> np.ndarray:
        """The clause that takes each of some rows: its number, ``int64``; -1 where none does.

        sides: What conditions see of them: columns of ``target``, ``source`` or both, and row
            numbers.
        """
        taken, left = np.full(count, -1, np.int64), np.arange(count)
        for number, clause in enumerate(self.clauses):
            if clause.clause.case != case or not len(left):
                continue
            if clause.condition is None:
                taken[left] = number
                break
            seen = {side: take_batch_rows(rows, at[left]) for side, (rows, at) in sides.items()}
            mask = clause.selects(joined(len(left), **seen))
            taken[left[mask]] = number
            left = left[~mask]
        return taken

    def _of_source(self, paths: Iterable[Path]) -> pa.RecordBatch:
        """The columns of the source that some paths lead to."""
        inside = below(paths, SOURCE)
        if () in inside:
            return self.source
        names = {path[0] for path in inside}
        return self.source.select([name for name in self.source.schema.names if name in names])

    def _refuse_repeated(self, rows: np.ndarray, source_rows: np.ndarray) -> None:
        again = np.flatnonzero(rows[1:] == rows[:-1])
        if len(again):
            first, second = (int(source_rows[again[0] + step]) for step in (0, 1))
            raise InvalidArgumentError(
                f"source: rows {first} and {second}, of key {self.key_of(first)}, match the same "
                "row of the table: each row can be updated or deleted once; make the keys of the "
                "source unique, or give the clause a condition that one of them meets"
            )


class Evaluation:
    """One run of a merge over the rows of a table."""

    def __init__(self, merge: BoundMerge) -> None:
        self.merge = merge
        self._has_partner = np.zeros(merge.source.num_rows, bool)

    def decided(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray, Taken]]:
        """Decide what becomes of every row of the table.

        batches: The rows that the merge may look at, with the columns of keys and conditions.
        Yields: Many rows at a time, the numbers of those that have a partner, and those that
            clauses take.
        """
        for rows, paired, source_rows in paired_pieces(self.merge, batches):
            self._has_partner[source_rows] = True
            yield rows, paired, self.merge.taken(rows, paired, source_rows)

    @property
    def unmatched(self) -> np.ndarray:
        """Rows of the source that have found no partner yet, ascending: ``int64``."""
        return np.flatnonzero(~self._has_partner)


def paired_pieces(
    merge: BoundMerge, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, np.ndarray, np.ndarray]]:
    """Rows of the table, so many that looking them up pays, and their pairs with the source."""
    rows_min = max(PIECE_ROWS_MIN, merge.source.num_rows)
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in itertools.chain(batches, [None]):
        if batch is not None:
            held.append(batch)
            held_rows += batch.num_rows
        if held and (batch is None or held_rows >= rows_min):
            for piece in joined_batches(held):
                yield (piece, *merge.pairs(piece))
            held, held_rows = [], 0


def bind_merge(merge: MergeClauses, source: pa.RecordBatch, schema: TableSchema) -> BoundMerge:
    """Find the columns that a merge names, and refuse what does not fit.

    Raises ColumnNotFoundError, SchemaMismatch, InvalidArgumentError.
    """
    sides = MergeSides(schema, source.schema, merge)
    bound = sides.bound_clauses()
    hint = "drop it, name the columns that are taken, or add it with schema_mode='merge'"
    merge.refuse_unread(unread_columns(bound, sides), hint)
    keys = SourceKeys(source_keys(source, merge.on, schema))
    return BoundMerge(sides, source, keys, bound, _chosen(bound, keys, sides))


def unread_columns(clauses: Sequence[BoundClause], sides: MergeSides) -> list[str]:
    """Columns of the source that nothing reads though a clause takes all: the table lacks them."""
    paths = {path for each in clauses for path in (*each.asked, *each.read) if path[0] == SOURCE}
    inside = below(paths, SOURCE)
    if not any(each.clause.takes_all for each in clauses) or () in inside:
        return []
    used = {path[0] for path in inside}.union(sides.on.values())
    return [name for name in sides.source.names if name not in used]


def _chosen(clauses: Sequence[BoundClause], keys: SourceKeys, sides: MergeSides) -> TableFilter:
    """What selects the rows with keys of the source, and those that clauses take without one."""
    types = {name: sides.schema.by_name[name].type for name in sides.on}
    chosen: Expression | None = key_filter(list(sides.on), keys, types)
    for clause in clauses:
        if clause.clause.case != "not_matched_by_source":
            continue
        if clause.condition is None or () in below(clause.asked, TARGET):
            chosen = parse_filter(True)
            break
        assert chosen is not None
        names = {path: path[1:] for path in clause.asked}
        chosen = chosen | rename_columns(clause.condition, names)
    bound = table_filter(chosen, sides.schema, where="merge")
    assert bound is not None
    return bound
