"""Metadata objects: JSON by msgspec, zstd where it is long, BLAKE2b, checked when read and stored.

Unknown keys are ignored by `decode`. `decode_keeping` collects them in the field `unknown` of
each struct that has one, and `encode` puts them back at their level, so an object that is
written again loses nothing that a newer version added.

Bytes that are not what was stored are read once more, as a storage or the network may have sent
them wrong; what is still wrong is damaged. An object that the reader's own code does not decode is
not stored.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import zstandard

from fermion.errors import FermionError
from fermion.exports import dataclass
from fermion.forks import Lock
from fermion_table.errors import CorruptMetadata, UnreadableMetadata
from fermion_table.storage.store import METADATA_BYTES_MAX, AtomicStore, in_time

COMPRESS_ABOVE_BYTES = 64 * 1024
COMPRESS_MANIFESTS_ABOVE_BYTES = 2 * 1024
"""Their entries are much alike."""
DECODED_BYTES_MAX = 1 << 30
EXPANSION_MAX = 256
"""Bytes of JSON for each stored byte of an object; what is more alike is not compressed."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A count, size, offset, id or time: what is out of range is refused when it is read."""
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number of 64 bits, with a sign."""
Plain = bool | int | float | str | None
"""A value of a type that JSON has."""
HASH_BYTES = 32
UNKNOWN_KEYS = ""
"""Encoded name of the field that holds unknown keys; never a key in a file."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 3

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making = Lock()

T = TypeVar("T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def content_hash(data: bytes) -> str:
    """BLAKE2b-256 of an object's stored bytes, as 64 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()


def encode(value: Any) -> bytes:
    """A struct as JSON, with its unknown keys back at their level."""
    encoded = msgspec.json.encode(value)
    if b'"":{' not in encoded:
        return encoded
    return msgspec.json.encode(_hoisted(msgspec.json.decode(encoded)))


def decode(data: bytes, target: type[T], path: str) -> T:
    """A struct from stored bytes, compressed or not; unknown keys are ignored.

    Raises CorruptMetadata: Not JSON of that shape; `path` names the object.
    """
    try:
        kind: Any = target
        decoded: T = decoder(kind).decode(decompressed(data, path))
        return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMetadata(path, f"JSON of a {target.__name__}", str(error)) from error


def decoder(target: Any) -> msgspec.json.Decoder[Any]:
    """Made once for each type: that takes longer than decoding a small object.

    One at a time: msgspec 0.22 describes a struct at its first use, and ends the process where
    another thread uses the struct meanwhile.
    """
    found = _decoders.get(target)
    if found is None:
        with _making.get():
            found = _decoders.get(target) or msgspec.json.Decoder(target)
            _decoders[target] = found
    return found


def decode_keeping(data: bytes, target: type[_Struct], path: str) -> _Struct:
    """As `decode`, with unknown keys kept; slower, for objects that are written again."""
    plain = decompressed(data, path)
    decoded = decode(plain, target, path)
    if b'"":' not in plain and msgspec.json.encode(decoded) == plain:
        return decoded  # as this version writes it: no key is lost
    try:
        raw = msgspec.json.decode(plain)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # in unknown keys
        raise CorruptMetadata(path, f"JSON of a {target.__name__}", str(error)) from error
    if not _has_unknown(raw, target):
        return decoded
    return msgspec.convert(_sunk(raw, target), type=target, str_keys=True)


def stored(encoded: bytes, above_bytes: int = COMPRESS_ABOVE_BYTES) -> tuple[bytes, bool]:
    """The bytes to store and whether they are compressed: above a size, but within the limit."""
    if len(encoded) <= above_bytes:
        return encoded, False
    frame = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(encoded)
    if len(encoded) > EXPANSION_MAX * len(frame):
        return encoded, False
    return frame, True


def decompressed(data: bytes, path: str) -> bytes:
    """The JSON text of stored bytes.

    Raises CorruptMetadata: Broken zstd data, or a frame that would decompress to more than 1 GiB,
        or to more than 256 times its size.
    """
    if not data.startswith(_ZSTD_MAGIC):
        return data
    try:
        length = zstandard.frame_content_size(data)
        allowed = min(DECODED_BYTES_MAX, EXPANSION_MAX * len(data))
        if not 0 <= length <= allowed:
            raise CorruptMetadata(
                path, f"at most {allowed} bytes of JSON", f"{length} (-1: not said)"
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


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where unknown keys can be kept within a struct's JSON.

    nested: The struct that each key holds, or holds a list of, if it can keep unknown keys too.
    """

    known: frozenset[str]
    nested: tuple[tuple[str, type[msgspec.Struct]], ...]


def _has_unknown(value: Any, struct: type[msgspec.Struct]) -> bool:
    """Whether a value, or anything in it, has keys to keep."""
    if isinstance(value, list):
        return any(_has_unknown(item, struct) for item in value)
    if not isinstance(value, dict):
        return False
    shape = _shape_of(struct)
    if not value.keys() <= shape.known:
        return True
    return any(key in value and _has_unknown(value[key], inner) for key, inner in shape.nested)


def _sunk(value: Any, struct: type[msgspec.Struct]) -> Any:
    """Builtins with the unknown keys of each struct moved into its ``""`` object."""
    if isinstance(value, list):
        return [_sunk(item, struct) for item in value]
    if not isinstance(value, dict):
        return value
    shape = _shape_of(struct)
    known = {key: item for key, item in value.items() if key in shape.known}
    unknown = {key: item for key, item in value.items() if key and key not in shape.known}
    known |= {key: _sunk(known[key], inner) for key, inner in shape.nested if key in known}
    return {**known, UNKNOWN_KEYS: unknown}


@functools.cache
def _shape_of(struct: type[msgspec.Struct]) -> _Shape:
    names = struct.__struct_encode_fields__
    nested = ((name, _struct_in(hint)) for name, hint in _encoded_hints(struct).items())
    kept = ((name, inner) for name, inner in nested if inner is not None and _may_keep(inner))
    return _Shape(frozenset(names) - {UNKNOWN_KEYS}, tuple(kept))


def _encoded_hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct)
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {encoded: hints[name] for name, encoded in names}


def _may_keep(struct: type[msgspec.Struct]) -> bool:
    """Whether a struct keeps unknown keys, or holds structs that might."""
    if UNKNOWN_KEYS in struct.__struct_encode_fields__:
        return True
    return any(_struct_in(hint) is not None for hint in _encoded_hints(struct).values())


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    """The struct of a hint: itself, in a union, or in a list or tuple."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return None if hint.__struct_config__.array_like else hint
    if isinstance(hint, UnionType) or get_origin(hint) in (list, tuple):
        found = (_struct_in(argument) for argument in get_args(hint))
        return next((struct for struct in found if struct is not None), None)
    return None


def read_decoded(store: AtomicStore, path: str, decode: Callable[[bytes], T]) -> T:
    """What is decoded of an object, which is read again where it is corrupt.

    Raises CorruptMetadata: It is corrupt at the second time, too.
    Raises FileNotFoundError, OSError: As `AtomicStore.read`.
    """
    with in_time(store):
        try:
            return decode(store.read(path))
        except CorruptMetadata:
            return decode(store.read(path))


def read_hashed(store: AtomicStore, path: str, hash: str, stop: int = METADATA_BYTES_MAX) -> bytes:
    """The bytes of an object, which is read again where they have not the hash expected.

    The caller checks the hash: in a slot another snapshot may be right.

    Raises FileNotFoundError, OSError: As `AtomicStore.read`.
    """
    with in_time(store):
        data = store.read(path, stop)
        return data if content_hash(data) == hash else store.read(path, stop)


def encode_checked(
    encode: Callable[[], bytes], path: str, decode: Callable[[bytes, str], T]
) -> tuple[bytes, T]:
    """The bytes of an object that is about to be stored, and what the reader makes of them.

    decode: The reader's function; it is given the bytes and the path.
    Raises UnreadableMetadata: It can't be encoded, or the reader refuses the bytes.
    """
    try:
        data = encode()
    except (FermionError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnreadableMetadata(f"{path}: not stored, as it has no JSON: {error}") from error
    return data, check_readable(data, path, decode)


def check_readable(data: bytes, path: str, decode: Callable[[bytes, str], T]) -> T:
    """What the reader makes of bytes that are about to be stored; parameters as above.

    Raises UnreadableMetadata: The reader refuses them.
    """
    try:
        if len(data) > METADATA_BYTES_MAX:
            raise CorruptMetadata(path, f"at most {METADATA_BYTES_MAX} bytes", f"{len(data)}")
        return decode(data, path)
    except (FermionError, UnicodeError, RecursionError) as error:
        raise UnreadableMetadata(
            f"{path}: not stored, as this version could not read it again: {error}"
        ) from error
