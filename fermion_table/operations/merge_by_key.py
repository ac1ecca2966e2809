"""Merges into a primary-key table: rows are written again, and merged by key when they are read.

A merge that sets all columns of the rows of its keys, whether they are there or not, is an upsert:
it depends on nothing that others write. Any other one reads the rows that it is about, and writes
those that change: new values, or retractions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fermion.engine import filter_batch_rows, one_batch, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.predicate import Column
from fermion_table.merging.fold import is_not_older
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry
from fermion_table.operations.draft import Draft
from fermion_table.operations.keyed_rows import keys_may_match, of_kind
from fermion_table.operations.merge_clauses import SOURCE, TARGET, BoundClause, below
from fermion_table.operations.merge_matching import (
    BoundMerge,
    Evaluation,
    MergeCounts,
    paired_pieces,
)
from fermion_table.reading.whole_rows import known_blobs
from fermion_table.scanning.scan import Scan
from fermion_table.schema.schema import KIND_COLUMN
from fermion_table.writing.make_writer import TableWriter, write_changes


def check_by_key(clause: BoundClause, key: PrimaryKey) -> None:
    """Refuse a clause that a primary-key table can't carry out.

    Raises InvalidArgumentError: An update sets a column of the primary key, an insert may meet a
        row of its key, or the table's merge engine does not delete or replace rows.
    """
    action, method = clause.clause.action, f"merge: {clause.clause.method}"
    if action == "delete":
        key.engine.check_removes(key.options, "delete")
        return
    if action == "update":
        if not key.engine.replaces:
            key.engine.check_removes(key.options, "update")
        for name in key.names:
            if name in clause.values and not _is_partners(clause, name):
                raise InvalidArgumentError(
                    f"{method}: column {name!r} is of the primary key: delete the row, and insert "
                    "one of the new key"
                )
        return
    on = clause.sides.on
    if not all(name in key.names and _is_partners(clause, name) for name in on):
        raise InvalidArgumentError(
            f"{method}: on={list(on)}: expected columns of the primary key {list(key.names)}, "
            "inserted as the source has them; otherwise a row that is inserted could replace "
            "another one of its key"
        )


def merge_by_key(draft: Draft, key: PrimaryKey, merge: BoundMerge) -> Callable[[], MergeCounts]:
    """Write what rows become.

    Returns: What counts the rows that changed: an upsert reads nothing; and a row that is inserted
        need not show, as a deletion of a later sequence hides it.
    Raises InvalidArgumentError: Rows of the source have one key, and are to change the same row of
        the table.
    """
    scan, carried = None, None
    if not merge.sides.merge.is_upsert(key):
        carries = merge.carries_blobs and not merge.asks_for_blobs
        scan = draft.scan(merge.chosen, carries_blobs=carries)
        carried = known_blobs(scan.reader, scan.entries[0])
    with draft.writer(known_blobs=carried) as writer:
        if scan is None:
            before = _key_scan(draft, key, merge)
            sequences = _upsert(merge, key, writer)
            counted = partial(_counted, before, merge, key, sequences)
        else:
            counts, keys = _merge(scan, key, merge, writer)
            counted = partial(_with_inserted, counts, key, keys)
        (message,) = writer.prepare_commit()
    draft.add_written(message.entries)
    return partial(counted, _key_scan(draft, key, merge) if key.options.sequence_fields else None)


def _key_scan(draft: Draft, key: PrimaryKey, merge: BoundMerge) -> Scan:
    """What reads the keys of the rows that a merge is about, and their sequences."""
    names = (*key.names, *key.options.sequence_fields)
    return draft.scan(merge.chosen).select([(name,) for name in dict.fromkeys(names)])


def by_key_concerns(entry: Entry, draft: Draft, key: PrimaryKey, merge: BoundMerge) -> bool:
    """Whether a file that another commit added would have made a difference."""
    return not merge.sides.merge.is_upsert(key) and keys_may_match(entry, draft, key, merge.chosen)


def _upsert(merge: BoundMerge, key: PrimaryKey, writer: TableWriter) -> pa.RecordBatch | None:
    """Write all rows; their sequences come back, in the order of the source, if they have any."""
    if merge.keys.repeated is not None:
        _refuse_twice(merge, *merge.keys.repeated)
    names, sequences = list(key.options.sequence_fields), []
    for clause, rows in merge.insertions(np.arange(merge.source.num_rows)):
        new = clause.fitting(merge.made_by(clause, rows))
        writer.write(new, copy=False)
        sequences.append(new.select(names))
    return one_batch(sequences) if names and sequences else None


def _counted(
    before: Scan,
    merge: BoundMerge,
    key: PrimaryKey,
    sequences: pa.RecordBatch | None,
    after: Scan | None,
) -> MergeCounts:
    """Which rows of an upsert show, and were there before, by scans of the keys.

    sequences: Of the rows, in the order of the source.
    after: None: all show.
    """
    known = updated = 0
    for data, rows, source_rows in paired_pieces(merge, before.to_batches()):
        known += len(rows)
        if sequences is not None:
            old, new = take_batch_rows(data, rows), take_batch_rows(sequences, source_rows)
            updated += int(is_not_older(new, old, key).sum())
    if after is None:
        return MergeCounts(merge.source.num_rows - known, known)
    there = sum(len(rows) for _, rows, _ in paired_pieces(merge, after.to_batches()))
    return MergeCounts(there - known, updated)


def _with_inserted(
    counts: MergeCounts, key: PrimaryKey, keys: Sequence[pa.Array], after: Scan | None
) -> MergeCounts:
    """Counts with those of the rows inserted that show; `after` as of `_counted`."""
    if after is None or not keys:
        return counts
    inserted = pa.chunked_array(keys)
    found = (pc.is_in(key.keys(batch), value_set=inserted) for batch in after.to_batches())
    return replace(counts, inserted=sum(each.true_count for each in found))


def _merge(
    scan: Scan, key: PrimaryKey, merge: BoundMerge, writer: TableWriter
) -> tuple[MergeCounts, list[pa.Array]]:
    """Write what rows become; the counts, and the keys of the rows inserted.

    An update by which a row would come before the one that it is to replace changes nothing.
    """
    evaluation, is_replacing = Evaluation(merge), key.engine.replaces
    updated = deleted = 0
    read, wanted = scan.select([(name,) for name in _columns(merge, key)]), scan.schema
    for data, _, taken in evaluation.decided(read.to_batches()):
        for number, part in taken.by_clause():
            clause, old = merge.clauses[number], take_batch_rows(data, part.rows)
            if clause.clause.action == "delete":
                write_changes(writer, of_kind(old, "-D"), KIND_COLUMN, copy=False)
                deleted += old.num_rows
                continue
            new = clause.fitting(merge.made_by(clause, part.source_rows, old), wanted)
            if key.options.sequence_fields:
                shown = is_not_older(new, old, key)
                old, new = filter_batch_rows(old, shown), filter_batch_rows(new, shown)
            if not is_replacing:
                write_changes(writer, of_kind(old, "-D"), KIND_COLUMN, copy=False)
            write_changes(writer, of_kind(new, "+U"), KIND_COLUMN, copy=False)
            updated += new.num_rows
    keys = _insert(merge, key, evaluation.unmatched, writer)
    return MergeCounts(sum(map(len, keys)), updated, deleted), keys


def _insert(
    merge: BoundMerge, key: PrimaryKey, unmatched: np.ndarray, writer: TableWriter
) -> list[pa.Array]:
    """Write rows that have no partner; their keys."""
    keys, rows = [], []
    for clause, some in merge.insertions(unmatched):
        new = clause.fitting(merge.made_by(clause, some))
        writer.write(new, copy=False)  # refuses null keys
        keys.append(key.keys(new))
        rows.append(some)
    if not keys:
        return []
    codes = pc.index_in(pa.chunked_array(keys), value_set=pc.unique(pa.chunked_array(keys)))
    order = np.argsort(codes.to_numpy(), kind="stable")
    again = np.flatnonzero(np.diff(codes.to_numpy()[order]) == 0)
    if len(again):
        numbers = np.concatenate(rows)[order]
        _refuse_twice(merge, int(numbers[again[0]]), int(numbers[again[0] + 1]))
    return keys


def _refuse_twice(merge: BoundMerge, first: int, second: int) -> None:
    raise InvalidArgumentError(
        f"source: rows {first} and {second}, of key {merge.key_of(first)}, are for one row of the "
        "table, which has a primary key: make the keys of the source unique"
    )


def _columns(merge: BoundMerge, key: PrimaryKey) -> list[str]:
    """Columns that are read of the rows that a merge is about."""
    names = merge.sides.schema.names
    asked = below(merge.asked, TARGET)
    is_replacing = key.engine.replaces
    if () in asked or not is_replacing or any(c.clause.action == "delete" for c in merge.clauses):
        return names
    fixed = (*key.names, *key.options.sequence_fields)
    wanted = {*fixed, *merge.sides.on, *(path[0] for path in asked)}
    for clause in merge.clauses:
        if clause.clause.action == "update":
            wanted.update(field.name for field in clause.carried)
    return [name for name in names if name in wanted]


def _is_partners(clause: BoundClause, name: str) -> bool:
    """Whether a column of `on` is set to what it is compared with."""
    value = clause.values.get(name)
    on = clause.sides.on
    return isinstance(value, Column) and name in on and value.path == (SOURCE, on[name])
