"""The schema area: field shapes, found by column ordinal without parsing a whole schema.

A *shape* is a field without its name: Arrow type, nullability and metadata, as an Arrow IPC
schema message of one nameless field. Wide tables share a few shapes among thousands of columns.

====== ==================== ===================================================================
offset type                 meaning
====== ==================== ===================================================================
0      SCHEMA_HEADER
32     bytes                schema metadata as an IPC schema message without fields, with the
                            setting SCHEMA_ZSTD in zstd where it is smaller; padded to 8
...    u8|u16|u32[columns]  shape of each column, or SHAPE_RUN[runs], or nothing (one shape);
                            padded to 8
...    SHAPE_BLOCK[blocks]  blocks of up to 64 shapes; offsets count from the start of the area
...    blocks               zstd where it is smaller: u32[shapes + 1] end offsets, then messages
====== ==================== ===================================================================

A top-level field's id (metadata key ``PARQUET:field_id``, as Parquet readers know it) is taken out
of its shape and kept in the field id section, or every column would have a shape of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
import zstandard

from fermion.bounded_cache import BoundedCache
from fermion.columns.types import know_variant
from fermion.errors import InvalidFileError, UnsupportedTypeError
from fermion.exports import dataclass
from fermion.forks import cached_property
from fermion.io.compression import decompress
from fermion.layout import (
    FIELD_ID_NONE,
    SCHEMA_HEADER,
    SHAPE_BLOCK,
    SHAPE_RUN,
    SHAPES_PER_BLOCK,
    ShapeIds,
    align,
    padded,
)

FIELD_ID_KEY = b"PARQUET:field_id"
# A block may decompress to 16 MiB, or to this many times its size: more is taken for an attack.
EXPANSION_MAX = 256
EXPANSION_FREE_BYTES = 16 * 2**20
_BLOCK_BYTES_MAX = 0xFFFF_FFFF
_KINDS = frozenset(map(int, ShapeIds))

_HEADER = struct.Struct("<IIIIIIII")
_BLOCK = struct.Struct("<IIII")
assert _HEADER.size == SCHEMA_HEADER.itemsize
assert _BLOCK.size == SHAPE_BLOCK.itemsize

View = Callable[[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class Shapes:
    """The columns of a schema by shape: columns of one shape differ in name and field id alone.

    ids: ``uint32``, shape (columns,): the shape of each column.
    columns: The first column of each shape.
    field_ids: Of all columns, `FIELD_ID_NONE` where a column has none; None where no column has
        one.
    """

    ids: np.ndarray
    columns: tuple[pa.Field, ...]
    field_ids: np.ndarray | None


SCHEMAS_KNOWN_MAX = 8
_known = BoundedCache(SCHEMAS_KNOWN_MAX)
"""By identity of the schema, which is kept alive here: a table writes many files of one schema."""


def shapes_of(schema: pa.Schema) -> Shapes:
    """The shapes of a schema's columns, in the order in which they come first."""
    known: tuple[pa.Schema, Shapes] | None = _known.get(id(schema))
    if known is None:
        known = schema, _shapes_of(schema)
        _known.put(id(schema), known)
    return known[1]


def _shapes_of(schema: pa.Schema) -> Shapes:
    shapes: dict[object, int] = {}
    columns: list[pa.Field] = []
    ids: list[int] = []
    field_ids: list[int] = []
    for field in schema:
        metadata = field.metadata
        own = _field_id(metadata)
        field_ids.append(FIELD_ID_NONE if own is None else own)
        key = _shape_key(field, metadata, own)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = len(columns)
            columns.append(field)
        ids.append(shape)
    numbers = np.array(field_ids, "<u4")
    known = numbers if (numbers != FIELD_ID_NONE).any() else None
    return Shapes(np.array(ids, np.uint32), tuple(columns), known)


def build_schema_area(schema: pa.Schema, *, compress_metadata: bool = False) -> bytes:
    """The schema area of a file: everything about its columns but names and field ids.

    compress_metadata: Whether the file has the setting SCHEMA_ZSTD.
    Raises UnsupportedTypeError.
    """
    shapes = shapes_of(schema)
    messages = [
        _shape_message(strip_field_id(field).with_name(""), field.name) for field in shapes.columns
    ]
    metadata = b""
    if schema.metadata is not None:
        metadata = pa.schema([], metadata=schema.metadata).serialize().to_pybytes()
    kind, runs, stored_ids = _encode_ids(shapes.ids, len(messages))
    blocks = [
        _encode_block(messages[start : start + SHAPES_PER_BLOCK])
        for start in range(0, len(messages), SHAPES_PER_BLOCK)
    ]
    raw_length = 0
    if compress_metadata:
        metadata, raw_length = _compressed(metadata)
    header = _HEADER.pack(
        len(schema), len(messages), len(metadata), kind, runs, len(blocks), raw_length, 0
    )
    head = padded(header + metadata) + padded(stored_ids)
    offset = len(head) + _BLOCK.size * len(blocks)
    directory, stored = b"", b""
    for data, raw_length in blocks:
        directory += _BLOCK.pack(offset + len(stored), len(data), raw_length, 0)
        stored += data
    return head + directory + stored


def _shape_message(field: pa.Field, name: str) -> bytes:
    schema = pa.schema([field])
    try:
        message = schema.serialize().to_pybytes()
        # Compared without metadata, which leaves out how the entries of a map are called: readers
        # of Parquet call them what the column is called, which Arrow's message does not keep.
        if _is_plain(field) or (found := pa.ipc.read_schema(pa.py_buffer(message))).equals(schema):
            return message
        known = found.field(0).type
        # The field was made before Arrow knew the extension type that its metadata names.
        if isinstance(known, pa.BaseExtensionType) and known.storage_type.equals(field.type):
            return message
        reason = "it comes back as another type"
    except pa.ArrowException as error:
        reason = str(error)
    raise UnsupportedTypeError(
        f"column {name!r}: Arrow's own schema message cannot hold {field.type}: {reason}"
    )


def _is_plain(field: pa.Field) -> bool:
    dtype = field.type
    return not dtype.num_fields and not isinstance(dtype, (pa.BaseExtensionType, pa.DictionaryType))


def _shape_key(field: pa.Field, metadata: dict[bytes, bytes] | None, own_id: int | None) -> object:
    dtype = field.type
    # Arrow's equality of types leaves out the metadata of nested fields; the message does not.
    if not _is_plain(field):
        nameless = strip_field_id(field).with_name("")
        try:
            return pa.schema([nameless]).serialize().to_pybytes()
        except pa.ArrowException:
            return nameless
    if own_id is not None and metadata is not None:
        del metadata[FIELD_ID_KEY]
    return dtype, field.nullable, tuple(sorted(metadata.items())) if metadata else None


def _encode_ids(ids: np.ndarray, num_shapes: int) -> tuple[ShapeIds, int, bytes]:
    if num_shapes <= 1:
        return ShapeIds.ONE, 0, b""
    kind = ShapeIds.U8 if num_shapes <= 2**8 else ShapeIds.U16
    if num_shapes > 2**16:
        kind = ShapeIds.U32
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] + 1))
    if len(starts) * SHAPE_RUN.itemsize < len(ids) * kind.value:
        runs = np.zeros(len(starts), SHAPE_RUN)
        runs["start"] = starts
        runs["shape"] = ids[starts]
        return ShapeIds.RUNS, len(starts), runs.tobytes()
    return kind, 0, ids.astype(f"<u{kind.value}").tobytes()


def _encode_block(messages: Sequence[bytes]) -> tuple[bytes, int]:
    ends = np.cumsum([0, *map(len, messages)], dtype=np.uint32)
    raw = ends.astype("<u4").tobytes() + b"".join(messages)
    if len(raw) > _BLOCK_BYTES_MAX:
        raise UnsupportedTypeError(
            f"{len(messages)} types described by {len(raw)} bytes; at most {_BLOCK_BYTES_MAX} fit"
        )
    return _compressed(raw)


def _compressed(raw: bytes) -> tuple[bytes, int]:
    """Bytes as one zstd frame where that is smaller, and how many they are without it."""
    packed = zstandard.ZstdCompressor(level=9).compress(raw)
    worthwhile = len(packed) < len(raw) <= _expansion_limit(len(packed))
    return (packed, len(raw)) if worthwhile else (raw, len(raw))


def _expansion_limit(stored: int) -> int:
    """Bytes that ``stored`` ones may decompress to; writers and readers both check it."""
    return max(EXPANSION_FREE_BYTES, EXPANSION_MAX * stored)


def strip_field_id(field: pa.Field) -> pa.Field:
    """The field without its id."""
    if field_id(field) is None:
        return field
    rest = {key: value for key, value in field.metadata.items() if key != FIELD_ID_KEY}
    return field.with_metadata(rest) if rest else field.remove_metadata()


def field_id(field: pa.Field) -> int | None:
    """The id of a field, None where it has none or one that is no canonical u32 number."""
    return _field_id(field.metadata)


def _field_id(metadata: dict[bytes, bytes] | None) -> int | None:
    text = metadata.get(FIELD_ID_KEY) if metadata else None
    if text is None or not text.isdigit() or (text[:1] == b"0" and len(text) > 1):
        return None
    value = int(text)
    return value if value < FIELD_ID_NONE else None


def build_field_ids(schema: pa.Schema) -> bytes | None:
    """The field id section, u32 a column; None where no top-level field has an id."""
    ids = shapes_of(schema).field_ids
    return None if ids is None else ids.tobytes()


class SchemaArea:
    """Looks up shapes by column ordinal.

    view: Gives ``length`` verified bytes of the area from ``offset`` on.
    length: Bytes of the area.
    has_compressed_metadata: Whether the file has the setting SCHEMA_ZSTD.
    """

    def __init__(
        self,
        view: View,
        length: int,
        num_columns: int,
        where: str,
        *,
        has_compressed_metadata: bool = False,
    ) -> None:
        self._view, self._length, self._where = view, length, where
        if length < _HEADER.size:
            raise self._invalid(f"expected a header of {_HEADER.size} bytes, found {length}")
        columns, self._shapes, stored, kind, self._runs, self._blocks, raw, _ = _HEADER.unpack(
            view(0, _HEADER.size)
        )
        self._columns, self._metadata_length = columns, stored
        self._metadata_raw_length = raw if has_compressed_metadata else stored
        if columns != num_columns:
            raise self._invalid(f"expected {num_columns} columns, found {columns}")
        if kind not in _KINDS:
            raise self._invalid(f"unknown kind {kind} of shape ids")
        self._kind = ShapeIds(kind)
        self._ids_offset = align(_HEADER.size + self._metadata_length)
        self._directory = self._ids_offset + align(self._ids_length())
        blocks_end = self._directory + _BLOCK.size * self._blocks
        if blocks_end > length or self._blocks != -(-self._shapes // SHAPES_PER_BLOCK):
            raise self._invalid(f"{self._blocks} blocks of {self._shapes} shapes do not fit")
        if (columns > 0) != (self._shapes > 0):
            raise self._invalid(f"{columns} columns and {self._shapes} shapes")
        self._cache: dict[int, pa.Field] = {}
        self._messages: dict[int, list[bytes]] = {}

    def _invalid(self, what: str) -> InvalidFileError:
        return InvalidFileError(f"{self._where}: schema area: {what}")

    def _ids_length(self) -> int:
        if self._kind is ShapeIds.RUNS:
            return SHAPE_RUN.itemsize * self._runs
        return self._kind.value * self._columns

    def metadata(self) -> dict[bytes, bytes] | None:
        """The schema's own metadata, None where it has none."""
        if not self._metadata_length:
            return None
        stored, raw_length = self._metadata_length, self._metadata_raw_length
        message = bytes(self._view(_HEADER.size, stored))
        if raw_length != stored:
            limit = _expansion_limit(stored)
            if raw_length > limit:
                raise self._invalid(
                    f"metadata of {stored} bytes: expected at most {limit} raw, found {raw_length}"
                )
            message = decompress(message, raw_length, where=f"{self._where}: schema area: metadata")
        return self._parse(message).metadata

    def shape_ids(self, ordinals: Sequence[int] | None = None) -> np.ndarray:
        """The shape of each column asked for (all: None), as int64."""
        if self._kind is ShapeIds.ONE:
            return np.zeros(self._columns if ordinals is None else len(ordinals), np.int64)
        if self._kind is ShapeIds.RUNS:
            return self._ids_from_runs(ordinals)
        width = self._kind.value
        if ordinals is None or len(ordinals) > 64:
            data = self._view(self._ids_offset, width * self._columns)
            ids = np.frombuffer(data, f"<u{width}").astype(np.int64)
            return ids if ordinals is None else ids[np.asarray(ordinals)]
        parts = [self._view(self._ids_offset + width * each, width) for each in ordinals]
        return np.array([int.from_bytes(part, "little") for part in parts], np.int64)

    @cached_property
    def _shape_runs(self) -> tuple[np.ndarray, np.ndarray]:
        """First columns and shapes of the runs."""
        data = self._view(self._ids_offset, SHAPE_RUN.itemsize * self._runs)
        runs = np.frombuffer(data, SHAPE_RUN)
        starts = runs["start"].astype(np.int64)
        if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any():
            raise self._invalid("runs of shapes do not start at 0 and grow")
        return starts, runs["shape"].astype(np.int64)

    def _ids_from_runs(self, ordinals: Sequence[int] | None) -> np.ndarray:
        starts, shapes = self._shape_runs
        wanted = np.arange(self._columns) if ordinals is None else np.asarray(ordinals)
        return shapes[np.searchsorted(starts, wanted, side="right") - 1]

    def shape(self, shape_id: int) -> pa.Field:
        """A field without a name."""
        field = self._cache.get(shape_id)
        if field is None:
            if not 0 <= shape_id < self._shapes:
                raise self._invalid(f"shape {shape_id} of {self._shapes}")
            messages = self._block(shape_id // SHAPES_PER_BLOCK)
            schema = self._parse(messages[shape_id % SHAPES_PER_BLOCK])
            if len(schema) != 1:
                raise self._invalid(f"shape {shape_id} has {len(schema)} fields")
            field = schema.field(0)
            try:
                _check_text(field.type)
            except UnicodeDecodeError as error:
                raise self._invalid(f"shape {shape_id}: text that is not UTF-8: {error}") from None
            self._cache[shape_id] = field
        return field

    def _block(self, block: int) -> list[bytes]:
        messages = self._messages.get(block)
        if messages is None:
            messages = self._messages[block] = self._read_block(block)
        return messages

    def _read_block(self, block: int) -> list[bytes]:
        entry = self._view(self._directory + _BLOCK.size * block, _BLOCK.size)
        offset, length, raw_length, _ = _BLOCK.unpack(entry)
        if offset + length > self._length or raw_length > _expansion_limit(length):
            raise self._invalid(f"block {block} lies at {offset}+{length}, raw {raw_length}")
        data = bytes(self._view(offset, length))
        if length != raw_length:
            where = f"{self._where}: schema area: block {block}"
            data = decompress(data, raw_length, where=where)
        count = min(SHAPES_PER_BLOCK, self._shapes - block * SHAPES_PER_BLOCK)
        base = 4 * (count + 1)
        if raw_length < base:
            raise self._invalid(f"block {block}: expected {base} bytes, found {raw_length}")
        ends = struct.unpack_from(f"<{count + 1}I", data)
        if ends[0] != 0 or base + ends[-1] != raw_length or list(ends) != sorted(ends):
            raise self._invalid(f"block {block}: offsets do not fit its {raw_length} bytes")
        return [data[base + ends[i] : base + ends[i + 1]] for i in range(count)]

    def _parse(self, message: bytes) -> pa.Schema:
        know_variant(message)
        try:
            return pa.ipc.read_schema(pa.py_buffer(message))
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            raise self._invalid(f"an Arrow message cannot be read: {error}") from None


def _check_text(dtype: pa.DataType) -> None:
    """Decode what Arrow keeps undecoded, so that a user never meets bytes that are no UTF-8."""
    if isinstance(dtype, pa.BaseExtensionType):
        _check_text(dtype.storage_type)
    elif pat.is_dictionary(dtype) or pat.is_run_end_encoded(dtype):
        _check_text(dtype.value_type)
    elif pat.is_timestamp(dtype):
        _ = dtype.tz
    else:
        for index in range(dtype.num_fields):
            _ = dtype.field(index).name
            _check_text(dtype.field(index).type)
