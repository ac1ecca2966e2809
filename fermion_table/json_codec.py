"""JSON as the table layer spells it: msgspec, zstd above 64 KB, BLAKE2b.

Unknown keys are ignored by `decode`. `decode_keeping` collects them in the field `unknown` of
each struct that has one, and `encode` puts them back at their level, so an object that is
written again loses nothing that a newer version added.
"""

from __future__ import annotations

import hashlib
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import zstandard

from fermion_table.errors import CorruptMetadata

COMPRESS_ABOVE_BYTES = 64 * 1024
DECODED_BYTES_MAX = 1 << 30
HASH_BYTES = 32
UNKNOWN_KEYS = ""
"""Encoded name of the field that holds unknown keys; never a key in a file."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 3
_LIST_ORIGINS = (list, tuple)

_Decoded = TypeVar("_Decoded")


def content_hash(data: bytes) -> str:
    """BLAKE2b-256 of an object's stored bytes, as 64 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()


def encode(value: Any) -> bytes:
    """A struct as JSON, with its unknown keys back at their level."""
    encoded = msgspec.json.encode(value)
    if b'"":{' not in encoded:
        return encoded
    return msgspec.json.encode(_hoisted(msgspec.json.decode(encoded)))


def decode(data: bytes, target: type[_Decoded], path: str) -> _Decoded:
    """A struct from stored bytes, compressed or not; unknown keys are ignored.

    Raises
    ------
    CorruptMetadata
        Not JSON of that shape; `path` names the object.
    """
    try:
        return msgspec.json.decode(decompressed(data, path), type=target)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMetadata(path, f"JSON of a {target.__name__}", str(error)) from error


def decode_keeping(data: bytes, target: type[_Decoded], path: str) -> _Decoded:
    """As `decode`, with unknown keys kept; slower, for objects that are written again."""
    plain = decompressed(data, path)
    try:
        raw = msgspec.json.decode(plain)
        return msgspec.convert(_sunk(raw, target), type=target, str_keys=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMetadata(path, f"JSON of a {target.__name__}", str(error)) from error


def stored(encoded: bytes) -> tuple[bytes, bool]:
    """The bytes to store and whether they are compressed (above 64 KB they are)."""
    if len(encoded) <= COMPRESS_ABOVE_BYTES:
        return encoded, False
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(encoded), True


def decompressed(data: bytes, path: str) -> bytes:
    """The JSON text of stored bytes.

    Raises
    ------
    CorruptMetadata
        Broken zstd data, or a frame that would decompress to more than 1 GiB.
    """
    if not data.startswith(_ZSTD_MAGIC):
        return data
    try:
        length = zstandard.frame_content_size(data)
        if not 0 <= length <= DECODED_BYTES_MAX:
            raise CorruptMetadata(
                path, f"at most {DECODED_BYTES_MAX} bytes of JSON", f"{length} (-1: not said)"
            )
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    except zstandard.ZstdError as error:
        raise CorruptMetadata(path, "a zstd frame", str(error)) from error


def _hoisted(value: Any) -> Any:
    """Builtins with every ``""`` object's keys moved into the object that holds it."""
    if isinstance(value, list):
        return [_hoisted(item) for item in value]
    if not isinstance(value, dict):
        return value
    known = {key: _hoisted(item) for key, item in value.items() if key != UNKNOWN_KEYS}
    unknown = value.get(UNKNOWN_KEYS)
    return {**unknown, **known} if isinstance(unknown, dict) else known


def _sunk(value: Any, target: Any) -> Any:
    """Builtins with the unknown keys of each struct moved into its ``""`` object."""
    struct = _struct_of(target)
    if struct is not None and isinstance(value, dict):
        hints = _encoded_hints(struct)
        known = {key: _sunk(value[key], hint) for key, hint in hints.items() if key in value}
        unknown = {key: item for key, item in value.items() if key not in hints and key}
        return {**known, UNKNOWN_KEYS: unknown} if unknown and UNKNOWN_KEYS in hints else known
    item_type = _item_of(target)
    if item_type is not None and isinstance(value, list):
        return [_sunk(item, item_type) for item in value]
    return value


def _struct_of(target: Any) -> type[msgspec.Struct] | None:
    choices = get_args(target) if isinstance(target, UnionType) else (target,)
    for choice in choices:
        if isinstance(choice, type) and issubclass(choice, msgspec.Struct):
            return choice
    return None


def _item_of(target: Any) -> Any:
    arguments = get_args(target)
    return arguments[0] if get_origin(target) in _LIST_ORIGINS and arguments else None


def _encoded_hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    cached = _HINTS.get(struct)
    if cached is None:
        hints = get_type_hints(struct)
        names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        cached = _HINTS[struct] = {encoded: hints[name] for name, encoded in names}
    return cached


_HINTS: dict[type[msgspec.Struct], dict[str, Any]] = {}
