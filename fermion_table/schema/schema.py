"""The table schema: named fields with ids, partitioning, keys and properties, as stored JSON.

A field's identity is its id; its name is a label. Nested fields have ids too: a struct's children,
a list's element, a map's key and value. An id is never used again (`TableSchema.last_field_id`).

In paths, a list's child is called ``element`` and a map's ``key`` and ``value``, whatever Arrow
calls them. Types are stored as text, or as an Arrow message where they have none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from fermion.arguments import first_repeated
from fermion.display import LINE_LENGTH, html_table, more, shortened
from fermion.display import type_text as shown_type
from fermion.engine import know_variant
from fermion.errors import InvalidArgumentError, column_not_found
from fermion.forks import cached_property
from fermion.layout import BLOB_KEY
from fermion_table.argument_checks import check_bool, check_texts
from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.schema import value_codec
from fermion_table.schema.transforms import PartitionTransform, TransformKind, check_column
from fermion_table.storage import json_codec

EXTENSION_NAME = b"ARROW:extension:name"
_BLOB = BLOB_KEY.decode()

_PLAIN_TEXTS = (
    "null bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 date32 "
    "date64 time32[s] time32[ms] time64[us] time64[ns] duration[s] duration[ms] duration[us] "
    "duration[ns] string large_string string_view binary large_binary binary_view "
    "month_day_nano_interval"
)
_PLAIN = {text: pa.type_for_alias(text) for text in _PLAIN_TEXTS.split()}
_TEXTS = {dtype: text for text, dtype in _PLAIN.items()}

_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, (.+))?\]", re.DOTALL)
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d{1,3}), (-?\d{1,3})\)")
_FIXED_BINARY = re.compile(r"fixed_size_binary\[(\d{1,10})\]")
_DICTIONARY = re.compile(r"dictionary<(u?int(?:8|16|32|64)), (.+?)(, ordered)?>", re.DOTALL)
_DECIMALS: dict[str, Callable[[int, int], pa.DataType]] = {
    "32": pa.decimal32,
    "64": pa.decimal64,
    "128": pa.decimal128,
    "256": pa.decimal256,
}


@lru_cache(maxsize=4096)
def type_text(dtype: pa.DataType) -> str | None:
    """The text of a type without children; None for a type that has none."""
    if isinstance(dtype, pa.BaseExtensionType):
        return None
    text = _TEXTS.get(dtype)
    if text is not None:
        return text
    if pat.is_timestamp(dtype):
        return f"timestamp[{dtype.unit}, {dtype.tz}]" if dtype.tz else f"timestamp[{dtype.unit}]"
    if pat.is_decimal(dtype):
        return f"decimal{dtype.bit_width}({dtype.precision}, {dtype.scale})"
    if pat.is_fixed_size_binary(dtype):
        return f"fixed_size_binary[{dtype.byte_width}]"
    if pat.is_dictionary(dtype):
        value = type_text(dtype.value_type)
        ordered = ", ordered" if dtype.ordered else ""
        return value and f"dictionary<{type_text(dtype.index_type)}, {value}{ordered}>"
    return None


@lru_cache(maxsize=4096)
def parse_type_text(text: str) -> pa.DataType:
    """The type of a text.

    Raises ValueError: The text names no type.
    """
    plain = _PLAIN.get(text)
    if plain is not None:
        return plain
    try:
        if match := _TIMESTAMP.fullmatch(text):
            return pa.timestamp(match[1], match[2])
        if match := _DECIMAL.fullmatch(text):
            return _DECIMALS[match[1]](int(match[2]), int(match[3]))
        if match := _FIXED_BINARY.fullmatch(text):
            return pa.binary(int(match[1]))
        if match := _DICTIONARY.fullmatch(text):
            values = parse_type_text(match[2])
            return pa.dictionary(parse_type_text(match[1]), values, ordered=bool(match[3]))
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(f"{text!r} is not a type: {error}") from None
    raise ValueError(f"{text!r} is not a type that this version knows")


def message_of(dtype: pa.DataType) -> str:
    """Base64 of an Arrow schema message that holds a type exactly."""
    schema = pa.schema([pa.field("", dtype)])
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


@lru_cache(maxsize=1024)
def field_of_message(text: str) -> pa.Field:
    """The nameless field of a message.

    An extension type that is not registered in this process comes back as its storage type, with
    the extension's name in the field's metadata.

    Raises ValueError: Not base64 of a message of one field.
    """
    try:
        message = base64.b64decode(text, validate=True)
        know_variant(message)
        schema = pa.ipc.read_schema(pa.py_buffer(message))
    except (binascii.Error, pa.ArrowException, OSError, RecursionError) as error:
        raise ValueError(f"not an Arrow schema message: {error}") from None
    if len(schema) != 1:
        raise ValueError(f"an Arrow schema message of {len(schema)} fields, expected 1")
    return schema.field(0)


def resolve_extension(dtype: pa.DataType, metadata: Mapping[bytes, bytes]) -> pa.Field:
    """A field whose extension type, named in its metadata, is made if it is registered here."""
    know_variant(metadata[EXTENSION_NAME])
    field = pa.field("", dtype, metadata=dict(metadata))
    return pa.ipc.read_schema(pa.schema([field]).serialize()).field(0)


def encode_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Arrow metadata as JSON: UTF-8 as it is, other values under ``base64:<base64 of the key>``."""
    encoded: dict[str, str] = {}
    for key, value in (metadata or {}).items():
        try:
            text = key.decode("utf-8")
            if text.startswith("base64:"):
                raise ValueError
            encoded[text] = value.decode("utf-8")
        except ValueError:
            name = base64.b64encode(key).decode("ascii")
            encoded[f"base64:{name}"] = base64.b64encode(value).decode("ascii")
    return encoded


def decode_metadata(encoded: Mapping[str, str]) -> dict[bytes, bytes]:
    """Arrow metadata from JSON, as `encode_metadata` wrote it."""
    metadata: dict[bytes, bytes] = {}
    for text, value in encoded.items():
        if text.startswith("base64:"):
            try:
                key = base64.b64decode(text.removeprefix("base64:"), validate=True)
                metadata[key] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise CorruptMetadata("schema", f"base64 metadata {text!r}", str(error)) from None
        else:
            metadata[text.encode("utf-8")] = value.encode("utf-8")
    return metadata


def is_extension(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether a field's metadata names an extension type."""
    return bool(metadata) and EXTENSION_NAME in metadata


KIND_COLUMN = "_row_kind"
"""The column of row kinds in data files with retractions."""
KEY_COLUMN = "_merge_key"
"""The column of keys in memory, while rows are merged."""
SCHEMA_FORMAT = "fermion-schema"
SCHEMA_FORMAT_VERSION = 1
FIELD_ID_KEY = b"PARQUET:field_id"
COMMENT_KEY = b"comment"
FIELD_ID_MAX = 2**31 - 1
DEPTH_MAX = 64
FIELDS_SHOWN = 8

ELEMENT, KEY, VALUE = "element", "key", "value"

Path = tuple[str, ...]
PathLike = str | Sequence[str]
NestedKind = Literal[
    "struct", "list", "large_list", "list_view", "large_list_view", "fixed_size_list", "map"
]


class StoredType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A type that has no text: a nested one with its fields, or an Arrow message.

    kind: A nested kind, or ``arrow``.
    fields: Children with ids, in Arrow's order; a map's are key and value.
    arrow, text: The message (`message_of`), and the type in words.
    """

    kind: NestedKind | Literal["arrow"]
    fields: tuple[Field, ...] = ()
    length: int = 0
    keys_sorted: bool = False
    arrow: str = ""
    text: str = ""


class Field(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column, or one field inside a column. Made by `from_arrow`.

    Attributes
    ----------
    id
        Its identity, from 1 on.
    name
        Its label, unique among its siblings.
    stored_type
        Its type as JSON has it; `type` is the Arrow type.
    nullable
        Whether it may hold nulls.
    comment
        What it means, in words.
    stored_initial_default
        What rows written before the field existed hold, as a JSON value; None is null.
    stored_write_default
        What rows hold that are written without the field, as a JSON value; None is null.
    stored_metadata
        Arrow's metadata but for field id and comment.
    """

    id: int
    name: str
    stored_type: str | StoredType = msgspec.field(name="type")
    nullable: bool = True
    comment: str | None = None
    stored_initial_default: Any = msgspec.field(name="initial_default", default=None)
    stored_write_default: Any = msgspec.field(name="write_default", default=None)
    stored_metadata: dict[str, str] = msgspec.field(name="metadata", default_factory=dict)

    def __repr__(self) -> str:
        return f"<Field {shortened(describe_field(self), LINE_LENGTH).strip()}>"

    @property
    def children(self) -> tuple[Field, ...]:
        """Fields inside it that have ids of their own."""
        return self.stored_type.fields if isinstance(self.stored_type, StoredType) else ()

    @property
    def kind(self) -> str:
        """The nested kind, ``arrow``, or ``plain`` for a type with a text."""
        return self.stored_type.kind if isinstance(self.stored_type, StoredType) else "plain"

    @property
    def type(self) -> pa.DataType:
        """The exact Arrow type, without field ids."""
        return field_to_arrow(self, field_ids=False).type

    @property
    def initial_default(self) -> pa.Scalar | None:
        """What a file without the field reads as; None is null."""
        return self._default(self.stored_initial_default)

    @property
    def write_default(self) -> pa.Scalar | None:
        """What is written where data lacks the field; None is null."""
        return self._default(self.stored_write_default)

    def _default(self, stored: Any) -> pa.Scalar | None:
        return None if stored is None else value_codec.decode_value(stored, self.type)

    def child_names(self) -> tuple[str, ...]:
        """The names of `children` in paths."""
        if self.kind == "struct":
            return tuple(child.name for child in self.children)
        return (KEY, VALUE) if self.kind == "map" else (ELEMENT,) * len(self.children)

    def with_children(self, children: Iterable[Field]) -> Field:
        """The same field around other children."""
        assert isinstance(self.stored_type, StoredType)
        changed = msgspec.structs.replace(self.stored_type, fields=tuple(children))
        return msgspec.structs.replace(self, stored_type=changed)

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Field]]:
        """This field and all below it, depth first, each with its path."""
        here = (*path, self.name)
        yield here, self
        yield from self._below(here)

    def _below(self, here: Path) -> Iterator[tuple[Path, Field]]:
        for name, child in zip(self.child_names(), self.children, strict=True):
            yield (*here, name), child
            yield from child._below((*here, name))


class PartitionField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What rows are split by: a top-level field and a function of it (`transforms`).

    parameter: Buckets, or the width of ``truncate``.
    """

    source_id: int
    name: str
    transform: TransformKind = "identity"
    parameter: int = 0

    def text(self, schema: TableSchema) -> str:
        """As `Table.create` takes it: ``"city"``, ``"day(at)"``, ``"bucket(4, id)"``."""
        column = schema.by_id[self.source_id].name
        if self.transform == "identity":
            return column
        parameter = f"{self.parameter}, " if self.parameter else ""
        return f"{self.transform}({parameter}{column})"


class ColumnIndex(msgspec.Struct, frozen=True, kw_only=True):
    """An index of the table: the id of its field, at any depth of structs, and its kind."""

    field: int
    kind: str


class KeyStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a map whose statistics entries keep.

    field: The id of the map, a column.
    key: An integer as a decimal number.
    id: What the statistics stand under in entries; no field has it.
    """

    field: json_codec.Natural
    key: str
    id: json_codec.Natural


class SchemaReference(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schema version: its id, file, BLAKE2b hash and stored size in bytes."""

    id: json_codec.Natural
    path: str
    hash: str
    size: json_codec.Natural


class TableSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One version of a table's schema. Immutable: `changes` makes new ones.

    Attributes
    ----------
    id
        The version, from 0 on.
    fields
        The columns in their order.
    last_field_id
        The greatest id that any version up to this one has used.
    partition_by
        What the rows of a data file have in common.
    primary_key, sort_by
        Field ids.
    properties
        The table's settings.
    indexes
        What writers make index files of; one of a field that is gone has no meaning.
    statistics_keys
        The keys of maps whose statistics entries keep; one of a map that is gone has no meaning.
    stored_metadata
        Arrow's schema metadata.
    bucket_counts
        Of a primary-key table whose setting ``bucket`` was changed: all values that it has had,
        ascending. Empty: only the present one.
    ancestors
        The versions before this one, oldest first: data files may have been written with any.
    time_ms
        When the version was made, milliseconds since 1970 UTC.
    unknown
        Keys this version does not know, kept when the schema is changed.
    """

    format: str
    format_version: int
    id: int
    fields: tuple[Field, ...]
    last_field_id: int
    partition_by: tuple[PartitionField, ...] = ()
    primary_key: tuple[int, ...] = ()
    sort_by: tuple[int, ...] = ()
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    indexes: tuple[ColumnIndex, ...] = ()
    statistics_keys: tuple[KeyStatistics, ...] = ()
    stored_metadata: dict[str, str] = msgspec.field(name="metadata", default_factory=dict)
    bucket_counts: tuple[int, ...] = ()
    ancestors: tuple[SchemaReference, ...] = ()
    time_ms: int = 0
    unknown: dict[str, Any] = msgspec.field(default_factory=dict, name=json_codec.UNKNOWN_KEYS)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return _unpickle, (encode_schema(self),)

    def __repr__(self) -> str:
        lines = [
            shortened(describe_field(field), LINE_LENGTH) for field in self.fields[:FIELDS_SHOWN]
        ]
        rest = [f"  {each}" for each in more(len(lines), len(self.fields))]
        return "\n".join([f"TableSchema {self.id}: {len(self.fields):,} columns", *lines, *rest])

    def _repr_html_(self) -> str:
        rows = (
            (str(field.id), field.name, shown_type(field.type), field.nullable, field.comment or "")
            for field in self.fields
        )
        header = ("id", "name", "type", "nullable", "comment")
        return html_table(f"TableSchema {self.id}", header, rows, len(self.fields))

    @property
    def names(self) -> list[str]:
        """Names of the columns in their order."""
        return [field.name for field in self.fields]

    @cached_property
    def row_id_name(self) -> str:
        """The column of row ids in scans: ``_row_id``, and ``_`` as often as a column has it.

        Also in another case: engines that do not tell cases apart read it beside that column.
        """
        return free_name("_row_id", {name.lower() for name in self.by_name if name[:1] == "_"})

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The columns by name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def by_id(self) -> dict[int, Field]:
        """The columns by id; top level only."""
        return {field.id: field for field in self.fields}

    @cached_property
    def blob_columns(self) -> tuple[str, ...]:
        """Names of the columns whose values are blobs."""
        return tuple(
            field.name
            for field in self.fields
            if field.stored_metadata and field.stored_metadata.get(_BLOB) == "true"
        )

    @cached_property
    def digest(self) -> str:
        """What differs between schemas that differ: 32 hexadecimal digits, of their JSON."""
        return hashlib.blake2b(encode_schema(self), digest_size=16).hexdigest()

    @cached_property
    def paths(self) -> dict[int, Path]:
        """The path of every field, nested ones included, by id."""
        return {each.id: path for field in self.fields for path, each in field.walk()}

    @cached_property
    def _arrow(self) -> pa.Schema:
        return self._to_arrow(field_ids=False)

    @cached_property
    def _arrow_with_ids(self) -> pa.Schema:
        return self._to_arrow(field_ids=True)

    def _to_arrow(self, *, field_ids: bool) -> pa.Schema:
        fields = [field_to_arrow(field, field_ids=field_ids) for field in self.fields]
        metadata = decode_metadata(self.stored_metadata)
        return pa.schema(fields, metadata=metadata or None)

    def to_arrow(self, *, field_ids: bool = True) -> pa.Schema:
        """The Arrow schema, with each field's id in its metadata (``PARQUET:field_id``)."""
        return self._arrow_with_ids if check_bool(field_ids, "field_ids") else self._arrow

    def find(self, path: PathLike, *, where: str = "table") -> Field:
        """The field at a path: a name, names joined by dots, or a sequence of names.

        Raises
        ------
        fermion.errors.ColumnNotFoundError
            Names the closest matches.
        """
        names = self.resolve(path, where=where)
        top = self.by_name.get(names[0]) if names else None
        return find_field(self.fields if top is None else (top,), names, where)

    def resolve(self, path: PathLike, *, where: str = "table") -> Path:
        """A path as names: ``"s.a"`` is the column of that very name, or else field a of s.

        Raises ColumnNotFoundError, TypeError; InvalidArgumentError for a path of no names.
        """
        if not isinstance(path, str):
            if not (names := check_texts(path, "path: a column")):
                raise InvalidArgumentError(f"{where}: an empty path names no column")
            return names
        if path in self.by_name or "." not in path:
            return (path,)
        parts = tuple(path.split("."))
        for count in range(len(parts) - 1, 0, -1):
            head = ".".join(parts[:count])
            if head in self.by_name:
                return (head, *parts[count:])
        raise column_not_found(path, self.names, where=where)


def find_field(fields: Sequence[Field], path: Path, where: str) -> Field:
    """The field at a path of names.

    Raises fermion.errors.ColumnNotFoundError: Names the closest matches at the level where the
        search ended.
    """
    found: Field | None = None
    names: tuple[str, ...] = tuple(field.name for field in fields)
    for name in path:
        if name not in names:
            raise column_not_found(".".join(path), names, where=where)
        found = fields[names.index(name)]
        fields, names = found.children, found.child_names()
    if found is None:
        raise InvalidArgumentError(f"{where}: an empty path names no column")
    return found


def field_to_arrow(field: Field, *, field_ids: bool) -> pa.Field:
    """A field as Arrow's, with or without ids in the metadata of it and its children."""
    stored, metadata = field.stored_type, {}
    if field.stored_metadata:
        metadata = decode_metadata(field.stored_metadata)
    if isinstance(stored, str):
        dtype = parse_type_text(stored)
    elif stored.kind == "arrow":
        exotic = field_of_message(stored.arrow)
        dtype = exotic.type
        metadata |= exotic.metadata or {}
    else:
        children = [field_to_arrow(child, field_ids=field_ids) for child in stored.fields]
        dtype = nested_type(stored, children)
    if is_extension(metadata):
        resolved = resolve_extension(dtype, metadata)
        dtype, metadata = resolved.type, dict(resolved.metadata or {})
    if field.comment is not None:
        metadata[COMMENT_KEY] = field.comment.encode()
    if field_ids:
        metadata[FIELD_ID_KEY] = str(field.id).encode()
    return pa.field(field.name, dtype, field.nullable, metadata or None)


def nested_type(stored: StoredType, children: Sequence[pa.Field]) -> pa.DataType:
    """The Arrow type of a nested kind around these children."""
    if stored.kind == "struct":
        return pa.struct(children)
    if stored.kind == "map":
        key, value = children
        return pa.map_(key.with_nullable(False), value, stored.keys_sorted)
    (element,) = children
    if stored.kind == "fixed_size_list":
        return pa.list_(element, stored.length)
    return _LISTS[stored.kind](element)


_LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}


def free_name(name: str, taken: Container[str]) -> str:
    """A name with as many ``_`` at its end as it takes to be none of others."""
    while name in taken:
        name += "_"
    return name


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse equal names among siblings.

    Raises InvalidArgumentError.
    """
    repeated = first_repeated(names)
    if repeated is not None:
        raise InvalidArgumentError(f"{where}: more than one column is called {repeated!r}")


def describe_field(field: Field) -> str:
    """A field in one line: id, name, type, what is not usual about it."""
    text = f"  {field.id}: {field.name}: {field.type}"
    if not field.nullable:
        text += " not null"
    if field.stored_initial_default is not None:
        text += f" default {field.initial_default}"
    return text + (f"  -- {field.comment}" if field.comment else "")


def encode_schema(schema: TableSchema) -> bytes:
    """A schema's JSON, not compressed yet."""
    return json_codec.encode(schema)


def decode_schema(data: bytes, path: str, *, keep_unknown: bool = False) -> TableSchema:
    """A schema from its stored bytes, compressed or not.

    path: Names the object in messages.
    keep_unknown: Keep keys that this version does not know, for a schema that is changed and
        written again.
    Raises CorruptMetadata: Not a schema, or one that contradicts itself.
    Raises UnsupportedFeature: A newer format version.
    """
    decoder = json_codec.decode_keeping if keep_unknown else json_codec.decode
    schema = decoder(data, TableSchema, path)
    if schema.format != SCHEMA_FORMAT:
        raise CorruptMetadata(path, f"format {SCHEMA_FORMAT!r}", repr(schema.format))
    if schema.format_version > SCHEMA_FORMAT_VERSION:
        raise UnsupportedFeature(
            f"{path}: schema format version {schema.format_version}; "
            f"this version knows up to {SCHEMA_FORMAT_VERSION}"
        )
    try:
        _check(schema)
    except (ValueError, RecursionError) as error:
        raise CorruptMetadata(path, "a valid schema", str(error)) from error
    return schema


def _check(schema: TableSchema) -> None:
    """Invariants that hold before writing and after reading."""
    check_names(schema.names, "schema")
    nested = [field for field in schema.fields if not isinstance(field.stored_type, str)]
    ids = [field.id for field in schema.fields]
    ids += [each.id for field in nested for _, each in field.walk() if each is not field]
    ids += [each.id for each in schema.statistics_keys]
    if len(set(ids)) < len(ids):
        raise ValueError("a field id is used twice")
    if ids and not (min(ids) > 0 and max(ids) <= schema.last_field_id <= FIELD_ID_MAX):
        raise ValueError(f"field ids {min(ids)} to {max(ids)}, the last {schema.last_field_id}")
    named = {partition.source_id for partition in schema.partition_by}
    if not named.union(schema.primary_key, schema.sort_by) <= schema.by_id.keys():
        raise ValueError("a partition, key or sort field that the schema lacks")
    for each in schema.partition_by:
        column = schema.by_id[each.source_id]
        transform = PartitionTransform(column.name, each.transform, each.parameter)
        check_column(transform, column.type)
    for text in {
        field.stored_type for field in schema.fields if isinstance(field.stored_type, str)
    }:
        parse_type_text(text)
    for field in nested:
        field_to_arrow(field, field_ids=False)


def _unpickle(data: bytes) -> TableSchema:
    return decode_schema(data, "pickled schema", keep_unknown=True)


def has_buckets(schema: TableSchema) -> bool:
    """Whether rows of the table are merged by its primary key."""
    return bool(schema.primary_key) and "bucket" in schema.properties
