"""The primary key of a table: its columns, its settings, and the keys and buckets of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fermion.display import short_repr
from fermion.engine import BoundedCache, array_of
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.keys.key_changes import key_options
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.registry import engine_named
from fermion_table.merging.buckets import bucket_numbers
from fermion_table.schema.key_encoding import direct_keys, encode_keys, is_number
from fermion_table.schema.key_options import KeyOptions
from fermion_table.schema.schema import TableSchema, has_buckets

_SIGN = 1 << 63
_KEPT_MAX = 16
_kept = BoundedCache(_KEPT_MAX)


@dataclass(frozen=True, slots=True)
class PrimaryKey:
    """The primary key of a table.

    Attributes
    ----------
    names, types
        Its columns, in the key's order.
    options
        The table's settings.
    shared
        Columns that have one value in all rows of a tree: it is partitioned by them. Not all.
    required
        Other columns that are NOT NULL.
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    options: KeyOptions
    shared: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()

    __repr__ = short_repr

    @property
    def engine(self) -> MergeEngine:
        """What the rows of one key become."""
        return engine_named(self.options.merge_engine)

    @property
    def is_direct(self) -> bool:
        """Whether keys are compared as ``int64``, not as bytes."""
        return len(self.types) == 1 and is_number(self.types[0])

    def keys(self, rows: pa.RecordBatch) -> pa.Array:
        """The key of each row, in the form in which keys are compared.

        Parameters
        ----------
        rows
            With the key's columns, without nulls there.

        Returns
        -------
        pa.Array
            ``int64`` or ``large_binary``, shape (n,): a column for `merge_reader.merge_runs`.

        Raises
        ------
        InvalidArgumentError
            A null.
        """
        return _keys(rows, self.names)

    @property
    def tree_names(self) -> tuple[str, ...]:
        """The columns that tell the keys of one tree apart, in the key's order."""
        return tuple(name for name in self.names if name not in self.shared)

    @property
    def is_direct_in_tree(self) -> bool:
        """Whether the keys of one tree are compared as ``int64``, not as bytes."""
        (name, *more) = self.tree_names
        return not more and is_number(self.types[self.names.index(name)])

    def tree_keys(self, rows: pa.RecordBatch) -> pa.Array:
        """The key of each row of a tree, in the form in which its keys are compared fastest.

        They have the order of `keys`, but say nothing about rows of other trees.

        Parameters
        ----------
        rows
            With `tree_names`, without nulls there.

        Returns
        -------
        pa.Array
            As of `keys`.

        Raises
        ------
        InvalidArgumentError
            A null.
        """
        return _keys(rows, self.tree_names)

    def buckets(self, rows: pa.RecordBatch, count: int | None = None) -> np.ndarray:
        """The bucket of each row: ``int32``, shape (n,).

        Parameters
        ----------
        count
            Number of buckets; None: as the settings say.
        """
        named = self.options.bucket_key
        columns = [rows.column(name) for name in named]
        return bucket_numbers(columns, count or self.options.bucket, named)

    def bound(self, key: int | bytes) -> str:
        """A key as an entry holds it: the key's bytes in hexadecimal digits."""
        return (key + _SIGN).to_bytes(8, "big").hex() if isinstance(key, int) else key.hex()

    def parse_bound(self, text: Any, file: str) -> int | bytes:
        """The key that an entry holds.

        Parameters
        ----------
        file
            The entry's, for messages.

        Raises
        ------
        CorruptMetadata
        """
        try:
            key = bytes.fromhex(text)
        except (TypeError, ValueError):
            raise CorruptMetadata(file, "a key as hexadecimal digits", repr(text)[:60]) from None
        if not self.is_direct:
            return key
        if len(key) != 8:
            raise CorruptMetadata(file, "a key of 8 bytes", f"{len(key)} bytes")
        return int.from_bytes(key, "big") - _SIGN


def _keys(rows: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    columns = [rows.column(name) for name in names]
    if len(names) == 1 and is_number(columns[0].type):
        return array_of(direct_keys(columns[0], names[0]), pa.int64())
    return encode_keys(columns, names)


def primary_key_of(schema: TableSchema) -> PrimaryKey | None:
    """The primary key that the rows of a table are merged by; None for an append table.

    Raises
    ------
    InvalidArgumentError
        Settings that this version does not know.
    """
    kept: tuple[TableSchema, PrimaryKey | None] | None = _kept.get(id(schema))
    if kept is None:
        kept = schema, _primary_key(schema)  # holds the schema, so that no other one gets its id
        _kept.put(id(schema), kept)
    return kept[1]


def scanned_key(
    shown: TableSchema, stored: TableSchema, *, merges_level0: bool = False
) -> PrimaryKey | None:
    """The primary key that the rows of a snapshot are merged by; None: they are not.

    stored: The snapshot's own schema, of a table with buckets: it tells whether replaced rows are
        marked in its files.
    merges_level0: Whether level 0 is read whatever `deletion_vectors.merge_on_read` says.
    Raises InvalidArgumentError: Settings that this version does not know.
    """
    key = primary_key_of(shown)
    if key is None:
        return None
    own = key if shown.properties == stored.properties else primary_key_of(stored)
    options = replace(
        key.options,
        deletion_vectors=own is not None and own.options.deletion_vectors,
        merge_on_read=key.options.merge_on_read or merges_level0,
    )
    return key if options == key.options else replace(key, options=options)


def required_key(schema: TableSchema, where: str, operation: str) -> PrimaryKey:
    """The primary key that the rows of a table are merged by.

    Parameters
    ----------
    where
        The table's location, for messages.
    operation
        What needs it.

    Raises
    ------
    InvalidArgumentError
        It is an append table; or see `primary_key_of`.
    """
    key = primary_key_of(schema)
    if key is None:
        raise InvalidArgumentError(
            f"{where}: {operation} needs a table with a primary key that rows are merged by "
            "(Table.create(..., primary_key=[...])); this is an append table"
        )
    return key


def _primary_key(schema: TableSchema) -> PrimaryKey | None:
    if not has_buckets(schema):
        return None
    fields = [schema.by_id[field_id] for field_id in schema.primary_key]
    names = tuple(field.name for field in fields)
    partitions = {each.source_id for each in schema.partition_by if each.transform == "identity"}
    shared = frozenset(field.name for field in fields if field.id in partitions)
    return PrimaryKey(
        names=names,
        types=tuple(field.type for field in fields),
        options=key_options(schema),
        shared=shared if len(shared) < len(names) else frozenset(names[:-1]),
        required=frozenset(field.name for field in schema.fields if not field.nullable)
        - frozenset(names),
    )
