"""Tags and branches: names for snapshots, each holding a full copy of the one it names.

The copy is byte for byte the stored snapshot, so its hash is the snapshot's, and a tag works
after the snapshot has expired. A branch begins with the copy of the snapshot it leaves; its own
snapshot files continue the ids.

A process that makes one first creates the same bytes under ``pending/``, which keeps the
snapshot's data from expiring, then looks whether the snapshot is kept, and only then creates the
name. So a snapshot with a name was kept when it got the name, wherever the process stops.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from fermion.display import brief
from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.argument_checks import check_optional_text
from fermion_table.errors import CorruptMetadata, UnsupportedFeature, VersionNotFound
from fermion_table.metadata import pointers
from fermion_table.metadata.snapshot import Snapshot, decode_snapshot
from fermion_table.moments import now_ms
from fermion_table.options import CommitOptions
from fermion_table.storage import json_codec
from fermion_table.storage.json_codec import encode_checked, read_decoded, read_hashed
from fermion_table.storage.paths import (
    BRANCH_DIRECTORY,
    MAIN,
    PENDING_DIRECTORY,
    SNAPSHOT_ID_MAX,
    TAG_DIRECTORY,
    branch_path,
    check_name,
    expired_directory,
    is_made_by_writers,
    is_temporary,
    pending_path,
    snapshot_directory,
    snapshot_path,
    tag_path,
    unique_name,
)
from fermion_table.storage.store import AtomicStore, CreateResult

FORMAT_VERSION = 1
NAMES_SHOWN_MAX = 5
TAG_FORMAT = "fermion-tag"
BRANCH_FORMAT = "fermion-branch"
HEAD_PROPERTY = "fermion.fast_forwarded_to"
"""Property of the commit that moved a branch's parent: the hash of the branch's snapshot."""


class Reference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name for one snapshot.

    Attributes
    ----------
    name
        Also in the file's path.
    created_ms, message
        When, by the writer's clock, and why.
    snapshot
        The snapshot's stored bytes.
    """

    format: str
    format_version: int
    name: str
    snapshot_id: int
    hash: str
    created_ms: int
    message: str | None = None
    snapshot: msgspec.Raw

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {brief(self.name)} of snapshot {self.snapshot_id}>"


class Tag(Reference, frozen=True, kw_only=True, omit_defaults=True):
    """A name for a snapshot.

    Attributes
    ----------
    expires_ms
        From when on it no longer keeps the snapshot's data, None for never.
    """

    expires_ms: int | None = None


class Branch(Reference, frozen=True, kw_only=True, omit_defaults=True):
    """Where a branch leaves another one: after the snapshot named, the last in common.

    parent: The branch that it leaves.
    """

    parent: str = MAIN


_Reference = TypeVar("_Reference", bound=Reference)


def create_tag(
    store: AtomicStore,
    name: str,
    snapshot: Snapshot,
    *,
    message: str | None = None,
    keep_ms: int | None = None,
) -> Tag:
    """Name a snapshot.

    name: Not in use.
    snapshot: As read from the store.
    message: Why.
    keep_ms: How long the tag keeps the snapshot's data, None for always.
    Raises InvalidArgumentError: A bad name, or one in use.
    Raises TypeError: The name or the message is no text.
    Raises VersionNotFound: The snapshot has expired.
    """
    created_ms = now_ms()
    tag = Tag(
        format=TAG_FORMAT,
        format_version=FORMAT_VERSION,
        name=check_name(name, "tag"),
        snapshot_id=snapshot.id,
        hash=snapshot.hash,
        created_ms=created_ms,
        message=check_optional_text(message, "message"),
        expires_ms=None if keep_ms is None else created_ms + keep_ms,
        snapshot=msgspec.Raw(stored_bytes(store, snapshot)),
    )
    _create(store, tag_path(name), tag, f"tag {name!r}")
    return tag


def load_tag(store: AtomicStore, name: str) -> Tag | None:
    """A tag, None if there is none of this name.

    Raises CorruptMetadata: Not a tag, or its copy of the snapshot has another hash.
    """
    try:
        path = tag_path(name)
    except InvalidArgumentError:  # no tag can have this name
        return None
    return _load(store, path, Tag, TAG_FORMAT)


def list_tags(store: AtomicStore) -> list[Tag]:
    """Every tag, by name."""
    found = (load_tag(store, name) for name in tag_names(store))
    return [tag for tag in found if tag is not None]


def tag_names(store: AtomicStore) -> list[str]:
    """The name of every tag, ascending; none is read."""
    names = [name for name in _file_names(store, TAG_DIRECTORY) if name.endswith(".json")]
    return [name.removesuffix(".json") for name in names]


def delete_tag(store: AtomicStore, name: str) -> None:
    """Delete a tag; its snapshot's data goes with the next expiry, if nothing else needs it.

    Raises VersionNotFound: There is no such tag.
    """
    if not store.exists(tag_path(name)):
        raise missing_name(store, "tag", name)
    store.delete(tag_path(name))


def create_branch(
    store: AtomicStore,
    name: str,
    snapshot: Snapshot,
    *,
    parent: str = MAIN,
    message: str | None = None,
) -> Branch:
    """Let a branch leave its parent after a snapshot.

    Raises InvalidArgumentError: A bad name, or one in use.
    Raises TypeError: The name or the message is no text.
    Raises VersionNotFound: The snapshot has expired.
    """
    branch = Branch(
        format=BRANCH_FORMAT,
        format_version=FORMAT_VERSION,
        name=_check_branch(name),
        parent=parent,
        snapshot_id=snapshot.id,
        hash=snapshot.hash,
        created_ms=now_ms(),
        message=check_optional_text(message, "message"),
        snapshot=msgspec.Raw(stored_bytes(store, snapshot)),
    )
    if not store.exists(branch_path(name)):
        _delete_branch(store, name)  # left over from a branch of this name that was deleted
    _create(store, branch_path(name), branch, f"branch {name!r}")
    return branch


def load_branch(store: AtomicStore, name: str) -> Branch | None:
    """A branch, None if there is none of this name (main needs no file, and has none).

    Raises CorruptMetadata: Not a branch, or its copy of the snapshot has another hash.
    """
    try:
        path = branch_path(_check_branch(name))
    except InvalidArgumentError:  # no branch can have this name
        return None
    return _load(store, path, Branch, BRANCH_FORMAT)


def list_branches(store: AtomicStore) -> list[Branch]:
    """Every branch but main, by name."""
    found = (load_branch(store, name) for name in list_branch_names(store))
    return [branch for branch in found if branch is not None]


def list_branch_names(store: AtomicStore) -> list[str]:
    """The name of every branch but main, ascending; none is read."""
    paths = (item.path for item in store.list(BRANCH_DIRECTORY))
    return sorted(path.split("/")[1] for path in paths if path.endswith("/branch.json"))


def delete_branch(store: AtomicStore, name: str) -> None:
    """Delete a branch, newest snapshot file first: wherever that stops, a branch is left or none.

    Raises VersionNotFound: There is no such branch.
    """
    if load_branch(store, name) is None:
        raise missing_name(store, "branch", name)
    _delete_branch(store, name)


def missing_name(store: AtomicStore, what: str, name: str) -> VersionNotFound:
    """The error for a tag, a branch or a version that is not there; names the closest ones.

    what: ``tag``, ``branch``, or ``version``, which may be either.
    """
    close = closest_names(store, what, name)
    return VersionNotFound(f"{store.location}: no {what} {name!r}{close}")


def closest_names(store: AtomicStore, what: str, name: str) -> str:
    """Names that one may have meant, in words that follow a message; see `missing_name`."""
    import difflib  # for messages alone

    known: list[str] = []
    with contextlib.suppress(OSError, FermionError):  # a role may not be allowed to list
        if what != "branch":
            known += tag_names(store)
        if what != "tag":
            known += [MAIN, *list_branch_names(store)]
    close = difflib.get_close_matches(str(name), known) or sorted(known)[:NAMES_SHOWN_MAX]
    noun = {"tag": "tags", "branch": "branches"}.get(what, "names")
    if not close:
        return f"; there are no {noun}"
    return f"; the closest {noun}: {', '.join(map(repr, close))}"


def snapshot_of(reference: Reference, path: str) -> Snapshot:
    """The snapshot that a tag names, or that a branch leaves, from the copy."""
    return decode_snapshot(bytes(reference.snapshot), path)


def stored_bytes(store: AtomicStore, snapshot: Snapshot) -> bytes:
    """A snapshot's bytes as stored in its file, or in a tag or branch once that has expired.

    Raises VersionNotFound: It has expired, and no tag or branch keeps it.
    """
    if is_kept(store, snapshot):
        with contextlib.suppress(FileNotFoundError):  # its snapshot file may go just now
            path = snapshot_path(snapshot.id, snapshot.branch)
            data = read_hashed(store, path, snapshot.hash)
            if json_codec.content_hash(data) == snapshot.hash:
                return data
    for reference in (*list_tags(store), *list_branches(store)):
        if reference.hash == snapshot.hash:
            return bytes(reference.snapshot)
    raise VersionNotFound(f"{store.location}: snapshot {snapshot.id} has expired")


def is_kept(store: AtomicStore, snapshot: Snapshot) -> bool:
    """Whether a snapshot has not expired in the branch that it was committed to.

    Raises CorruptMetadata: An expiry marker can't be true.
    """
    if 0 < snapshot.id < pointers.first_kept(store, snapshot.branch):
        pointers.check_marks(store, snapshot.id, snapshot.branch)
        return False
    return store.exists(snapshot_path(snapshot.id, snapshot.branch))


def pending_snapshots(store: AtomicStore) -> list[Snapshot]:
    """The snapshots that tags and branches being made will name.

    To be asked for before tags and branches are: what is missing here has got its name since.

    Raises CorruptMetadata.
    """
    listed = (item.path for item in store.list(PENDING_DIRECTORY))
    paths = [path for path in listed if is_made_by_writers(path) and not is_temporary(path)]
    kinds = (TAG_FORMAT, BRANCH_FORMAT)
    found = ((path, _load(store, path, Reference, *kinds)) for path in sorted(paths))
    return [snapshot_of(reference, path) for path, reference in found if reference is not None]


def _create(store: AtomicStore, path: str, reference: Reference, what: str) -> None:
    """Create the file of a name, for a snapshot that can't expire meanwhile."""
    pending = pending_path(unique_name())

    def decode(data: bytes, path: str) -> Snapshot:
        return snapshot_of(_decoded(data, path, type(reference), reference.format), path)

    data, snapshot = encode_checked(lambda: msgspec.json.encode(reference), path, decode)
    result, _ = _created(store, pending, data)
    if result is not CreateResult.CREATED:
        raise OSError(errno.EIO, "the reply was lost: not known whether it was created", pending)
    others = (*list_tags(store), *list_branches(store))
    if not (is_kept(store, snapshot) or any(other.hash == snapshot.hash for other in others)):
        store.delete(pending)
        raise VersionNotFound(f"{store.location}: snapshot {snapshot.id} has expired")
    result, is_certain = _created(store, path, data)
    if is_certain:  # else a try may take effect later: the removal of orphan files waits for it
        with contextlib.suppress(OSError):
            store.delete(pending)
    if result is not CreateResult.CREATED:
        raise InvalidArgumentError(f"{store.location}: {what} exists already; delete it first")


def _created(store: AtomicStore, path: str, data: bytes) -> tuple[CreateResult, bool]:
    """Create an object, again while there is no reply; the result, and if no try is left open."""
    options = CommitOptions()
    result = store.create_if_absent(path, data)
    is_certain = result is not CreateResult.UNKNOWN
    for tried in range(options.unknown_tries):
        if result is not CreateResult.UNKNOWN:
            break
        time.sleep(options.backoff_s_min * 2**tried)
        result = store.create_if_absent(path, data)
    if result is CreateResult.EXISTS and store.read(path) == data:
        result = CreateResult.CREATED  # by a try whose reply was lost
    return result, is_certain


def _load(
    store: AtomicStore, path: str, target: type[_Reference], *formats: str
) -> _Reference | None:
    try:
        return read_decoded(store, path, lambda data: _decoded(data, path, target, *formats))
    except FileNotFoundError:
        return None


def _decoded(data: bytes, path: str, target: type[_Reference], *formats: str) -> _Reference:
    """A tag or branch from its stored bytes, its copy of the snapshot checked."""
    reference = json_codec.decode(data, target, path)
    if reference.format not in formats:
        expected = " or ".join(map(repr, formats))
        raise CorruptMetadata(path, f"format {expected}", repr(reference.format))
    if reference.format_version > FORMAT_VERSION:
        raise UnsupportedFeature(
            f"{path}: format version {reference.format_version}; this reader knows up to "
            f"{FORMAT_VERSION}"
        )
    found = json_codec.content_hash(bytes(reference.snapshot))
    if found != reference.hash:
        raise CorruptMetadata(path, f"a snapshot of hash {reference.hash}", f"hash {found}")
    return reference


def _delete_branch(store: AtomicStore, name: str) -> None:
    """Delete the files of a branch, in an order that may stop anywhere.

    What has expired goes first, as it must not become the newest. The markers that say so go last,
    when there is no branch any more, as they name the first of the others.
    """
    kept = min(pointers.first_kept(store, name), SNAPSHOT_ID_MAX)
    paths = sorted((item.path for item in store.list(snapshot_directory(name))), reverse=True)
    expired = [path for path in paths if path < snapshot_path(kept, name)]
    marks = [item.path for item in store.list(expired_directory(name))]
    others = paths[: len(paths) - len(expired)]
    for path in (*reversed(expired), *others[:-1], branch_path(name), *others[-1:], *marks):
        store.delete(path)


def _file_names(store: AtomicStore, directory: str) -> Iterator[str]:
    for path in sorted(item.path for item in store.list(directory)):
        if not is_temporary(path):
            yield path.rsplit("/", 1)[-1]


def _check_branch(name: str) -> str:
    if name == MAIN:
        raise InvalidArgumentError("branch 'main' can't be deleted")
    return check_name(name, "branch")
