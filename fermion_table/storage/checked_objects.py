"""Metadata objects, checked when they are read and before they are stored.

Bytes that are not what was stored are read once more, as a storage or the network may have sent
them wrong; what is still wrong is damaged. An object that the reader's own code does not decode is
not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fermion.errors import FermionError
from fermion_table.errors import CorruptMetadata, UnreadableMetadata
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


_Decoded = TypeVar("_Decoded")


def encode_checked(
    encode: Callable[[], bytes], path: str, decode: Callable[[bytes, str], _Decoded]
) -> tuple[bytes, _Decoded]:
    """The bytes of an object that is about to be stored, and what the reader makes of them.

    Parameters
    ----------
    encode
        Makes the bytes.
    path
        Where they are to be stored.
    decode
        The reader's function; it is given the bytes and the path.

    Raises
    ------
    UnreadableMetadata
        It can't be encoded, or the reader refuses the bytes.
    """
    try:
        data = encode()
    except (FermionError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnreadableMetadata(f"{path}: not stored, as it has no JSON: {error}") from error
    return data, check_readable(data, path, decode)


def check_readable(data: bytes, path: str, decode: Callable[[bytes, str], _Decoded]) -> _Decoded:
    """What the reader makes of bytes that are about to be stored; parameters as above.

    Raises
    ------
    UnreadableMetadata
        The reader refuses them.
    """
    try:
        if len(data) > METADATA_BYTES_MAX:
            raise CorruptMetadata(path, f"at most {METADATA_BYTES_MAX} bytes", f"{len(data)}")
        return decode(data, path)
    except (FermionError, UnicodeError, RecursionError) as error:
        raise UnreadableMetadata(
            f"{path}: not stored, as this version could not read it again: {error}"
        ) from error
