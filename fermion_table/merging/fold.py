"""Rows of a key become one row, by the merge engine of the table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from fermion.engine import numbers_of
from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.bitmap_functions import check_bitmaps
from fermion_table.merge_engines.key_groups import (
    Folded,
    KeyGroups,
    StoredRows,
    group_rows,
    is_retraction,
    order_numbers,
)
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.key_encoding import key_ranks
from fermion_table.schema.key_options import made_null
from fermion_table.schema.transforms import plain


def groups_by_key(rows: pa.RecordBatch, keys: pa.Array | np.ndarray, key: PrimaryKey) -> KeyGroups:
    """Rows by key, and within a key from the oldest to the newest.

    Without sequence fields, or if these are equal, a later row is the newer one.

    keys: As of `PrimaryKey.keys` or `tree_keys`, or numbers that order as these do.
    """
    if not isinstance(keys, np.ndarray):
        keys = numbers_of(keys) if pa.types.is_int64(keys.type) else key_ranks(keys)
    return group_rows(
        keys,
        np.arange(len(keys)),
        sequence=[rows.column(name) for name in key.options.sequence_fields],
        is_descending=key.options.sequence_descending,
    )


def fold(
    rows: pa.RecordBatch,
    groups: KeyGroups,
    key: PrimaryKey,
    kinds: np.ndarray | None = None,
    *,
    is_oldest: bool,
) -> Folded:
    """The row of each key. Folding some newest rows first changes no result.

    rows: The columns that are folded, and those that `columns_to_merge` adds to them.
    groups: The rows by key, and within a key from the oldest to the newest.
    kinds: Kinds of the rows: ``int8``, shape (n,); None: no retraction is among them.
    is_oldest: Whether no older rows of these keys exist, and none can come; otherwise what a later
        fold needs is kept: retractions, and several rows of a key where the engine asks for them.
    Raises InvalidArgumentError: A retraction that the engine does not take, or a sum that is out of
        range.
    """
    if kinds is not None and not is_retraction(kinds).any():
        kinds = None
    return key.engine.fold(StoredRows(rows, groups, key.names, kinds, is_oldest), key.options)


def check_retractions(key: PrimaryKey, kinds: np.ndarray) -> None:
    """Refuse retractions that the merge engine does not take.

    kinds: Of some rows: ``int8``, shape (n,).
    Raises InvalidArgumentError: Names the settings that take them; or a NOT NULL column would
        become null.
    """
    key.engine.check_retractions(key.options, kinds)
    if not key.required or not key.engine.without_value(key.options, kinds).any():
        return
    for name, reason in made_null(key.options.functions).items():
        if name in key.required:
            raise InvalidArgumentError(
                f"merge_engine={key.engine.name}: found a delete or update_preimage, and column "
                f"{name!r} is NOT NULL: {reason}; make the column nullable, or set "
                "ignore_delete=true"
            )


def is_not_older(rows: pa.RecordBatch, others: pa.RecordBatch, key: PrimaryKey) -> np.ndarray:
    """Which rows come after others of their keys, by the sequence fields.

    rows, others: With the sequence fields; as many rows, in the same order of keys. These come
        later in time.
    Returns: ``bool``, shape (n,).
    """
    is_later, is_equal = np.zeros(rows.num_rows, bool), np.ones(rows.num_rows, bool)
    for name in key.options.sequence_fields:
        both = pa.concat_arrays([plain(each.column(name)) for each in (others, rows)])
        numbers, valid = order_numbers(both), both.is_valid().to_numpy(zero_copy_only=False)
        if key.options.sequence_descending:
            numbers = ~numbers
        for level in (valid.astype(np.int64), np.where(valid, numbers, 0)):
            old, new = np.split(level, 2)
            is_later |= is_equal & (new > old)
            is_equal &= new == old
    return is_later | is_equal


def says_nothing(key: PrimaryKey, kinds: np.ndarray) -> np.ndarray:
    """Which rows' values never count, but for those of the key and of sequences.

    kinds: Of the rows: ``int8``, shape (n,).
    Returns: ``bool``, shape (n,).
    """
    return key.engine.says_nothing(key.options, kinds)


def check_values(key: PrimaryKey, rows: pa.RecordBatch) -> None:
    """Refuse values that a function of their column can't read.

    Raises InvalidArgumentError: Names the column.
    """
    options = key.options
    for functions in (options.functions, *(group.functions for group in options.sequence_groups)):
        check_bitmaps(rows, functions)


def columns_to_merge(key: PrimaryKey, wanted: Iterable[str]) -> list[str]:
    """The top-level columns that have to be read to fold some: those, and what decides for them.

    wanted: Names of top-level columns.
    Returns: The key's columns first.
    """
    named = dict.fromkeys((*key.names, *key.options.sequence_fields, *wanted))
    for group in key.options.sequence_groups:
        if any(name in named for name in (*group.sequence, *group.columns)):
            named.update(dict.fromkeys(group.sequence))
        elif not key.options.removing_sequences.isdisjoint(group.sequence):
            named.update(dict.fromkeys(group.sequence))  # deletions of the group remove rows
    return list(named)


def keeps_retractions(key: PrimaryKey) -> bool:
    """Whether retractions stay in the oldest run: a row with a smaller sequence may come later."""
    return bool(key.options.sequence_fields or key.options.sequence_groups)
