"""Clones: tables of their own history that share another table's data files.

A clone writes metadata only; its entries name the source's files by absolute location. A tag in
the source keeps these files from expiring there until the clone is dropped (see `clone_links`).
Maintenance of the clone never touches them: it deletes within its own directory alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from fermion.errors import InvalidArgumentError
from fermion.redaction import redacted
from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitMetadata, CommitRequest, NewSchema
from fermion_table.errors import CorruptMetadata, TableExists, UnsafeStorage, VersionNotFound
from fermion_table.metadata.clone_links import CLONE_TAG_PREFIX, message_of_clone_tag
from fermion_table.metadata.history import load_schema, load_table_schema, table_exists
from fermion_table.metadata.manifest import BlobFile, ColumnFile, DeletionVector, Entry, IndexFile
from fermion_table.metadata.manifest_store import live_entries, read_stored
from fermion_table.metadata.references import create_tag, delete_tag, load_tag, snapshot_of
from fermion_table.metadata.shared_files import (
    CLONE_OF,
    CLONE_ROOTS,
    CLONE_TAG,
    creation_properties,
    place_of,
    roots_of_clone,
)
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.schema import decode_schema
from fermion_table.storage.json_codec import check_readable
from fermion_table.storage.location import open_store, refuse_nested
from fermion_table.storage.paths import DELETION_DIRECTORY, SCHEMA_DIRECTORY, tag_path, unique_name
from fermion_table.storage.store import AtomicStore

_Beside = TypeVar("_Beside", BlobFile, ColumnFile, IndexFile)


def clone_table(
    source: AtomicStore, snapshot: Snapshot, target: AtomicStore, *, message: str | None = None
) -> Snapshot:
    """Make a table that begins with the state of a snapshot of another one.

    target: Where there is no table yet; its storage options have to open the source's files too.
    message: For the history; None says what was cloned.
    Returns: The clone's latest: 1, or 0 if there are no rows.
    Raises TableExists: There is a table at the target, above or below it.
    Raises InvalidArgumentError: The target lies on another storage than the source.
    Raises VersionNotFound: The snapshot, or the tag that keeps a source's own source, is gone.
    """
    if table_exists(target):
        raise TableExists(f"{target.location}: a table exists here already")
    refuse_nested(target)
    text = message or f"clone of {source.location} at snapshot {snapshot.id}"
    entries = live_entries(source, snapshot, keep_unknown=True)
    roots = roots_of_clone(source, entries)
    _check_same_storage(source, target, entries)
    tag = f"{CLONE_TAG_PREFIX}{unique_name()}"
    held: list[AtomicStore] = []
    try:
        _hold(source, snapshot, entries, tag, message_of_clone_tag(target.location), held)
        _copy_ancestors(source, snapshot, target)
        schema = NewSchema(snapshot.schema.id, load_schema(source, snapshot.schema))
        created = create_table(
            target,
            schema,
            metadata=CommitMetadata(message=text, properties=_origin(source, tag, roots)),
            reader_features=snapshot.reader_features,
            writer_features=snapshot.writer_features,
        )
    except BaseException:
        for store in held:
            with contextlib.suppress(OSError, VersionNotFound):
                delete_tag(store, tag)
        raise
    if not entries:
        return created
    added = clone_entries(source, entries)
    metadata = CommitMetadata(message=text)
    return commit(
        target, CommitRequest(kind="append", added=added, base=created, metadata=metadata)
    )


def _origin(source: AtomicStore, tag: str, roots: Sequence[str]) -> dict[str, str]:
    """Properties of a clone's snapshot 0: where its files may lie, and what keeps them there."""
    properties = {CLONE_OF: source.location, CLONE_TAG: tag}
    if roots:
        properties[CLONE_ROOTS] = json.dumps(roots)
    return properties


def _check_same_storage(source: AtomicStore, target: AtomicStore, entries: Sequence[Entry]) -> None:
    """Refuse a clone whose readers would refuse its source's files."""
    if entries and place_of(source.location) != place_of(target.location):
        raise InvalidArgumentError(
            f"{redacted(target.location)}: a clone must be on the storage of its source, "
            f"{redacted(source.location)}, because its readers open files there"
        )


def clone_entries(source: AtomicStore, entries: Sequence[Entry]) -> list[Entry]:
    """Entries as a clone holds them: files by location; row ids and sequences begin anew.

    entries: In the order in which their rows are read, which stays.
    """
    ranks = {number: rank for rank, number in enumerate(_distinct(entries))}
    return [
        msgspec.structs.replace(
            entry,
            path="",
            external_path=entry.external_path or source.locate(entry.path),
            column_files=tuple(_located(source, each) for each in entry.column_files),
            indexes=tuple(_located(source, each) for each in entry.indexes),
            blob_files=tuple(_located(source, each) for each in entry.blob_files),
            deletion_vector=_located_vector(source, entry),
            sequence_offset=ranks[entry.sequence_number],
            sequence_start=None,
            row_offset=0,
            row_id_base=None,
            added_snapshot=None,
            source="clone",
        )
        for entry in entries
    ]


def _distinct(entries: Iterable[Entry]) -> list[int]:
    return sorted({entry.sequence_number for entry in entries})


def _located_vector(source: AtomicStore, entry: Entry) -> DeletionVector | None:
    vector = entry.deletion_vector
    if vector is None or not vector.path.startswith(f"{DELETION_DIRECTORY}/"):
        return vector  # none, or that of the source's own source
    return msgspec.structs.replace(vector, path=source.locate(vector.path))


def _located(source: AtomicStore, file: _Beside) -> _Beside:
    """A column file, an index file or a blob file, as an entry of a clone has it."""
    location = file.external_path or source.locate(file.path)
    return msgspec.structs.replace(file, path="", external_path=location)


def _hold(
    store: AtomicStore,
    snapshot: Snapshot,
    entries: Sequence[Entry],
    tag: str,
    message: str,
    held: list[AtomicStore],
) -> None:
    """Tag a snapshot, and if it shares files of another table, what keeps them there."""
    create_tag(store, tag, snapshot, message=message)
    held.append(store)
    if not any(entry.names_outside for entry in entries):
        return
    origin = creation_properties(store)
    location, name = origin.get(CLONE_OF), origin.get(CLONE_TAG)
    if location is None or name is None:
        raise CorruptMetadata(
            f"{store.location}: snapshot 0", f"properties {CLONE_OF} and {CLONE_TAG}", "none"
        )
    if place_of(location) != place_of(store.location):
        raise UnsafeStorage(
            f"{redacted(store.location)}: its metadata says that it was cloned from "
            f"{redacted(location)}, which lies on another storage"
        )
    upstream = open_store(location, storage_options=store.storage_options)
    keeper = load_tag(upstream, name)
    if keeper is None:
        raise VersionNotFound(
            f"{store.location} shares files of {location}, but no tag {name!r} keeps them there"
        )
    kept = snapshot_of(keeper, tag_path(name))
    _hold(upstream, kept, live_entries(upstream, kept), tag, message, held)


def _copy_ancestors(source: AtomicStore, snapshot: Snapshot, target: AtomicStore) -> None:
    """Copy the earlier schemas, which the current one names by path and hash, as they are."""
    for version in load_table_schema(source, snapshot.schema).ancestors:
        if not version.path.startswith(f"{SCHEMA_DIRECTORY}/"):
            raise CorruptMetadata(version.path, f"a path in {SCHEMA_DIRECTORY}/", version.path)
        data = read_stored(source, version.path, version.hash, version.size)
        if not target.exists(version.path):  # left by a clone that failed here before
            check_readable(data, version.path, decode_schema)
            target.write(version.path, data)
