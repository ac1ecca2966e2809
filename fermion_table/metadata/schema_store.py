"""The schema versions of a table, loaded when asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.history import load_schema
from fermion_table.metadata.snapshot import PRIMARY_KEY, SchemaReference, Snapshot
from fermion_table.schema.schema import (
    Field,
    SchemaVersion,
    TableSchema,
    decode_schema,
    has_buckets,
)
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.store import AtomicStore

DECODED_BYTES_FACTOR = 8
"""Memory of a decoded schema for a byte of its JSON, roughly; for the cache."""


def load_table_schema(store: AtomicStore, reference: SchemaReference) -> TableSchema:
    """A stored schema version, checked against its reference.

    Raises
    ------
    CorruptMetadata
        Not what the reference says.
    """
    key = f"table schema {reference.hash}"
    schema: TableSchema | None = shared_cache.get(key)
    if schema is None:
        data = load_schema(store, reference)
        schema = decode_schema(data, reference.path, keep_unknown=True)
        if schema.id != reference.id:
            raise CorruptMetadata(reference.path, f"schema {reference.id}", f"schema {schema.id}")
        shared_cache.put(key, schema, DECODED_BYTES_FACTOR * len(data))
    return schema


def reader_features(schema: TableSchema) -> tuple[str, ...]:
    """The features that readers of a table of this schema must know."""
    return (PRIMARY_KEY,) if has_buckets(schema) else ()


def schema_paths(store: AtomicStore, reference: SchemaReference) -> list[str]:
    """The objects of a schema version and of those before it, which files may need."""
    ancestors = load_table_schema(store, reference).ancestors
    return [reference.path, *(version.path for version in ancestors)]


def version_of(reference: SchemaReference) -> SchemaVersion:
    """A reference as a later schema version holds it."""
    return SchemaVersion(
        id=reference.id, path=reference.path, hash=reference.hash, size=reference.size
    )


class SchemaVersions(Mapping[int, TableSchema]):
    """A snapshot's schema and those before it, by id; each is read when it is asked for.

    Parameters
    ----------
    snapshot
        Whose schema is the newest.
    """

    def __init__(self, store: AtomicStore, snapshot: Snapshot) -> None:
        self._store = store
        self.current = load_table_schema(store, snapshot.schema)
        self._where = snapshot.schema.path
        self._ancestors = {version.id: version for version in self.current.ancestors}

    def __getitem__(self, schema_id: int) -> TableSchema:
        if schema_id == self.current.id:
            return self.current
        version = self._ancestors.get(schema_id)
        if version is None:
            raise CorruptMetadata(
                self._where, "ancestors that hold the schema of every file", f"no id {schema_id}"
            )
        reference = SchemaReference(
            id=version.id, path=version.path, hash=version.hash, size=version.size
        )
        return load_table_schema(self._store, reference)

    def __iter__(self) -> Iterator[int]:
        yield from sorted((*self._ancestors, self.current.id))

    def __len__(self) -> int:
        return len(self._ancestors) + 1


class KeptVersions(Mapping[int, TableSchema]):
    """Schema versions of files, in which fields that another version had dropped have no id.

    A state that is read under a later schema is read so: what its own schema had dropped is in some
    of its files still, and not in others, as compactions leave it out.

    Parameters
    ----------
    own
        The schema of the state.
    """

    def __init__(self, versions: Mapping[int, TableSchema], own: TableSchema) -> None:
        self._versions, self._own = versions, own
        self._known: dict[int, TableSchema] = {}

    def __getitem__(self, schema_id: int) -> TableSchema:
        known = self._known.get(schema_id)
        if known is None:
            known = self._versions[schema_id]
            dropped = dropped_fields(known.paths, self._own)
            if dropped:
                fields = tuple(_without_ids(each, dropped) for each in known.fields)
                known = msgspec.structs.replace(known, fields=fields)
            self._known[schema_id] = known
        return known

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)


def dropped_fields(ids: Iterable[int], schema: TableSchema) -> frozenset[int]:
    """Of some ids of fields those that a schema version has no more."""
    known, last = schema.paths, schema.last_field_id
    return frozenset(each for each in ids if each not in known and each <= last)


def _without_ids(field: Field, dropped: Collection[int]) -> Field:
    """A field, and those inside, some with the id 0: no field of a table has it."""
    if field.children:
        field = field.with_children(_without_ids(each, dropped) for each in field.children)
    return msgspec.structs.replace(field, id=0) if field.id in dropped else field
