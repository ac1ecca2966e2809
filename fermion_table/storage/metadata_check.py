"""The check of every metadata object before it is stored: the reader's own code decodes its bytes.

Whatever went wrong before, an object that this version would refuse to read is not created.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fermion.errors import FermionError
from fermion_table.errors import CorruptMetadata, UnreadableMetadata
from fermion_table.storage.store import METADATA_BYTES_MAX

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
