"""Which clause of a merge takes which row: rows of the table find those of the source by key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fermion.engine import joined_batches, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.predicate import Expression, RowRanges, parse_filter, rename_columns
from fermion_table.errors import SchemaMismatch
from fermion_table.metadata.manifest import Entry
from fermion_table.operations.draft import Draft, Matched
from fermion_table.operations.merge_clauses import (
    SOURCE,
    TARGET,
    BoundClause,
    Case,
    Clause,
    MergeSides,
    below,
    bind_clause,
    check_reachable,
    fields_of,
    joined,
)
from fermion_table.operations.merge_join import SourceKeys, key_filter
from fermion_table.operations.merge_source import source_keys
from fermion_table.planning.filters import TableFilter, table_filter
from fermion_table.schema.schema import Field, Path, TableSchema

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
class BoundMerge:
    """A merge whose columns were found in one version of the table's schema.

    Attributes
    ----------
    sides
        What is merged.
    source
        The rows of the source.
    keys
        Theirs, as the table's columns have them.
    clauses
        In the order in which they are tried.
    chosen
        Selects every row of the table that the merge may look at.
    """

    sides: MergeSides
    source: pa.RecordBatch
    keys: SourceKeys
    clauses: tuple[BoundClause, ...]
    chosen: TableFilter

    @property
    def looked_at(self) -> tuple[Field, ...]:
        """Fields of the table that rows are paired and chosen by."""
        keys: list[Path] = [(name,) for name in self.sides.on]
        return fields_of(self.sides.schema, [*keys, *below(self.asked, TARGET)])

    @property
    def asked_of_source(self) -> pa.RecordBatch:
        """The columns of the source that conditions read."""
        return columns_of(self.source, self.asked)

    @property
    def inserts(self) -> bool:
        """Whether rows of the source may become rows of the table."""
        return any(clause.clause.action == "insert" for clause in self.clauses)

    def pairs(self, rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of rows of the table and rows of the source: see `SourceKeys.match`."""
        return self.keys.match([rows.column(name) for name in self.sides.on])

    def seen_by_update(
        self, clause: BoundClause, target: pa.RecordBatch, source_rows: np.ndarray
    ) -> pa.RecordBatch:
        """What the values of an update see of rows and their partners."""
        if clause.clause.case == "not_matched_by_source":
            return joined(len(source_rows), target=target)
        source = take_batch_rows(columns_of(self.source, clause.read), source_rows)
        return joined(len(source_rows), target=target, source=source)

    def seen_by_insert(self, clause: BoundClause, source_rows: np.ndarray) -> pa.RecordBatch:
        """What the values of an insert see."""
        source = take_batch_rows(columns_of(self.source, clause.read), source_rows)
        return joined(len(source_rows), source=source)

    @property
    def asked(self) -> set[Path]:
        """Columns that conditions read."""
        return {path for clause in self.clauses for path in clause.asked}

    def first_clause(
        self, case: Case, count: int, rows: Callable[[np.ndarray], pa.RecordBatch]
    ) -> np.ndarray:
        """The clause that takes each of some rows: its number, ``int64``; -1 where none does.

        Parameters
        ----------
        count
            How many rows there are.
        rows
            What conditions see of some of them.
        """
        taken, left = np.full(count, -1, np.int64), np.arange(count)
        for number, clause in enumerate(self.clauses):
            if clause.clause.case != case or not len(left):
                continue
            if clause.condition is None:
                taken[left] = number
                break
            mask = clause.selects(rows(left))
            taken[left[mask]] = number
            left = left[~mask]
        return taken


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What becomes of a file's rows that a clause takes.

    Attributes
    ----------
    entry
        The file.
    rows
        By their numbers in the file, ascending: ``int64``, shape (n,).
    source_rows
        Their partners; -1 for rows without one.
    clauses
        The numbers of the clauses.
    """

    entry: Entry
    rows: np.ndarray
    source_rows: np.ndarray
    clauses: np.ndarray

    def only(self, mask: np.ndarray) -> FileOutcome:
        """The same of some of the rows."""
        return FileOutcome(self.entry, self.rows[mask], self.source_rows[mask], self.clauses[mask])

    @property
    def ranges(self) -> RowRanges:
        """The rows."""
        return RowRanges.from_indices(self.rows)


@dataclass(frozen=True, slots=True)
class Matching:
    """What a merge found.

    Attributes
    ----------
    files
        Those in which a clause takes rows.
    unmatched
        Rows of the source without a partner, ascending: ``int64``.
    partners
        Names of files in which rows have one, whether a clause takes them or not.
    """

    files: tuple[FileOutcome, ...]
    unmatched: np.ndarray
    partners: frozenset[str]


def bind_merge(
    clauses: Sequence[Clause], source: pa.RecordBatch, on: Mapping[str, str], schema: TableSchema
) -> BoundMerge:
    """Find the columns that a merge names, and refuse what does not fit.

    Raises
    ------
    ColumnNotFoundError, SchemaMismatch, InvalidArgumentError
    """
    sides = MergeSides(schema, source.schema, on)
    bound = bind_clauses(clauses, sides)
    unread = unread_columns(bound, sides)
    if unread:
        method = next(clause.method for clause in clauses if clause.takes_all)
        raise SchemaMismatch(
            f"merge: {method} takes every column of the source, but the table has no column "
            f"{', '.join(map(repr, unread))}, and no clause reads it: drop it, name the columns "
            "that are taken, or add it with schema_mode='merge'"
        )
    keys = SourceKeys(source_keys(source, on, schema))
    return BoundMerge(sides, source, keys, bound, _chosen(bound, keys, sides))


def bind_clauses(clauses: Sequence[Clause], sides: MergeSides) -> tuple[BoundClause, ...]:
    """Find the columns that clauses name; raises as `bind_merge`."""
    check_reachable(clauses)
    return tuple(bind_clause(clause, sides) for clause in clauses)


def unread_columns(clauses: Sequence[BoundClause], sides: MergeSides) -> list[str]:
    """Columns of the source that nothing reads though a clause takes all: the table lacks them."""
    paths = {path for each in clauses for path in (*each.asked, *each.read) if path[0] == SOURCE}
    inside = below(paths, SOURCE)
    if not any(each.clause.takes_all for each in clauses) or () in inside:
        return []
    used = {path[0] for path in inside}.union(sides.on.values())
    return [name for name in sides.source.names if name not in used]


def find_matches(draft: Draft, merge: BoundMerge) -> Matching:
    """Decide what becomes of every row.

    Raises
    ------
    InvalidArgumentError
        Clauses take several pairs with the same row of the table.
    """
    files = draft.match(merge.chosen)
    has_partner = np.zeros(merge.source.num_rows, bool)
    partners: set[str] = set()
    parts: dict[int, list[FileOutcome]] = {}
    for piece in gathered(_parts(draft, files, merge), merge):
        rows, source_rows = merge.pairs(piece.data)
        has_partner[source_rows] = True
        partners.update(files[owner].entry.file for owner in np.unique(piece.owners[rows]))
        taken = rows_taken(merge, piece, rows, source_rows)
        for owner, outcome in piece.by_file(files, *taken):
            parts.setdefault(owner, []).append(outcome)
    outcomes = (_whole(parts[owner]) for owner in sorted(parts))
    return Matching(tuple(outcomes), np.flatnonzero(~has_partner), frozenset(partners))


def rows_to_insert(
    merge: BoundMerge, unmatched: np.ndarray
) -> Iterator[tuple[BoundClause, np.ndarray]]:
    """Rows of the source that clauses insert, in order, some at a time.

    Parameters
    ----------
    unmatched
        Rows of the source without a partner, ascending.
    """
    if not merge.inserts:
        return
    asked = merge.asked_of_source
    for start in range(0, len(unmatched), INSERT_ROWS):
        rows = unmatched[start : start + INSERT_ROWS]

        def seen(places: np.ndarray, rows: np.ndarray = rows) -> pa.RecordBatch:
            return joined(len(places), source=take_batch_rows(asked, rows[places]))

        taken = merge.first_clause("not_matched", len(rows), seen)
        for number in np.unique(taken[taken >= 0]).tolist():
            yield merge.clauses[number], rows[taken == number]


def columns_of(source: pa.RecordBatch, paths: Collection[Path]) -> pa.RecordBatch:
    """The columns of a source that some paths lead to."""
    inside = below(paths, SOURCE)
    if () in inside:
        return source
    names = {path[0] for path in inside}
    return source.select([name for name in source.schema.names if name in names])


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of the table: the number of each one's file, its own there, and its columns."""

    owners: np.ndarray
    rows: np.ndarray
    data: pa.RecordBatch

    def by_file(
        self,
        files: Sequence[Matched],
        places: np.ndarray,
        source_rows: np.ndarray,
        clauses: np.ndarray,
    ) -> Iterator[tuple[int, FileOutcome]]:
        """What becomes of rows of the piece, which are given by their places, ascending."""
        owners = self.owners[places]
        for owner in np.unique(owners).tolist():
            mask = slice(*np.searchsorted(owners, (owner, owner + 1)).tolist())
            yield (
                owner,
                FileOutcome(
                    files[owner].entry, self.rows[places[mask]], source_rows[mask], clauses[mask]
                ),
            )


def _parts(draft: Draft, files: Sequence[Matched], merge: BoundMerge) -> Iterator[Piece]:
    """The rows of files that the merge may look at, in their order."""
    reader = draft.column_reader([each.entry for each in files], merge.looked_at)
    for owner, each in enumerate(files):
        numbers, start = each.rows.to_indices(), 0
        for batch in draft.read(reader, each.entry, each.rows):
            rows = numbers[start : start + batch.num_rows]
            start += batch.num_rows
            yield Piece(np.full(len(rows), owner, np.int64), rows, batch)


def gathered(parts: Iterable[Piece], merge: BoundMerge) -> Iterator[Piece]:
    """Pieces so large that looking them up pays."""
    rows_min = max(PIECE_ROWS_MIN, merge.source.num_rows)
    held: list[Piece] = []
    held_rows = 0
    for part in parts:
        held.append(part)
        held_rows += len(part.rows)
        if held_rows >= rows_min:
            yield from _together(held)
            held, held_rows = [], 0
    yield from _together(held)


def _together(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces as one; as several only where an array would become too long."""
    if not pieces:
        return
    owners = np.concatenate([piece.owners for piece in pieces])
    rows = np.concatenate([piece.rows for piece in pieces])
    start = 0
    for batch in joined_batches([piece.data for piece in pieces]):
        stop = start + batch.num_rows
        yield Piece(owners[start:stop], rows[start:stop], batch)
        start = stop


def rows_taken(
    merge: BoundMerge, piece: Piece, rows: np.ndarray, source_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of a piece that clauses take, ascending, their partners, and the clauses."""
    asked = merge.asked_of_source

    def pairs(places: np.ndarray) -> pa.RecordBatch:
        return joined(
            len(places),
            target=take_batch_rows(piece.data, rows[places]),
            source=take_batch_rows(asked, source_rows[places]),
        )

    matched = merge.first_clause("matched", len(rows), pairs)
    acted = matched >= 0
    _refuse_repeated(merge, rows[acted], source_rows[acted])
    is_alone = np.ones(len(piece.rows), bool)
    is_alone[rows] = False
    alone = np.flatnonzero(is_alone)

    def lonely(places: np.ndarray) -> pa.RecordBatch:
        return joined(len(places), target=take_batch_rows(piece.data, alone[places]))

    others = merge.first_clause("not_matched_by_source", len(alone), lonely)
    left = others >= 0
    places = np.concatenate([rows[acted], alone[left]])
    partners = np.concatenate([source_rows[acted], np.full(np.count_nonzero(left), -1, np.int64)])
    clauses = np.concatenate([matched[acted], others[left]])
    order = np.argsort(places, kind="stable")
    return places[order], partners[order], clauses[order]


def _refuse_repeated(merge: BoundMerge, rows: np.ndarray, source_rows: np.ndarray) -> None:
    again = np.flatnonzero(rows[1:] == rows[:-1])
    if not len(again):
        return
    first, second = source_rows[again[0]], source_rows[again[0] + 1]
    key = {name: merge.source.column(name)[int(first)].as_py() for name in merge.sides.on.values()}
    raise InvalidArgumentError(
        f"source: rows {first} and {second}, of key {key}, match the same row of the table: each "
        "row can be updated or deleted once; make the keys of the source unique, or give the "
        "clause a condition that one of them meets"
    )


def _whole(parts: Sequence[FileOutcome]) -> FileOutcome:
    return FileOutcome(
        parts[0].entry,
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.source_rows for part in parts]),
        np.concatenate([part.clauses for part in parts]),
    )


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
    found = table_filter(chosen, sides.schema, where="merge")
    assert found is not None
    return found
