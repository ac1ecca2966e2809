"""Files that a writer has begun and no snapshot names yet: deleted when it gives up or is lost."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Container

from fermion_table.storage.store import AtomicStore, is_done_when_interrupted


class PendingFiles:
    """Paths of files of one owner.

    They are deleted when the owner is garbage-collected, and (of a local table) when the process
    ends, until `release` says that a commit decides on them.

    Parameters
    ----------
    store
        Of the table.
    owner
        The writer, or the transaction.
    """

    def __init__(self, store: AtomicStore, owner: object) -> None:
        self.paths: set[str] = set()
        self._store = store
        self._forgotten = weakref.finalize(owner, _delete_own, store, self.paths, os.getpid())
        self._forgotten.atexit = is_done_when_interrupted(store)

    def release(self) -> None:
        """Leave the files alone when the owner is forgotten: something may refer to them."""
        self._forgotten.detach()

    def delete(self, keep: Container[str] = ()) -> None:
        """Delete the files, but for some; what can't be deleted is left as an orphan."""
        self.release()
        for path in [path for path in self.paths if path not in keep]:
            with contextlib.suppress(OSError):
                self._store.delete(path)
        self.paths.clear()


def _delete_own(store: AtomicStore, paths: set[str], process_id: int) -> None:
    """Delete files, unless this process is a fork of the one that wrote them."""
    if os.getpid() == process_id:
        for path in paths:
            with contextlib.suppress(Exception):  # at the end of a process anything may be gone
                store.delete(path)
