"""Whether files that a writer made may be committed: each once, stored, and in buckets that fit.

The names of data files are unique, and a writer makes them after it has seen a snapshot. No
snapshot up to that one can name them, so the commits after it tell whether one of them added them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.argument_checks import described
from fermion_table.commit.request import NewSchema, WrittenFiles, check_names_once
from fermion_table.errors import CorruptMetadata, MissingDataFile
from fermion_table.metadata import pointers
from fermion_table.metadata.bucket_counts import bucket_count, bucket_counts
from fermion_table.metadata.history import SchemaVersions, latest, load_parent
from fermion_table.metadata.manifest import Entry, data_paths_of, locations_of, paths_of
from fermion_table.metadata.manifest_store import locate, manifest_files
from fermion_table.metadata.shared_files import SharedFiles, is_outside, options_for
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.plan import LiveFiles
from fermion_table.schema.schema import TableSchema, decode_schema
from fermion_table.storage import owned_files
from fermion_table.storage.location import location_size
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import check_path
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.writer_message import WriterMessage


def written_files(messages: Sequence[WriterMessage]) -> WrittenFiles:
    """The data files of some messages, to be committed together.

    Changelog files are not among them: they belong to the data files that they came with.

    Raises TypeError: Not messages.
    Raises InvalidArgumentError: A file is named twice.
    Raises UnsafeStorage: A path that leads out of the table.
    """
    found: WrittenFiles | None = None
    for each in messages:
        if not isinstance(each, WriterMessage):
            raise TypeError(f"messages: expected those of writers, found {described(each)}")
        check_names_once([entry.file for entry in each.entries])
        names = [entry.file for entry in each.entries if not entry.is_changelog]
        for entry in each.entries:
            if entry.external_path is None:
                check_path(entry.path)
        files = WrittenFiles(
            files=frozenset(names),
            beside=frozenset(path for entry in each.entries for path in paths_of(entry)).difference(
                names
            ),
            since=each.base_id,
            branch=each.branch,
        )
        found = files.and_also(found)
    return found or WrittenFiles(files=frozenset())


def paths_in(written: WrittenFiles | None) -> frozenset[str]:
    """The paths of files that came in messages."""
    return frozenset() if written is None else written.paths


def refuse_committed(
    store: AtomicStore, base: Snapshot, written: WrittenFiles, branch: str
) -> WrittenFiles:
    """Refuse files that the history of a snapshot has added since they were made.

    Returns: The same, known not to be in the history up to `base`.
    Raises InvalidArgumentError: Names a file and the snapshot that added it.
    """
    known = committed_since(store, base, written, branch)
    if known:
        file, where = min(known.items())
        others = f" (and {len(known) - 1:,} other files)" if len(known) > 1 else ""
        raise InvalidArgumentError(
            f"{store.location}: {file}{others}: {where}; the messages of a writer can be committed "
            "only once"
        )
    return msgspec.structs.replace(written, since=base.id, branch=branch)


def committed_since(
    store: AtomicStore, base: Snapshot, written: WrittenFiles, branch: str
) -> dict[str, str]:
    """Those of a writer's files that a history has added, removed since or not.

    Only the commits after the snapshot that the writer has seen are read, of each the names that
    it added. Where some of them have expired, a file counts as committed if it is live, or gone.

    Returns: What happened to each file, in words.
    """
    since = written.since
    if since is None or written.branch != branch or since > base.id:
        since = -1
    found: dict[str, str] = {}
    current: Snapshot | None = base
    last = base
    while current is not None and current.id > since:
        last = current
        try:
            added = _added_names(store, current, written.files)
            current = load_parent(store, current, branch=branch)
        except CorruptMetadata:
            if last.id >= pointers.first_kept(store, last.branch):
                raise
            current = None
            break
        found |= dict.fromkeys(added, f"snapshot {last.id} has added it before")
    if current is None and last.id > 0:
        rest = written.files - found.keys()
        found |= _live_or_gone(store, base, rest)
    return found


def _unpublished(store: AtomicStore, written: WrittenFiles, branch: str) -> frozenset[str]:
    """Those of a writer's files that may be deleted, as a commit of them is proven to have failed.

    What another commit has published stays; where that can't be read, all do.
    """
    try:
        known = committed_since(store, latest(store, branch=branch), written, branch)
    except FileNotFoundError:  # no table at all
        return written.files
    except (OSError, FermionError):
        return frozenset()
    return written.files - known.keys()


def delete_unpublished(
    owned: OwnedFiles,
    written: WrittenFiles | None,
    branch: str,
    keep: AbstractSet[str] = frozenset(),
) -> None:
    """Delete files whose commit is proven to have failed, but what others have published.

    Changelog files of writers go where all of their data files do.

    owned: The files; nobody owns them afterwards.
    written: Those that others may know of, as they came in messages.
    """
    shared = (owned.paths - keep) & written.files if written is not None else frozenset()
    if written is not None and shared:
        mine = _unpublished(owned.store, msgspec.structs.replace(written, files=shared), branch)
        if mine < shared:
            keep = keep | (shared - mine) | written.beside
    owned.delete(keep)


def refuse_missing(store: AtomicStore, entries: Iterable[Entry], unsure: Container[str]) -> None:
    """Refuse to publish files that are gone.

    unsure: Paths of those of their files that are looked for, with a request for each; those that
        this process has made just now, without.
    Raises InvalidArgumentError: Names a file that its writer has deleted, or that is not stored any
        more.
    """
    whole = {path: size for entry in entries for path, size in data_paths_of(entry).items()}
    whole.update({each.path: each.size for entry in entries for each in entry.blob_files})
    asked = {path for entry in entries for path in paths_of(entry) if path in unsure}
    deleted = owned_files.deleted(store, asked)
    if deleted:
        raise InvalidArgumentError(
            f"{store.location}: {_several(deleted)}: the writer was aborted, and has deleted its "
            "files; nothing was published"
        )
    found = owned_files.sizes(store, owned_files.unsure(store, asked))
    gone = [path for path, size in found.items() if size is None or whole.get(path, size) != size]
    if gone:
        raise InvalidArgumentError(
            f"{store.location}: {_several(gone)}: not stored any more, as the writer has given up, "
            "or orphan files were removed; write the rows again. Nothing was published"
        )


def refuse_lost(
    store: AtomicStore, snapshot: Snapshot, entries: Iterable[Entry], live: Iterable[Entry]
) -> None:
    """Refuse to bring files into a table's newest state that are gone, or cut off.

    Files of other tables, which a clone names, are looked for where they lie.

    snapshot: That names them, for the message.
    live: Entries of the newest state: each file that these do not have is looked for.
    Raises MissingDataFile: Names the first of them, and says how many there are.
    Raises UnsafeStorage: The table may not name a file.
    """
    sizes = {path: size for entry in entries for path, size in locations_of(entry).items()}
    kept = {path for entry in live for path in locations_of(entry)}
    shared = SharedFiles(store)

    def size_of(path: str) -> int:
        if not is_outside(path):
            return store.size(path)
        location = shared.checked(path)
        return location_size(location, options_for(store, location))

    stored = owned_files.sizes(store, [path for path in sizes if path not in kept], size_of)
    gone = [path for path, size in stored.items() if size is None or size < sizes[path]]
    if gone:
        raise MissingDataFile(
            f"{store.location}: snapshot {snapshot.id} of branch {snapshot.branch!r} can't become "
            f"the newest state: {_several(gone)} of {len(sizes):,} that it needs: missing or cut "
            "off; expected that only expire_snapshots and remove_orphan_files delete files. "
            "Nothing was published"
        )


def _several(paths: Sequence[str]) -> str:
    """The first of some files, and how many others there are."""
    others = f" (and {len(paths) - 1:,} other files)" if len(paths) > 1 else ""
    return f"{min(paths)}{others}"


def _added_names(store: AtomicStore, snapshot: Snapshot, files: frozenset[str]) -> set[str]:
    """Those of some files that a snapshot's commit added."""
    delta = snapshot.delta
    inline = snapshot.tail[len(snapshot.tail) - delta.tail_entries :]
    added = {entry.file for entry in inline if entry.file in files}
    for reference in delta.added:
        added.update(manifest_files(store, reference).find(files))
    return added


def _live_or_gone(store: AtomicStore, base: Snapshot, files: frozenset[str]) -> dict[str, str]:
    """Those of some files that are live in a snapshot, or not stored any more."""
    live = {entry.file for entry in locate(store, base, files).entries}
    found = dict.fromkeys(live, "it is live")
    for file in files - live:
        if not store.exists(file):
            found[file] = "it is not stored any more, as if it had been committed and removed"
    return found


def bucket_conflict(
    store: AtomicStore,
    base: Snapshot,
    added: Sequence[Entry],
    removed: AbstractSet[str],
    schema: NewSchema | None,
) -> str | None:
    """Why files can't be added to a snapshot; None if they can.

    Metadata is read only if the setting ``bucket`` of the table was changed.

    removed: Files that go in the same commit.
    schema: That the commit brings.
    """
    new = [entry for entry in added if entry.bucket is not None]
    versions = SchemaVersions(store, base)
    if not new or not versions.current.bucket_counts:
        return None
    brought: dict[int, TableSchema] = {}
    if schema is not None:
        brought[schema.id] = decode_schema(schema.data, f"schema {schema.id}")
    schemas = ChainMap(brought, versions)  # type: ignore[arg-type]  # only read
    touched = {entry.partition for entry in new}
    counts = bucket_counts(
        (
            entry
            for entry in LiveFiles(store, base).entries(statistics=False)
            if entry.partition in touched and entry.file not in removed
        ),
        schemas,
    )
    for entry in new:
        count = bucket_count(entry, schemas)
        known = counts.setdefault(entry.partition, count)
        if known != count:
            where = f"partition {list(entry.partition)}" if entry.partition else "the table"
            return (
                f"{where} has {known} buckets, and the new files were written for {count}, as "
                "another commit wrote the first rows there, or overwrote them, meanwhile"
            )
    return None
