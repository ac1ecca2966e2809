"""Metadata objects whose bytes are not what was stored: read once more, as files are.

A storage or the network may have sent them wrong. What is still wrong is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fermion_table.errors import CorruptMetadata
from fermion_table.storage.json_codec import content_hash
from fermion_table.storage.store import METADATA_BYTES_MAX, AtomicStore, in_time

T = TypeVar("T")


def read_decoded(store: AtomicStore, path: str, decode: Callable[[bytes], T]) -> T:
    """What is decoded of an object, which is read again where it is corrupt.

    Raises
    ------
    CorruptMetadata
        It is corrupt at the second time, too.
    FileNotFoundError, OSError
        As `AtomicStore.read`.
    """
    with in_time(store):
        try:
            return decode(store.read(path))
        except CorruptMetadata:
            return decode(store.read(path))


def read_hashed(store: AtomicStore, path: str, hash: str, stop: int = METADATA_BYTES_MAX) -> bytes:
    """The bytes of an object, which is read again where they have not the hash expected.

    The caller checks the hash: in a slot another snapshot may be right.

    Raises
    ------
    FileNotFoundError, OSError
        As `AtomicStore.read`.
    """
    with in_time(store):
        data = store.read(path, stop)
        return data if content_hash(data) == hash else store.read(path, stop)
