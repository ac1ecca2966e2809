"""Whether files that a writer made have been committed before: each may be only once.

The names of data files are unique, and a writer makes them after it has seen a snapshot. No
snapshot up to that one can name them, so the commits after it tell whether one of them added them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.argument_checks import described
from fermion_table.commit.request import WrittenFiles, check_names_once
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import latest, load_parent
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import locate, manifest_files
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.paths import check_path
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.data_files import delete_files
from fermion_table.writing.writer_message import WriterMessage


def written_files(messages: Sequence[WriterMessage]) -> WrittenFiles:
    """The data files of some messages, to be committed together.

    Changelog files are not among them: they belong to the data files that they came with.

    Raises
    ------
    TypeError
        Not messages.
    InvalidArgumentError
        A file is named twice.
    UnsafeStorage
        A path that leads out of the table.
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
        files = WrittenFiles(files=frozenset(names), since=each.base_id, branch=each.branch)
        found = files.and_also(found)
    return found or WrittenFiles(files=frozenset())


def refuse_committed(
    store: AtomicStore, base: Snapshot, written: WrittenFiles, branch: str
) -> WrittenFiles:
    """Refuse files that the history of a snapshot has added since they were made.

    Returns
    -------
    WrittenFiles
        The same, known not to be in the history up to `base`.

    Raises
    ------
    InvalidArgumentError
        Names a file and the snapshot that added it.
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

    Returns
    -------
    What happened to each file, in words.
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


def unpublished(store: AtomicStore, written: WrittenFiles, branch: str) -> frozenset[str]:
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
    store: AtomicStore, entries: Sequence[Entry], written: WrittenFiles | None, branch: str
) -> None:
    """Delete files whose commit is proven to have failed, but what others have published.

    Changelog files go where all data files do.

    Parameters
    ----------
    written
        Those of the files that others may know of.
    """
    keep: frozenset[str] = frozenset()
    if written is not None and entries:
        keep = written.files - unpublished(store, written, branch)
    going = [entry for entry in entries if entry.file not in keep]
    delete_files(store, (entry for entry in going if not (keep and entry.is_changelog)))


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
