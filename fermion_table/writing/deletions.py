"""Rows that delete keys: they hold the keys, and hide or take back what older rows say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fermion.engine import one_batch, take_batch_rows
from fermion_table.merging.fold import says_nothing
from fermion_table.merging.key_values import key_rows
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.conversion import find_null, required_places
from fermion_table.schema.repeated import nulls, repeat_text, zeros
from fermion_table.schema.schema import KIND_COLUMN, TableSchema

FIELD, GROUP = "sequence.field", "a sequence group"
"""What messages call columns of sequences."""


def deletions(schema: TableSchema, key: PrimaryKey, keys: Any) -> pa.Table:
    """Rows of kind ``-D`` for keys, with their change type in a column ``_row_kind``.

    Other columns are null; or 0, empty or false where they must not be null.

    keys: See `key_rows`. Where sequence fields order the rows of a key, their values are given with
        the keys, in tuples after the key's. They may be null where the column may, which is the
        oldest. So may a sequence of a group: the deletion does not concern this group.
    Raises TypeError, InvalidArgumentError: See `key_rows`; or the merge engine deletes no rows by
        their keys.
    """
    key.engine.check_deletes_by_key(key.options)
    arrow = schema.to_arrow()
    roles = _sequences(key)
    names = tuple(dict.fromkeys((*key.names, *roles)))
    types = tuple(arrow.field(name).type for name in names)
    nullable = [name for name in roles if arrow.field(name).nullable]
    wanted = replace(key, names=names, types=types)
    given = key_rows(keys, wanted, roles=roles, nullable=nullable)
    columns = dict(zip(names, given.columns, strict=True))
    for field in arrow:
        if field.name not in columns:
            make = nulls if field.nullable else zeros
            columns[field.name] = make(field.type, given.num_rows)
    columns[KIND_COLUMN] = repeat_text("-D", given.num_rows)
    return pa.table(columns)


def without_nulls(
    rows: pa.RecordBatch, kinds: np.ndarray, schema: TableSchema, key: PrimaryKey
) -> pa.RecordBatch:
    """Rows whose deletions hold nulls in columns that became NOT NULL after them, without these.

    kinds: Of the rows: ``int8``, shape (n,).
    """
    columns, count = list(rows.columns), rows.num_rows
    for place in required_places(schema.fields):
        field = rows.schema.field(place)
        if field.name in key.options.sequence_fields or find_null(field, columns[place]) is None:
            continue
        parts = [columns[place], (nulls if field.nullable else zeros)(field.type, 1)]
        both = one_batch([pa.RecordBatch.from_arrays([part], names=[""]) for part in parts])
        chosen = np.where(says_nothing(key, kinds), count, np.arange(count))
        columns[place] = take_batch_rows(both, chosen).column(0)
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _sequences(key: PrimaryKey) -> dict[str, str]:
    """The columns without whose values a deletion would be older than all rows, and their roles."""
    options = key.options
    roles = dict.fromkeys((*options.sequence_fields,), FIELD)
    for group in options.sequence_groups:
        roles |= dict.fromkeys(group.sequence, GROUP)
    return {name: role for name, role in roles.items() if name not in key.names}
