"""What simulated processes must not share, as real ones would not."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import local
from typing import Any
from unittest import mock
from weakref import WeakValueDictionary

from fermion_table.commit import next_snapshot
from fermion_table.storage import owned_files
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.owned_files import OwnedFiles
from tests.kit.stores import delete_unless_dead


class _Owners(local):
    """The owners of files that a process knows, which is a thread here."""

    def __init__(self) -> None:
        self.known: WeakValueDictionary[str, OwnedFiles] = WeakValueDictionary()

    def get(self, path: str) -> OwnedFiles | None:
        return self.known.get(path)

    def pop(self, path: str, default: None) -> OwnedFiles | None:
        return self.known.pop(path, default)

    def __setitem__(self, path: str, owner: OwnedFiles) -> None:
        self.known[path] = owner


@contextmanager
def separate_processes() -> Iterator[None]:
    """No cache or lock is shared, since the processes would not share one; tails are short.

    Garbage is collected afterwards: lost files are deleted then, and when it is due depends on
    everything else that this process did.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    with (
        mock.patch.object(shared_cache, "size_max", -1),
        mock.patch.object(cached_property, "__get__", _get_without_lock),
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 3),
        mock.patch.object(owned_files, "_delete_own", delete_unless_dead),
        mock.patch.object(owned_files, "_owners", _Owners()),
    ):
        shared_cache.clear()
        try:
            yield
        finally:
            if is_collecting:
                gc.enable()


def _get_without_lock(wanted: Any, instance: Any, owner: Any = None) -> Any:
    """What `cached_property` does from Python 3.12 on; before, its instances share a lock."""
    if instance is None:
        return wanted
    if wanted.attrname not in instance.__dict__:
        instance.__dict__[wanted.attrname] = wanted.func(instance)
    return instance.__dict__[wanted.attrname]
