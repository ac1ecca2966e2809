"""A table copied byte by byte to another storage: a replica that can be brought up to date.

Objects that snapshots name are immutable and have unique names, so those that the target has are
not copied again. They go first. Then come tags and branches, and snapshot files last, in ascending
order: whatever stops a copy, its readers see no table, or a snapshot of the source that is whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fermion.display import counted
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.redaction import redacted
from fermion_table.errors import (
    CorruptMetadata,
    MissingDataFile,
    TableExists,
    UnsafeStorage,
    VersionNotFound,
)
from fermion_table.expiry.maintenance import ORPHAN_DIRECTORIES
from fermion_table.expiry.reachable import is_over, live_objects
from fermion_table.metadata import pointers
from fermion_table.metadata.history import (
    list_ids,
    newest,
    table_exists,
)
from fermion_table.metadata.references import list_branches, list_tags
from fermion_table.metadata.shared_files import CLONE_OF, creation_properties
from fermion_table.metadata.snapshot import check_writable
from fermion_table.moments import now_ms
from fermion_table.storage.location import refuse_nested
from fermion_table.storage.paths import (
    MAIN,
    TAG_DIRECTORY,
    branch_path,
    is_index,
    snapshot_path,
    tag_path,
)
from fermion_table.storage.store import AtomicStore, CreateResult

COPIED_AT_ONCE = 2
"""Files on their way; each is held in memory as a whole."""
PLANS_MAX = 3
"""How often a copy begins anew where snapshots of the source expire meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    """What a copy did.

    Attributes
    ----------
    files, bytes
        Data and metadata files that were copied, and compared with those of the source.
    kept
        Those that the target had already.
    snapshots
        Snapshot files that were published, of all branches.
    snapshot_id
        The newest snapshot of the main branch of the target.
    """

    files: int
    bytes: int
    kept: int
    snapshots: int
    snapshot_id: int

    def __str__(self) -> str:
        return (
            f"copied {counted(self.files, 'file')} ({counted(self.bytes, 'byte')}) and "
            f"{counted(self.snapshots, 'snapshot')}, up to snapshot {self.snapshot_id}; "
            f"{counted(self.kept, 'file')} {'was' if self.kept == 1 else 'were'} there already"
        )


def copy_table(source: AtomicStore, target: AtomicStore, *, incremental: bool = False) -> TableCopy:
    """Copy a table, with every snapshot that has not expired, its branches and tags.

    Parameters
    ----------
    incremental
        Whether the target may be a copy already, which gets what is new. Nobody else may have
        written to it. What has expired in the source since then stays there.

    Raises
    ------
    TableExists
        There is a table at the target, and the copy is not incremental; or it is another table, or
        has snapshots that the source does not have.
    VersionNotFound
        The target's newest snapshot has expired in the source, or more of the source expired while
        it was copied, again and again.
    UnsafeStorage
        The source is a clone, whose files lie in another table.
    CorruptMetadata
        A file of the source is not what its listing says, or did not arrive as it was.
    MissingDataFile
        A file that a snapshot of the source names is gone.
    TableNotFound, OSError
    """
    _check_places(source, target, incremental=incremental)
    copied = size = 0
    for _ in range(PLANS_MAX):
        heads, references = _heads(source), _references(source)
        for head in heads:
            _check_same(source, target, head)
        there = _listed(target)
        try:
            wanted = _wanted(source)
            new = {path: length for path, length in wanted.items() if there.get(path) != length}
            with ThreadPoolExecutor(COPIED_AT_ONCE) as threads:
                list(threads.map(partial(_copy_file, source, target), new, new.values()))
        except FileNotFoundError:
            if _is_kept(source, heads, references):
                raise
            continue
        copied, size = copied + len(new), size + sum(new.values())
        if not _is_kept(source, heads, references):
            continue  # data of what was to be published may not have been copied
        for path, data in references.items():
            _refer(target, path, data)
        return TableCopy(
            files=copied,
            bytes=size,
            kept=len(wanted) - len(new),
            snapshots=sum(_publish(source, target, head) for head in reversed(heads)),
            snapshot_id=max(heads[0].ids, default=0),
        )
    raise VersionNotFound(
        f"{redacted(source.location)}: snapshots expired while they were copied, "
        f"{PLANS_MAX} times; nothing was published. Copy again: files that have arrived stay"
    )


@dataclass(frozen=True, slots=True)
class _Head:
    """The snapshots of a branch that are copied.

    left_after: The snapshot after which it leaves another branch; 0 of main.
    kept: See `pointers.first_kept`, as it was when the copy began.
    ids: Its own snapshots that have not expired, ascending, without snapshot 0.
    """

    branch: str
    left_after: int
    kept: int
    ids: list[int]


def _check_places(source: AtomicStore, target: AtomicStore, *, incremental: bool) -> None:
    end = newest(source, lists=True)
    check_writable(end.snapshot, redacted(source.location))
    if end.stored.transaction is not None:
        raise InvalidArgumentError(
            f"{redacted(source.location)}: its last snapshot, {end.stored.id}, is part of a "
            "transaction over several tables, whose decision lies in the warehouse and is not "
            "copied: commit to the table once more, and copy it then"
        )
    if CLONE_OF in creation_properties(source):
        raise UnsafeStorage(
            f"{redacted(source.location)}: a clone, whose data files lie in the table that it was "
            "cloned from; copy that table"
        )
    if not table_exists(target):
        refuse_nested(target)
    elif not incremental:
        raise TableExists(
            f"{redacted(target.location)}: a table exists here; to bring a copy up to date, or to "
            "finish one that was interrupted, use --incremental"
        )


def _heads(source: AtomicStore) -> list[_Head]:
    """Of main, and then of the other branches."""
    lefts = [(MAIN, 0), *((left.name, left.snapshot_id) for left in list_branches(source))]
    heads = []
    for name, left_after in lefts:
        kept = pointers.first_kept(source, name)
        ids = [each for each in list_ids(source, name) if each >= max(kept, left_after + 1)]
        heads.append(_Head(name, left_after, kept, ids))
    return heads


def _references(source: AtomicStore) -> dict[str, bytes]:
    """The files of branches and tags."""
    now = now_ms()
    paths = [branch_path(left.name) for left in list_branches(source)]
    paths += [tag_path(tag.name) for tag in list_tags(source) if not is_over(tag, now)]
    return {path: source.read(path) for path in paths}


def _is_kept(source: AtomicStore, heads: Sequence[_Head], references: Mapping[str, bytes]) -> bool:
    """Whether nothing has expired or lost its name since these were found."""
    if any(pointers.first_kept(source, head.branch) != head.kept for head in heads):
        return False
    return references.items() <= _references(source).items()


def _wanted(source: AtomicStore) -> dict[str, int]:
    """The files that snapshots, branches and tags refer to, with sizes."""
    live = live_objects(source, now=now_ms())
    listed = _listed(source)
    if missing := [path for path in live.missing(listed) if not is_index(path)]:
        raise MissingDataFile(
            f"{redacted(source.location)}: {missing[0]} is gone, though a snapshot that has not "
            f"expired names it ({counted(len(missing), 'file')} in all); nothing was published"
        )
    return {path: listed[path] for path in live.among(listed)}


def _listed(store: AtomicStore) -> dict[str, int]:
    return {item.path: item.size for folder in ORPHAN_DIRECTORIES for item in store.list(folder)}


def _copy_file(source: AtomicStore, target: AtomicStore, path: str, size: int) -> None:
    """Copy a file, and read back what has arrived."""
    data = source.read(path, size + 1)
    if len(data) != size:
        raise CorruptMetadata(f"{source.location}/{path}", f"{size} bytes", f"{len(data)} bytes")
    target.delete(path)  # of another length: left by somebody else
    target.write(path, data)
    if target.read(path, size + 1) != data:
        target.delete(path)
        raise CorruptMetadata(
            f"{target.location}/{path}", f"the {size} bytes of the source", "others"
        )


def _check_same(source: AtomicStore, target: AtomicStore, head: _Head) -> None:
    """Refuse a target that is no earlier state of the source."""
    there = list_ids(target, head.branch)
    if not there:
        return
    newest, first = max(there), head.ids[0] if head.ids else head.left_after + 1
    for number in {0, newest} if head.branch == MAIN else {newest}:
        path = snapshot_path(number, head.branch)
        if target.read(path) == _read_or_none(source, path):
            continue
        if 0 < number < first:
            raise VersionNotFound(
                f"{redacted(target.location)}: its newest snapshot {number} of branch "
                f"{head.branch!r} has expired in {redacted(source.location)}, whose first is "
                f"{first}: whether it is a copy can't be told; copy to a new place"
            )
        raise _other(target, path)
    if head.left_after < newest < first:
        raise VersionNotFound(
            f"{redacted(target.location)}: snapshots between its newest, {newest}, and {first} "
            f"have expired in {redacted(source.location)}; copy to a new place"
        )


def _read_or_none(store: AtomicStore, path: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return store.read(path)
    return None


def _other(target: AtomicStore, path: str) -> TableExists:
    return TableExists(
        f"{redacted(target.location)}: {path} is not that of the source: it is another table, or "
        "somebody has committed to the copy; copy to a new place, or drop this one first"
    )


def _refer(target: AtomicStore, path: str, data: bytes) -> None:
    """Make a branch or a tag; a tag of the name that differs is replaced."""
    there = _read_or_none(target, path)
    if there is not None and there != data and path.startswith(TAG_DIRECTORY):
        target.delete(path)
    _create(target, path, data)


def _create(target: AtomicStore, path: str, data: bytes) -> bool:
    """Create an object; whether it was not there yet.

    Raises TableExists: There is another one.
    """
    if target.create_if_absent(path, data) is CreateResult.CREATED:
        return True
    if target.read(path) != data:
        raise _other(target, path)
    return False


def _publish(source: AtomicStore, target: AtomicStore, head: _Head) -> int:
    """Create the snapshot files of a branch that are not there; how many.

    What has expired before the first of them is marked as soon as this one is there.
    """
    there = set(list_ids(target, head.branch))
    numbers = [0, *head.ids] if head.branch == MAIN else head.ids
    new = [number for number in numbers if number > max(there, default=-1)]
    _mark(target, head, there)
    for number in new:
        path = snapshot_path(number, head.branch)
        _create(target, path, source.read(path))
        there.add(number)
        _mark(target, head, there)
    if numbers:
        pointers.write_latest(target, max(numbers), head.branch)
    return len(new)


def _mark(target: AtomicStore, head: _Head, there: Collection[int]) -> None:
    """Say that what is not there has expired, if the target does not say so."""
    first = min((number for number in there if number > head.left_after), default=0)
    if first > head.left_after + 1 and pointers.first_kept(target, head.branch) < first:
        pointers.mark_expired(target, first, head.branch)
