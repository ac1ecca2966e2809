"""Methods of `Table` that compare its versions and move between them."""

from __future__ import annotations

from fermion.arguments import integer
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_optional_text
from fermion_table.commit import restore as restoring
from fermion_table.commit.identities import committed_before
from fermion_table.commit.request import CommitMetadata
from fermion_table.inspection.table_difference import TableDiff, table_difference
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import Version, check_version, is_relative
from fermion_table.table.state import HasState


def find_commit(self: HasState, commit_user: str, commit_identifier: int | str) -> Snapshot | None:
    """The snapshot of a commit identity, None if there is none.

    It searches the history of the snapshot that this object sees, as far as that has not
    expired, with at most one request for each snapshot, 32 at once. A process remembers what
    it has read.

    Parameters
    ----------
    commit_user, commit_identifier
        As they were, or will be, given to a commit.

    Raises
    ------
    TypeError, InvalidArgumentError
        Not a user and an identifier.
    CommitConflict
        There was such a commit, whose snapshot has expired since.
    CorruptMetadata
        A snapshot of the history can't be read.
    """
    metadata = CommitMetadata(commit_user=commit_user, commit_identifier=commit_identifier)
    if metadata.identity is None:
        raise InvalidArgumentError("commit_user and commit_identifier: expected both, not None")
    state = self._state
    return committed_before(state.store, state.snapshot, metadata.identity, branch=state.branch)


def restore(self: HasState, version: Version, *, message: str | None = None) -> Snapshot:
    """Go back to an earlier version: its rows, schema and settings, as a new snapshot.

    Nothing is forgotten, and no data file is written. What others have committed since goes, too;
    to take back one commit use `undo`.

    Parameters
    ----------
    version
        A version. A name that is relative to the latest snapshot, such as ``"main~1"``, is refused
        where that is not the one that this object sees.
    message
        For the history.

    Returns
    -------
    Snapshot
        The new one, or the latest if it has that state already.

    Raises
    ------
    InvalidArgumentError
        The version has a schema of another branch; or this object was opened at a version.
    CommitConflict
        Others have committed since, and the version is relative; says what they did.
    MissingDataFile
        Files that would come back are not stored any more.
    VersionNotFound, CommitStateUnknown
    """
    state = self._state
    state.check_writable()
    message = check_optional_text(message, "message")
    version = check_version(version, "version")
    target, _ = state.find(version, "version")
    restored = restoring.restore(
        state.publisher,
        state.snapshot,
        target,
        message=message,
        refuses_newer=is_relative(state.store, version),
    )
    return state.move_to(restored)


def undo(self: HasState, commit: int | None = None, *, message: str | None = None) -> Snapshot:
    """Take back one commit, as a new snapshot; no other commit is lost.

    Rows, schema and properties are as they were before it, and no data file is written. An undo is
    a commit, too: undoing it brings back what it took.

    Parameters
    ----------
    commit
        The id of a snapshot: what its commit did is taken back, and what came after it stays. None:
        the newest commit that was made through this object, if nobody has committed since
        (compactions do not count).
    message
        For the history.

    Returns
    -------
    Snapshot
        The new one, or the latest if the commit had changed nothing.

    Raises
    ------
    CommitConflict
        Others have committed since; or later commits rest on this one: they changed the same files,
        or it changed the schema or properties. Nothing was changed.
    InvalidArgumentError
        This object has made no commit; or the commit made the table.
    TypeError, VersionNotFound, CommitStateUnknown
    """
    state = self._state
    state.check_writable()
    message = check_optional_text(message, "message")
    undone = state.committed if commit is None else integer(commit, "commit", minimum=0)
    if undone is None:
        raise InvalidArgumentError(
            f"{state.location}: undo: no commit was made through this object. The snapshot that it "
            f"sees is {state.snapshot!r}; undo(commit={state.snapshot.id}) takes it back"
        )
    return state.move_to(restoring.undo(state.publisher, state.snapshot, undone, message=message))


def diff(self: HasState, before: Version, after: Version | None = None) -> TableDiff:
    """Compare two versions: files, numbers, schema, and rows on request.

    Parameters
    ----------
    before
        A version.
    after
        Another; None: the snapshot that this object sees.
    """
    state = self._state
    old, _ = state.find(check_version(before, "before"), "before")
    new, _ = state.find(after, "after")
    return table_difference(state.store, old, new)
