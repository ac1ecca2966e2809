"""Files that were written and that no snapshot names yet: whose they are, and are they still there.

Every such file has one owner, a writer or an operation, which notes it before it is made. The owner
deletes its files when it gives up or is lost; a commit takes away those that it has published. All
owners of a process are known by their files, so that whoever commits files or removes orphan files
can ask for them.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NoReturn, Protocol, Self

from fermion.exports import dataclass
from fermion.forks import process
from fermion_table.storage.local import LocalStore
from fermion_table.storage.store import AtomicStore, is_done_when_interrupted

FRESH_S = 600.0
"""A file that this process has made is not looked for before it is published, so soon after: who
removes orphan files leaves much younger ones alone."""
REQUESTS_AT_ONCE = 16

_owners: weakref.WeakValueDictionary[str, OwnedFiles] = weakref.WeakValueDictionary()
"""The owners of this process, by the files that they have or have deleted: names are unique."""


class OpenWriter(Protocol):
    """Writes a file."""

    def abort(self) -> None:
        """Give up, and leave no file."""


@dataclass(slots=True)
class _File:
    """A file.

    seen_at: When it was last known to be there, by ``time.monotonic``.
    is_held: Whether a snapshot may name it, so that its owner must not delete it.
    is_taken: Whether others have made it, who may commit it: it stays where its owner is lost.
    """

    seen_at: float
    writer: OpenWriter | None = None
    is_held: bool = False
    is_taken: bool = False


class OwnedFiles:
    """The unpublished files of one owner, by their paths.

    They are deleted when the owner gives up, leaves the ``with`` block, or is garbage-collected,
    and (of a local table) when the process ends; after `release` only when the owner gives up.
    Those that a commit has published, or may have published, are not. A forked process deletes
    none.

    Parameters
    ----------
    store
        Of the table.
    within
        Those of a larger operation, which has these files too, and deletes them if it gives up.
    """

    def __init__(self, store: AtomicStore, within: OwnedFiles | None = None) -> None:
        self.store = store
        self._within = within
        self._files: dict[str, _File] = {}
        self._process = process()
        self._is_released = False
        self._lost = weakref.finalize(self, _delete_own, store, self._files, self._process)
        self._lost.atexit = is_done_when_interrupted(store)

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would own, and delete, the same files."""
        raise TypeError("unpublished files have one owner, which can't be pickled or copied")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._is_released:
            self.delete()

    @property
    def paths(self) -> frozenset[str]:
        """The files that no snapshot names, and that are not deleted."""
        return frozenset(path for path, file in self._files.items() if not file.is_held)

    def add(self, path: str, writer: OpenWriter | None = None) -> None:
        """Note a file, before it is made: an interrupt must not lose it.

        Called again when there is a writer, and when that is done.

        Parameters
        ----------
        writer
            What writes the file, to be aborted if the files are deleted; None: nothing.
        """
        self._files[path] = _File(time.monotonic(), writer)
        if self._within is None:
            _owners[path] = self
        else:
            self._within.add(path)

    def take(self, paths: Iterable[str]) -> None:
        """Own files that others have made, in this process or another one, from here on.

        They stay where they are when the owner is lost, as whoever has made them may have committed
        them. What their owner has deleted stays deleted.
        """
        for path in paths:
            seen_at, owner = -float("inf"), _owners.get(path)
            if owner is self:
                continue
            if owner is not None and owner._is_here(self.store):
                file = owner._files.get(path)
                if file is None or file.is_held:
                    continue
                del owner._files[path]
                seen_at = file.seen_at
            self._files[path] = _File(seen_at, is_taken=True)
            _owners[path] = self

    def release(self, message: object = None) -> None:
        """Leave the files where they are when the owner is lost: somebody else may commit them.

        Parameters
        ----------
        message
            What names them: as long as it is there, they are known to be in use.
        """
        self._is_released = True
        self._lost.detach()
        if message is not None:
            weakref.finalize(message, _drop, self).atexit = False

    def delete(self, keep: Container[str] = ()) -> None:
        """Delete the files, but for some, which nobody owns then.

        What can't be deleted is left as an orphan file. A forked process deletes nothing.
        """
        leave(path for path, file in list(self._files.items()) if file.is_held or path in keep)
        if self._process is process():
            for path, file in list(self._files.items()):
                _delete(self.store, path, file)
                self._remove(path)

    def _remove(self, path: str) -> None:
        """Forget a file that was deleted; whoever asks for it learns so."""
        self._files.pop(path, None)
        if self._within is not None:
            self._within._remove(path)

    def _is_here(self, store: AtomicStore) -> bool:
        """Whether this process has made the files, at the location of a store."""
        return self._process is process() and self.store.location == store.location


def hold(paths: Iterable[str], is_held: bool = True) -> None:
    """Keep the owners of files from deleting them, while a snapshot may name them; or do not."""
    for path in paths:
        owner = _owners.get(path)
        file = None if owner is None else owner._files.get(path)
        if file is not None:
            file.is_held = is_held


def leave(paths: Iterable[str]) -> None:
    """Let nobody own files any more: a snapshot names them."""
    for path in paths:
        owner = _owners.pop(path, None)
        if owner is not None:
            owner._files.pop(path, None)


def owned(paths: Iterable[str]) -> set[str]:
    """Those of some files that somebody in this process owns, and has not deleted."""
    found = ((path, _owners.get(path)) for path in paths)
    return {path for path, owner in found if owner is not None and path in owner._files}


def deleted(store: AtomicStore, paths: Iterable[str]) -> list[str]:
    """Those of some files that their owner in this process has deleted."""
    found = ((path, _owners.get(path)) for path in paths)
    return [
        path
        for path, owner in found
        if owner is not None and owner._is_here(store) and path not in owner._files
    ]


def unsure(store: AtomicStore, paths: Iterable[str]) -> list[str]:
    """Those of some files that may be gone: all but what this process has made a moment ago.

    On a local disk all may be, as it costs nothing to look for them.
    """
    is_local = isinstance(store, LocalStore)
    since = time.monotonic() - FRESH_S

    def is_fresh(path: str) -> bool:
        owner = _owners.get(path)
        if is_local or owner is None or not owner._is_here(store):
            return False
        file = owner._files.get(path)
        return file is not None and file.seen_at > since

    return [path for path in paths if not is_fresh(path)]


def sizes(
    store: AtomicStore, paths: Sequence[str], size_of: Callable[[str], int] | None = None
) -> dict[str, int | None]:
    """The sizes of some files, None of those that are not stored: a request for each.

    size_of: Asks for one, as `AtomicStore.size` does, which is the default.
    """

    def size(path: str) -> int | None:
        try:
            return (size_of or store.size)(path)
        except FileNotFoundError:
            return None

    if isinstance(store, LocalStore) or len(paths) < 2:
        return {path: size(path) for path in paths}
    from concurrent.futures import ThreadPoolExecutor  # none reads a table here

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return dict(zip(paths, pool.map(size, paths), strict=True))


def _delete(store: AtomicStore, path: str, file: _File) -> None:
    if file.writer is not None:
        with contextlib.suppress(OSError):
            file.writer.abort()
    with contextlib.suppress(OSError):  # an orphan then
        store.delete(path)


def _delete_own(store: AtomicStore, files: dict[str, Any], made_in: object) -> None:
    """Delete the files of an owner that is lost, unless this process is a fork of its own."""
    if made_in is process():
        for path, file in list(files.items()):
            if not (file.is_held or file.is_taken):
                with contextlib.suppress(Exception):  # at the end of a process anything may be gone
                    _delete(store, path, file)


def _drop(owner: OwnedFiles) -> None:
    """Nothing: a message has held its files until now."""
