"""Rows in the order in which they came, made one sorted run: sorted by key, equal keys folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.engine import numbers_of, one_batch
from fermion_table.merge_engines.key_groups import Folded, is_retraction
from fermion_table.merging.fold import fold, groups_by_key
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.schema import KIND_COLUMN
from fermion_table.writing.tree_writer import RunBatch

PIECE_BYTES = 32 * 1024 * 1024
"""Sorted rows are gathered so many bytes at a time."""


def sorted_run(
    batches: Sequence[pa.RecordBatch], key: PrimaryKey
) -> tuple[bool, Iterator[RunBatch]]:
    """One sorted run of rows.

    batches: All columns of the table, those with retractions a column of kinds at their end; in the
        order of time.
    Returns: Whether retractions are among the rows of the run, and what `TreeWriter.write_run`
        takes. Rows that are in the order of their keys already, one of each, are views where the
        merge engine leaves single rows as they are.
    Raises pyarrow.ArrowInvalid: The batches do not fit into one.
    Raises InvalidArgumentError: See `fold`.
    """
    parts = [split_kinds(batch) for batch in batches]
    if key.engine.picks:
        keys = [key.tree_keys(rows) for rows, _ in parts]
        if _is_ascending(keys):
            found = [kinds for _, kinds in parts if kinds is not None]
            has_kinds = any(bool(is_retraction(kinds).any()) for kinds in found)
            kept = [kinds for _, kinds in parts]
            return has_kinds, zip((rows for rows, _ in parts), keys, kept, strict=True)
    rows = one_batch([rows for rows, _ in parts])
    return _folded(rows, _joined(parts), key)


def _folded(
    rows: pa.RecordBatch, kinds: np.ndarray | None, key: PrimaryKey
) -> tuple[bool, Iterator[RunBatch]]:
    groups = groups_by_key(rows, key.tree_keys(rows), key)
    folded = fold(rows, groups, key, kinds, is_oldest=False)
    return folded.kinds is not None, _gathered(rows, key, folded)


def _gathered(rows: pa.RecordBatch, key: PrimaryKey, folded: Folded) -> Iterator[RunBatch]:
    step = max(1, PIECE_BYTES * rows.num_rows // max(rows.nbytes, 1))
    for start in range(0, len(folded.rows), step):
        piece = slice(start, start + step)
        some = Folded(
            folded.rows[piece],
            {name: values[piece] for name, values in folded.values.items()},
            None if folded.kinds is None else folded.kinds[piece],
        )
        gathered = some.gather(rows)
        yield gathered, key.tree_keys(gathered), some.kinds  # made anew: faster than to take them


def split_kinds(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray | None]:
    """The columns of the table, and the kinds of rows; None: all are insertions."""
    last = batch.num_columns - 1
    if batch.schema.names[last] != KIND_COLUMN:
        return batch, None
    return batch.remove_column(last), numbers_of(batch.column(last))


def _joined(parts: Sequence[tuple[pa.RecordBatch, np.ndarray | None]]) -> np.ndarray | None:
    """The kinds of all rows; None: all are insertions."""
    if all(kinds is None for _, kinds in parts):
        return None
    return np.concatenate(
        [np.zeros(rows.num_rows, np.int8) if kinds is None else kinds for rows, kinds in parts]
    )


def _is_ascending(keys: Sequence[pa.Array]) -> bool:
    """Whether every key is greater than the one before it."""
    last = None
    for each in keys:
        if not len(each):
            continue
        if last is not None and each[0].as_py() <= last:
            return False
        last = each[-1].as_py()
        if pa.types.is_int64(each.type):
            numbers = numbers_of(each)
            if not (numbers[1:] > numbers[:-1]).all():
                return False
        elif not pc.all(pc.greater(each[1:], each[:-1]), min_count=0).as_py():
            return False
    return True
