"""Arrow types ⇄ the streams that hold them: a tree of nodes a top-level column, and their values.

A node emits its VALIDITY stream first, then, by kind: a leaf its DATA; a list or map its OFFSETS
and its child; a struct its children in order; a fixed-size list its child; the null type nothing.
Stream ordinals count depth first from 0 within the column.

Physical values are what the data of one stream is once Arrow's logical types are taken off. They
have one of three shapes, chosen by `PhysicalType`:

- numbers and fixed-width bytes: a contiguous 1-D ``np.ndarray`` of ``PhysicalType.dtype``
  (``V{width}`` for fixed-width bytes and for decimals of 128 and 256 bits);
- booleans and validity: `Bits`, packed least significant bit first, as Arrow packs them;
- strings and binary: `BinaryValues`, Arrow's offsets and bytes, starting at 0.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import kernels
from fermion.errors import UnsupportedTypeError
from fermion.exports import dataclass
from fermion.layout import SCHEMA_DEPTH_MAX, StreamType

VARIANT = "arrow.parquet.variant"
"""The name of the extension type of Variant columns."""


def know_variant(fields: bytes) -> None:
    """Make Arrow know the extension type of Variant, if serialized fields name it."""
    if VARIANT.encode() in fields:
        importlib.import_module("fermion.columns.variants")


def is_variant(field: pa.Field) -> bool:
    """Whether a column holds Variant values, be their extension type known to Arrow or not."""
    if isinstance(field.type, pa.BaseExtensionType):
        return bool(field.type.extension_name == VARIANT)
    return (field.metadata or {}).get(b"ARROW:extension:name") == VARIANT.encode()


class PhysicalKind(enum.IntEnum):
    """What one value of a stream is."""

    BITS = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    FIXED = 12
    BINARY = 13


_DTYPES = {
    PhysicalKind.INT8: "<i1",
    PhysicalKind.INT16: "<i2",
    PhysicalKind.INT32: "<i4",
    PhysicalKind.INT64: "<i8",
    PhysicalKind.UINT8: "<u1",
    PhysicalKind.UINT16: "<u2",
    PhysicalKind.UINT32: "<u4",
    PhysicalKind.UINT64: "<u8",
    PhysicalKind.FLOAT16: "<f2",
    PhysicalKind.FLOAT32: "<f4",
    PhysicalKind.FLOAT64: "<f8",
}


@dataclass(frozen=True, slots=True)
class PhysicalType:
    """The physical type of a stream: a kind, and the bytes of one value where that is fixed."""

    kind: PhysicalKind
    width: int = 0

    @property
    def is_integer(self) -> bool:
        """Whether values are integers, signed or not."""
        return PhysicalKind.INT8 <= self.kind <= PhysicalKind.UINT64

    @property
    def is_number(self) -> bool:
        """Whether values are integers or floats."""
        return PhysicalKind.INT8 <= self.kind <= PhysicalKind.FLOAT64

    @property
    def is_fixed_width(self) -> bool:
        """Whether values are numbers or bytes of a fixed width, so neither bits nor strings."""
        return PhysicalKind.INT8 <= self.kind <= PhysicalKind.FIXED

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype of the values' array; ``uint8`` for bits and binary."""
        if self.kind is PhysicalKind.FIXED:
            return np.dtype(f"V{self.width}") if self.width else np.dtype("V1")
        return np.dtype(_DTYPES.get(self.kind, "<u1"))


def number(kind: PhysicalKind) -> PhysicalType:
    """The physical type of a number of this kind."""
    return PhysicalType(kind, np.dtype(_DTYPES[kind]).itemsize)


BITS = PhysicalType(PhysicalKind.BITS)
BINARY = PhysicalType(PhysicalKind.BINARY)
INT32 = number(PhysicalKind.INT32)
INT64 = number(PhysicalKind.INT64)
UINT32 = number(PhysicalKind.UINT32)


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """Packed booleans, least significant bit first, bit 0 of byte 0 is slot 0.

    data: ``uint8``, at least ``ceil(length / 8)`` long; bits from ``length`` on are unspecified.
    length: Slots.
    """

    data: np.ndarray
    length: int

    def __len__(self) -> int:
        return self.length

    @classmethod
    def pack(cls, flags: np.ndarray) -> Bits:
        """Pack a boolean array, shape (n,); a copy."""
        return cls(np.packbits(np.asarray(flags, dtype=bool), bitorder="little"), len(flags))

    def unpack(self) -> np.ndarray:
        """The bits as a boolean array, shape (length,); a copy."""
        return np.unpackbits(self.data, count=self.length, bitorder="little").view(bool)

    def count(self) -> int:
        """How many bits are set."""
        return kernels.count_bits(self.data, 0, self.length)


@dataclass(frozen=True, slots=True, eq=False)
class BinaryValues:
    """Strings or binary: value i is ``data[offsets[i]:offsets[i + 1]]``.

    offsets: ``int64``, shape (n + 1,), starting at 0, never decreasing.
    data: ``uint8``, shape (offsets[-1],).
    """

    offsets: np.ndarray
    data: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """``int64``, shape (n,): bytes of each value; a copy."""
        return np.diff(self.offsets)

    def take(self, indices: np.ndarray) -> BinaryValues:
        """The values with some indices; a copy."""
        codes = indices.astype(np.uint32)
        offsets = np.empty(len(codes) + 1, np.int64)
        total = kernels.gather_binary(self.offsets, self.data, codes, offsets)
        data = np.empty(total, np.uint8)
        kernels.gather_binary_data(self.offsets, self.data, codes, offsets, data)
        return BinaryValues(offsets, data)


Values = np.ndarray | Bits | BinaryValues


def slots_bytes(physical: PhysicalType, slots: int) -> int:
    """Bytes that slots take in memory: values of a fixed width, or the offsets of strings."""
    if physical.kind is PhysicalKind.BITS:
        return (slots + 7) // 8
    width = 8 if physical.kind is PhysicalKind.BINARY else physical.dtype.itemsize
    return width * slots


def empty(physical: PhysicalType) -> Values:
    """No values of this type."""
    if physical.kind is PhysicalKind.BITS:
        return Bits(np.empty(0, np.uint8), 0)
    if physical.kind is PhysicalKind.BINARY:
        return BinaryValues(np.zeros(1, np.int64), np.empty(0, np.uint8))
    return np.empty(0, physical.dtype)


def slice_values(values: Values, start: int, stop: int) -> Values:
    """Slots ``start`` to ``stop`` (exclusive); a view, but for bits that start inside a byte."""
    if isinstance(values, Bits):
        if start % 8 == 0:
            return Bits(values.data[start // 8 : (stop + 7) // 8], stop - start)
        out = np.zeros((stop - start + 7) // 8, np.uint8)
        kernels.copy_bits(values.data, start, out, 0, stop - start)
        return Bits(out, stop - start)
    if isinstance(values, BinaryValues):
        offsets = values.offsets[start : stop + 1]
        base = int(offsets[0])
        data = values.data[base : int(offsets[-1])]
        return BinaryValues(offsets - base if base else offsets, data)
    return values[start:stop]


def concatenate(parts: Sequence[Values], physical: PhysicalType) -> Values:
    """All slots of ``parts`` in order; the one part itself when there is only one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty(physical)
    if physical.kind is PhysicalKind.BITS:
        total = sum(len(part) for part in parts)
        out = np.zeros((total + 7) // 8, np.uint8)
        at = 0
        for part in parts:
            assert isinstance(part, Bits)
            kernels.copy_bits(part.data, 0, out, at, part.length)
            at += part.length
        return Bits(out, total)
    if physical.kind is PhysicalKind.BINARY:
        return _concatenate_binary([part for part in parts if isinstance(part, BinaryValues)])
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def _concatenate_binary(parts: Sequence[BinaryValues]) -> BinaryValues:
    offsets = np.empty(sum(len(part) for part in parts) + 1, np.int64)
    offsets[0] = 0
    at, base = 1, 0
    for part in parts:
        count = len(part)
        np.add(part.offsets[1:], base, out=offsets[at : at + count])
        at += count
        base += int(part.offsets[-1])
    return BinaryValues(offsets, np.concatenate([part.data[: part.offsets[-1]] for part in parts]))


@dataclass(slots=True)
class ColumnStreams:
    """Values of a column's streams, keyed by stream ordinal.

    A projected column holds only the ordinals it needs.

    length: Rows.
    slots: Slots of each stream at its own level: list elements for a list's child.
    validity: VALIDITY streams: `Bits` (1 = valid), ``None`` where every slot is valid, or ``False``
        where every slot is null.
    offsets: OFFSETS streams: ``int64``, shape (slots + 1,), starting at 0.
    data: DATA streams: physical values, one a slot. Slots that are null hold a filler (the previous
        valid value, or zero), never what the input hid there.
    """

    length: int
    slots: dict[int, int] = field(default_factory=dict)
    validity: dict[int, Bits | bool | None] = field(default_factory=dict)
    offsets: dict[int, np.ndarray] = field(default_factory=dict)
    data: dict[int, Values] = field(default_factory=dict)


class NodeKind(enum.Enum):
    """What a node of the column tree is made of."""

    LEAF = "leaf"
    LIST = "list"
    FIXED_LIST = "fixed_list"
    STRUCT = "struct"
    NULL = "null"


class Order(enum.Enum):
    """How a leaf's values are ordered, which decides how bounds map to int64 (see statistics)."""

    NONE = "none"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    DECIMAL = "decimal"
    BYTES = "bytes"


Form = tuple[int, int]
"""How a leaf lies in Arrow's buffers: the letter of its kind (see `kernels.decode_flat`), and the
bytes of a value, or of an offset."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a column's tree.

    name: The field's name; a list's child has Arrow's name for it.
    type: The Arrow type to give back, dictionary and extension wrappers included.
    storage: ``type`` with dictionary, run-end and extension wrappers taken off.
    validity, stream: Ordinals of the VALIDITY stream and of the DATA or OFFSETS stream (-1: it has
        none).
    stop: One past the last stream ordinal of this subtree.
    physical, order: For a leaf: its physical type, and how its values compare.
    form: What the kernels over whole columns know a leaf as; None for any other node, and under
        wrappers.
    """

    name: str
    kind: NodeKind
    type: pa.DataType
    storage: pa.DataType
    nullable: bool
    children: tuple[Node, ...]
    validity: int
    stream: int
    stop: int
    physical: PhysicalType | None = None
    order: Order = Order.NONE
    form: Form | None = None

    def renamed(self, name: str) -> Node:
        """The same tree under another name: columns of one shape differ in nothing else."""
        if name == self.name:
            return self
        return Node(
            name,
            self.kind,
            self.type,
            self.storage,
            self.nullable,
            self.children,
            self.validity,
            self.stream,
            self.stop,
            self.physical,
            self.order,
            self.form,
        )

    def walk(self) -> Iterator[Node]:
        """This node and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def stream_types(self) -> list[StreamType]:
        """The type of each stream of this subtree, in ordinal order."""
        types: list[StreamType] = []
        for node in self.walk():
            types.append(StreamType.VALIDITY)
            if node.kind is NodeKind.LEAF:
                types.append(StreamType.DATA)
            elif node.kind is NodeKind.LIST:
                types.append(StreamType.OFFSETS)
        return types


def strip_wrappers(dtype: pa.DataType) -> pa.DataType:
    """The type that is stored: without extension, dictionary and run-end wrappers."""
    while True:
        if isinstance(dtype, pa.BaseExtensionType):
            dtype = dtype.storage_type
        elif pat.is_dictionary(dtype) or pat.is_run_end_encoded(dtype):
            dtype = dtype.value_type
        else:
            return dtype


def ordered_type(dtype: pa.DataType) -> pa.DictionaryType | None:
    """The ordered dictionary among the wrappers of a column or child; None: there is none."""
    while True:
        if isinstance(dtype, pa.BaseExtensionType):
            dtype = dtype.storage_type
        elif pat.is_dictionary(dtype) and dtype.ordered:
            return dtype
        elif pat.is_dictionary(dtype) or pat.is_run_end_encoded(dtype):
            dtype = dtype.value_type
        else:
            return None


def has_ordered(node: Node) -> bool:
    """Whether a column is or holds an ordered dictionary."""
    if not node.children and node.type is node.storage:
        return False
    return ordered_type(node.type) is not None or any(map(has_ordered, node.children))


def column_node(field: pa.Field, *, where: str = "schema") -> Node:
    """The tree of a top-level column.

    Raises UnsupportedTypeError: For unions, for nesting deeper than 64, and for types that Arrow
        adds later.
    """
    return _build(field, 0, 0, f"{where}: column {field.name!r}")


def _build(field: pa.Field, ordinal: int, depth: int, where: str) -> Node:
    if depth > SCHEMA_DEPTH_MAX:
        raise UnsupportedTypeError(f"{where}: nested deeper than {SCHEMA_DEPTH_MAX} levels")
    storage = strip_wrappers(field.type)
    leaf = leaf_type(storage)
    below: tuple[pa.Field, ...] = ()
    if leaf is not None:
        kind, own = NodeKind.LEAF, 2
    elif pat.is_null(storage):
        kind, own = NodeKind.NULL, 1
    else:
        kind, own, below = _nested(storage, where)
    children: list[Node] = []
    stop = ordinal + own
    for child in below:
        children.append(_build(child, stop, depth + 1, f"{where}.{child.name}"))
        stop = children[-1].stop
    return Node(
        name=field.name,
        kind=kind,
        type=field.type,
        storage=storage,
        nullable=field.nullable,
        children=tuple(children),
        validity=ordinal,
        stream=ordinal + 1 if own == 2 else -1,
        stop=stop,
        physical=leaf[0] if leaf else None,
        order=leaf[1] if leaf else Order.NONE,
        form=_form(leaf[0], storage) if leaf and storage is field.type else None,
    )


def _nested(storage: pa.DataType, where: str) -> tuple[NodeKind, int, tuple[pa.Field, ...]]:
    if pat.is_struct(storage):
        return NodeKind.STRUCT, 1, tuple(storage)
    if pat.is_map(storage):
        entries = pa.struct([storage.key_field, storage.item_field])
        return NodeKind.LIST, 2, (pa.field("entries", entries, nullable=False),)
    if pat.is_fixed_size_list(storage):
        return NodeKind.FIXED_LIST, 1, (storage.value_field,)
    if is_list(storage):
        return NodeKind.LIST, 2, (storage.value_field,)
    raise UnsupportedTypeError(
        f"{where}: the format has no place for Arrow type {storage}{_advice(storage)}"
    )


def _advice(storage: pa.DataType) -> str:
    """What to do about a type that the format has no place for."""
    if pat.is_union(storage):
        return "; convert the union to a struct first"
    if str(storage) in ("month_interval", "day_time_interval"):
        # pyarrow knows these types by name only: it makes no arrays of them.
        return "; convert the column to month_day_nano_interval first"
    return ""


def is_list(storage: pa.DataType) -> bool:
    """Whether a type is a variable-length list in any of Arrow's forms (maps are not)."""
    return (
        pat.is_list(storage)
        or pat.is_large_list(storage)
        or pat.is_list_view(storage)
        or pat.is_large_list_view(storage)
    )


def is_list_view(dtype: pa.DataType) -> bool:
    """Whether lists have offsets and sizes, and so may overlap or lie out of order."""
    return pat.is_list_view(dtype) or pat.is_large_list_view(dtype)


_NUMBERS = {
    pa.int8().id: (number(PhysicalKind.INT8), Order.SIGNED),
    pa.int16().id: (number(PhysicalKind.INT16), Order.SIGNED),
    pa.int32().id: (number(PhysicalKind.INT32), Order.SIGNED),
    pa.int64().id: (number(PhysicalKind.INT64), Order.SIGNED),
    pa.uint8().id: (number(PhysicalKind.UINT8), Order.UNSIGNED),
    pa.uint16().id: (number(PhysicalKind.UINT16), Order.UNSIGNED),
    pa.uint32().id: (number(PhysicalKind.UINT32), Order.UNSIGNED),
    pa.uint64().id: (number(PhysicalKind.UINT64), Order.UNSIGNED),
    pa.float16().id: (number(PhysicalKind.FLOAT16), Order.FLOAT),
    pa.float32().id: (number(PhysicalKind.FLOAT32), Order.FLOAT),
    pa.float64().id: (number(PhysicalKind.FLOAT64), Order.FLOAT),
    pa.date32().id: (number(PhysicalKind.INT32), Order.SIGNED),
    pa.date64().id: (number(PhysicalKind.INT64), Order.SIGNED),
}


def leaf_type(storage: pa.DataType) -> tuple[PhysicalType, Order] | None:
    """The physical type and the order of a leaf's values; None where the type is nested or null."""
    if storage.id in _NUMBERS:
        return _NUMBERS[storage.id]
    if pat.is_boolean(storage):
        return BITS, Order.UNSIGNED
    if pat.is_time32(storage):
        return number(PhysicalKind.INT32), Order.SIGNED
    if pat.is_time64(storage) or pat.is_timestamp(storage) or pat.is_duration(storage):
        return number(PhysicalKind.INT64), Order.SIGNED
    if pat.is_decimal(storage):
        return _decimal(storage), Order.DECIMAL
    if pat.is_interval(storage):
        return PhysicalType(PhysicalKind.FIXED, storage.byte_width), Order.NONE
    if pat.is_fixed_size_binary(storage):
        return PhysicalType(PhysicalKind.FIXED, storage.byte_width), Order.BYTES
    if is_string_like(storage):
        return BINARY, Order.BYTES
    return None


def _decimal(storage: pa.DataType) -> PhysicalType:
    if storage.byte_width == 4:
        return number(PhysicalKind.INT32)
    if storage.byte_width == 8:
        return number(PhysicalKind.INT64)
    return PhysicalType(PhysicalKind.FIXED, storage.byte_width)


def is_string_like(storage: pa.DataType) -> bool:
    """Whether values are byte strings of any length: string, binary, large and view forms."""
    return (
        pat.is_string(storage)
        or pat.is_large_string(storage)
        or pat.is_binary(storage)
        or pat.is_large_binary(storage)
        or pat.is_string_view(storage)
        or pat.is_binary_view(storage)
    )


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are text: string, large string or string view."""
    return pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype)


def _form(physical: PhysicalType, storage: pa.DataType) -> Form | None:
    kind = physical.kind
    if kind is PhysicalKind.BITS:
        return ord("b"), 1
    if kind is PhysicalKind.BINARY:
        if pat.is_string(storage) or pat.is_binary(storage):
            return ord("s"), 4
        if pat.is_large_string(storage) or pat.is_large_binary(storage):
            return ord("s"), 8
        return None
    if kind is PhysicalKind.FIXED:
        return (ord("V"), physical.width) if physical.width else None
    return ord(physical.dtype.kind), physical.dtype.itemsize


def child_fields(dtype: pa.DataType) -> list[pa.Field]:
    """The fields directly inside a type: of a map its key and its value."""
    if pat.is_map(dtype):
        return [dtype.key_field, dtype.item_field]
    return [dtype.field(at) for at in range(dtype.num_fields)]


def with_child_fields(dtype: pa.DataType, children: Sequence[pa.Field]) -> pa.DataType:
    """A struct, map or list of other fields; views of lists become lists."""
    if pat.is_struct(dtype):
        return pa.struct(children)
    if pat.is_map(dtype):
        return pa.map_(*children, keys_sorted=dtype.keys_sorted)
    if pat.is_fixed_size_list(dtype):
        return pa.list_(children[0], dtype.list_size)
    large = pat.is_large_list(dtype) or pat.is_large_list_view(dtype)
    return pa.large_list(children[0]) if large else pa.list_(children[0])


def with_wide_floats(field: pa.Field) -> pa.Field:
    """A field with ``float32`` in place of ``float16``, wherever it lies: values are equal."""
    return with_leaf_types(field, lambda leaf: pa.float32() if pat.is_float16(leaf) else leaf)


def with_leaf_types(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """A field whose types without children are changed, wherever they lie; not in extensions."""
    dtype = field.type
    if isinstance(dtype, pa.BaseExtensionType):
        return field
    if pat.is_dictionary(dtype):
        values = change(dtype.value_type)
        return field.with_type(pa.dictionary(dtype.index_type, values, dtype.ordered))
    if not dtype.num_fields:
        return field.with_type(change(dtype))
    before = child_fields(dtype)
    after = [with_leaf_types(child, change) for child in before]
    return field if after == before else field.with_type(with_child_fields(dtype, after))
