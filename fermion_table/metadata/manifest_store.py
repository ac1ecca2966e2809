"""Manifests in a store: write them, read them through the cache, list a snapshot's live entries."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import fermion
from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.file_columns import FileColumns, ListedFiles
from fermion_table.metadata.manifest import (
    ENTRY_BYTES_MIN,
    Entry,
    Manifest,
    ManifestKind,
    ManifestList,
    ManifestReference,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
)
from fermion_table.metadata.packed_manifest import (
    PackedFiles,
    can_pack,
    check_packed,
    packed_table,
    write_packed,
)
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.options import (
    PACK_ENTRIES_MIN,
    PACK_STATISTICS_MIN,
    PACK_WIDE_ENTRIES_MIN,
)
from fermion_table.schema.schema import SchemaReference, decode_schema
from fermion_table.storage import json_codec
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.json_codec import check_readable, read_hashed
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import manifest_index_path, manifest_path, schema_path, unique_name
from fermion_table.storage.store import METADATA_BYTES_MAX, AtomicStore, access_of

MEMORY_PER_ENTRY = 2048
"""Bytes of a decoded entry with statistics, roughly; for the cache."""
WHOLE_BYTES_MAX = 1024 * 1024
"""A packed manifest of at most so many bytes is read whole."""

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest object just written: its path, and hash and size of its stored bytes."""

    path: str
    hash: str
    size: int
    kind: ManifestKind = "loose"


@dataclass(slots=True)
class Located:
    """Where files that a commit removes stand in its parent.

    entries: Their entries, as they were.
    inline: Those that the snapshot itself holds.
    ordinals: Ordinals within manifests, by position among the snapshot's (`listed_manifests`).
    missing: Files that are not live.
    """

    entries: list[Entry] = field(default_factory=list)
    inline: set[str] = field(default_factory=set)
    ordinals: dict[int, list[int]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def _is_big(entries: Sequence[Entry]) -> bool:
    """Whether a manifest is better read by columns."""
    if len(entries) >= PACK_ENTRIES_MIN:
        return True
    statistics = sum(len(entry.stats) for entry in entries)
    return len(entries) >= PACK_WIDE_ENTRIES_MIN and statistics >= PACK_STATISTICS_MIN


class MetadataWriter:
    """Writes the metadata objects of one commit, each content once however often it is tried."""

    def __init__(self, store: AtomicStore) -> None:
        self._store = store
        self._owned = OwnedFiles(store)
        self._owned.release()  # whether a snapshot names them, only the commit can tell
        self._manifests: dict[str, StoredManifest] = {}
        self._schemas: dict[str, SchemaReference] = {}
        self._listed: dict[str, list[str]] = {}

    def write_manifest(self, entries: Sequence[Entry]) -> StoredManifest:
        """Store entries as a manifest, packed when there are many of them."""
        if _is_big(entries) and can_pack(entries):
            return self.write_packed(packed_table(entries))
        data, compressed = json_codec.stored(
            encode_manifest(entries), json_codec.COMPRESS_MANIFESTS_ABOVE_BYTES
        )
        return self._write_manifest(
            data, lambda name: manifest_path(name, compressed=compressed), decode_manifest
        )

    def write_list(self, references: Sequence[ManifestReference]) -> StoredManifest:
        """Store a list of manifests."""
        data, compressed = json_codec.stored(
            json_codec.encode(ManifestList(manifests=tuple(references)))
        )
        written = self._write_manifest(
            data,
            lambda name: manifest_path(name, compressed=compressed),
            decode_manifest_list,
            "list",
        )
        self._listed[written.path] = [each.path for each in references]
        return written

    def published(self, snapshot: Snapshot) -> set[str]:
        """What a snapshot names of what this has written, lists included; reads nothing."""
        found = {each.path for each in named_manifests(snapshot)}
        return found.union(*(self._listed.get(path, ()) for path in found))

    def write_packed(self, table: pa.Table) -> StoredManifest:
        """Store a packed manifest of these columns."""
        check = partial(check_packed, count=table.num_rows)
        return self._write_manifest(write_packed(table), manifest_index_path, check, "packed")

    def _write_manifest(
        self,
        data: bytes,
        path_of: Callable[[str], str],
        decode: Callable[[bytes, str], object],
        kind: ManifestKind = "loose",
    ) -> StoredManifest:
        """Store a manifest, unless this commit has done so already."""
        content = json_codec.content_hash(data)
        if content not in self._manifests:
            path = path_of(unique_name())
            check_readable(data, path, decode)
            self._manifests[content] = StoredManifest(path, content, len(data), kind)
            self._owned.add(path)
            self._store.write(path, data)
            if kind == "loose":
                shared_cache.put((content, "stored"), data, len(data))  # soon merged with others
        return self._manifests[content]

    def write_schema(self, schema_id: int, json: bytes) -> SchemaReference:
        """Store a schema version, unless this commit has done so already."""
        data, compressed = json_codec.stored(json)
        content = json_codec.content_hash(data)
        if content not in self._schemas:
            path = schema_path(schema_id, unique_name(), compressed=compressed)
            check_readable(data, path, partial(decode_schema, keep_unknown=True))
            self._schemas[content] = SchemaReference(
                id=schema_id, path=path, hash=content, size=len(data)
            )
            self._owned.add(path)
            self._store.write(path, data)
        return self._schemas[content]

    def discard(self, keep: Container[str] = ()) -> None:
        """Delete what was written, but for some paths. Only after a proven outcome.

        An object that can't be deleted is left for the removal of orphan files.
        """
        self._owned.delete(keep)


def read_stored(store: AtomicStore, path: str, hash: str, size: int) -> bytes:
    """The stored bytes of an object, checked against what its referrer says.

    Raises CorruptMetadata: Missing, of another size, or of another hash.
    """
    try:
        data = read_hashed(store, path, hash, min(size + 1, METADATA_BYTES_MAX))
    except FileNotFoundError as error:
        raise CorruptMetadata(path, f"an object of {size} bytes", "no such object") from error
    if len(data) != size:
        more = "more than " if len(data) > size else ""
        raise CorruptMetadata(path, f"{size} bytes", f"{more}{min(len(data), size)} bytes")
    found = json_codec.content_hash(data)
    if found != hash:
        raise CorruptMetadata(path, f"hash {hash}", f"hash {found}")
    return data


def manifest_files(store: AtomicStore, reference: ManifestReference) -> FileColumns:
    """The files of a manifest, dead entries included, nothing inherited yet.

    Raises CorruptMetadata: Not what the reference says. Of a big packed manifest only the columns
        that are read are checked, by their own checksums.
    """
    key = reference.hash, "files"
    files: FileColumns | None = shared_cache.get(key)
    if files is not None:
        return files
    if reference.kind == "packed":
        return PackedFiles(
            reference.path,
            reference.hash,
            reference.entries,
            partial(open_packed, store, reference),
        )
    files = ListedFiles(read_manifest(store, reference))
    shared_cache.put(key, files, MEMORY_PER_ENTRY * len(files))
    return files


def file_sizes(store: AtomicStore, reference: ManifestReference) -> np.ndarray:
    """Bytes of each file of a manifest, dead ones included: ``int64``, shape (files,).

    Of a packed manifest nothing else is read, and nothing is kept. Raises as `manifest_files`.
    """
    if reference.kind != "packed":
        return manifest_files(store, reference).numbers("size").values
    open_file = partial(open_packed, store, reference, whole_max=0)
    files = PackedFiles(reference.path, reference.hash, reference.entries, open_file)
    return files.read_numbers("size").values


def open_packed(
    store: AtomicStore, reference: ManifestReference, *, whole_max: int | None = None
) -> fermion.FermionFile:
    """The Fermion file of a packed manifest; a small one is read whole, and its hash checked.

    whole_max: Bytes of one that is small; None: `WHOLE_BYTES_MAX`.
    Raises CorruptMetadata: Missing, of another size, or (if it is small) of another hash.
    """
    path, size = reference.path, reference.size
    _check_entries(reference, size)
    if size <= (WHOLE_BYTES_MAX if whole_max is None else whole_max):
        data = memoryview(read_stored(store, path, reference.hash, size))
        return fermion.open(data, options=fermion.ReadOptions(threads=1))
    try:
        found = store.size(path)
        if found != size:
            raise CorruptMetadata(path, f"{size} bytes", f"{found} bytes")
        options = fermion.ReadOptions(timeout_s=access_of(store).timeout_s)
        return fermion.open(
            store.locate(path), storage_options=store.storage_options, options=options
        )
    except FileNotFoundError as error:
        raise CorruptMetadata(path, f"an object of {size} bytes", "no such object") from error


def _check_entries(reference: ManifestReference, limit: int) -> None:
    """Refuse a manifest that is said to hold more entries than an object of its size can."""
    if reference.entries > limit:
        raise CorruptMetadata(
            reference.path,
            f"at most {limit} entries in {reference.size} bytes",
            f"{reference.entries}",
        )


def live_ordinals(reference: ManifestReference) -> np.ndarray:
    """The ordinals of a manifest's entries that are not dead: ``int64``, ascending."""
    alive = np.ones(reference.entries, bool)
    alive[list(reference.dead)] = False
    return np.nonzero(alive)[0]


def read_manifest(
    store: AtomicStore, reference: ManifestReference, *, keep_unknown: bool = False
) -> tuple[Entry, ...]:
    """The entries of a manifest as stored, dead ones included, nothing inherited yet.

    Raises CorruptMetadata: Not what the reference says.
    """
    if reference.kind == "packed":
        files = manifest_files(store, reference)
        return tuple(files.entries(np.arange(reference.entries)))
    cached: Manifest | None = None if keep_unknown else shared_cache.get(reference.hash)
    if cached is not None:
        return cached.entries
    _check_entries(reference, json_codec.EXPANSION_MAX * reference.size // ENTRY_BYTES_MIN)
    data: bytes | None = shared_cache.get((reference.hash, "stored")) if keep_unknown else None
    if data is None:
        data = read_stored(store, reference.path, reference.hash, reference.size)
    manifest = decode_manifest(
        data, reference.path, keep_unknown=keep_unknown, entries_max=reference.entries
    )
    if len(manifest.entries) != reference.entries:
        raise CorruptMetadata(
            reference.path, f"{reference.entries} entries", f"{len(manifest.entries)}"
        )
    if not keep_unknown:
        shared_cache.put(reference.hash, manifest, MEMORY_PER_ENTRY * len(manifest.entries))
    return manifest.entries


def manifest_entries(
    store: AtomicStore, reference: ManifestReference, *, keep_unknown: bool = False
) -> list[Entry]:
    """The live entries of a manifest, in its order, with what they inherit."""
    entries = read_manifest(store, reference, keep_unknown=keep_unknown)
    dead = set(reference.dead)
    return [
        inherited(entry, reference) for ordinal, entry in enumerate(entries) if ordinal not in dead
    ]


def listed_manifests(
    store: AtomicStore, references: Sequence[ManifestReference]
) -> Sequence[ManifestReference]:
    """The manifests that a snapshot's references stand for: those of lists, and the others.

    Raises CorruptMetadata: A list is not what its reference says.
    """
    if all(each.kind != "list" for each in references):
        return references
    found: list[ManifestReference] = []
    for each in references:
        if each.kind != "list":
            found.append(each)
            continue
        dead = set(each.dead)
        found += [one for at, one in enumerate(read_list(store, each)) if at not in dead]
    return found


def read_list(store: AtomicStore, reference: ManifestReference) -> tuple[ManifestReference, ...]:
    """All that a list of manifests names, dead ones included; raises as `listed_manifests`."""
    found: tuple[ManifestReference, ...] | None = shared_cache.get((reference.hash, "list"))
    if found is None:
        data = read_stored(store, reference.path, reference.hash, reference.size)
        found = decode_manifest_list(data, reference.path)
        shared_cache.put((reference.hash, "list"), found, MEMORY_PER_ENTRY * len(found))
    if len(found) != reference.entries:
        raise CorruptMetadata(reference.path, f"{reference.entries} manifests", f"{len(found)}")
    return found


def live_entries(
    store: AtomicStore, snapshot: Snapshot, *, keep_unknown: bool = False
) -> list[Entry]:
    """Every live file of a snapshot, in the order in which its rows are read.

    The order is that of sequence numbers, and within one that of row ids. Entries that are
    written again want ``keep_unknown``.
    """
    entries = list(snapshot.tail)
    for reference in listed_manifests(store, snapshot.manifests):
        entries += manifest_entries(store, reference, keep_unknown=keep_unknown)
    return sorted(entries, key=scan_order)


def scan_order(entry: Entry) -> tuple[int, int, str]:
    """The key by which live entries are ordered."""
    return entry.sequence_number, entry.row_id_base or 0, entry.file


def added_entries(store: AtomicStore, snapshot: Snapshot) -> list[Entry]:
    """The entries that a snapshot's commit added, with what they inherit."""
    delta = snapshot.delta
    entries = list(snapshot.tail[len(snapshot.tail) - delta.tail_entries :])
    for reference in delta.added:
        entries += manifest_entries(store, reference)
    return entries


def first_added(store: AtomicStore, snapshot: Snapshot) -> Entry | None:
    """The first entry that a snapshot's commit added; None if it added none."""
    delta = snapshot.delta
    if delta.tail_entries:
        return snapshot.tail[-delta.tail_entries]
    return next(iter(manifest_entries(store, delta.added[0])), None) if delta.added else None


def manifests_of(store: AtomicStore, snapshot: Snapshot) -> tuple[ManifestReference, ...]:
    """The manifests of a snapshot, of its delta, and of its changelog, and lists of them."""
    return (*named_manifests(snapshot), *listed_manifests(store, snapshot.manifests))


def named_manifests(snapshot: Snapshot) -> tuple[ManifestReference, ...]:
    """The same without those of lists, which have to be read."""
    delta, changelog = snapshot.delta, snapshot.changelog
    changes = () if changelog is None else changelog.manifests
    return (*snapshot.manifests, *delta.added, *delta.removed_manifests, *changes)


def changelog_entries(store: AtomicStore, snapshot: Snapshot) -> list[Entry]:
    """The changelog files of a snapshot's commit, in the order of time."""
    changelog = snapshot.changelog
    if changelog is None:
        return []
    entries = list(changelog.entries)
    for reference in changelog.manifests:
        entries += manifest_entries(store, reference)
    return entries


def removed_entries(store: AtomicStore, snapshot: Snapshot) -> list[Entry]:
    """The entries that a snapshot's commit removed, without statistics."""
    entries = list(snapshot.delta.removed)
    for reference in snapshot.delta.removed_manifests:
        entries += manifest_entries(store, reference)
    return entries


def locate(store: AtomicStore, snapshot: Snapshot, files: Iterable[Entry | str]) -> Located:
    """Find files in a snapshot's inline entries and manifests.

    files: Entries as `live_entries` gave them, or names of files. For an entry only manifests are
        opened that may hold it; a name means opening all.
    """
    located = Located()
    wanted = dict(
        (item, None) if isinstance(item, str) else (item.file, item.added_snapshot)
        for item in files
    )
    for entry in snapshot.tail:
        if wanted.pop(entry.file, _ABSENT) is not _ABSENT:
            located.entries.append(entry)
            located.inline.add(entry.file)
    for position, reference in enumerate(listed_manifests(store, snapshot.manifests)):
        low, high = reference.added_snapshot
        if not any(hint is None or low <= hint <= high for hint in wanted.values()):
            continue
        stored = manifest_files(store, reference)
        dead = set(reference.dead)
        found = {file: at for file, at in stored.find(wanted).items() if at not in dead}
        if found:
            ordinals = sorted(found.values())
            for entry in stored.entries(np.array(ordinals)):
                located.entries.append(inherited(entry, reference))
            located.ordinals[position] = ordinals
        for file in found:
            del wanted[file]
    located.missing = sorted(wanted)
    return located


def inherited(entry: Entry, reference: ManifestReference) -> Entry:
    """An entry of a manifest with what it inherits."""
    return entry.inherit(
        snapshot_id=reference.added_snapshot[1],
        sequence_start=reference.sequence_start,
        row_id_start=reference.row_id_start,
    )
