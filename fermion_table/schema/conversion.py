"""Making arrays of one schema from arrays of another: planned as a value, then applied.

A `Conversion` says how one field comes about: as it is, by a cast, by putting a nested array
together again around converted children, or from a constant. `plan_reading` matches fields by
id, for files written under an older schema; `plan_writing` by name, for the data of users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion import engine
from fermion.arguments import first_repeated
from fermion.engine import filled_bytes, is_variant, numbers_of
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.errors import SchemaMismatch
from fermion_table.schema.repeated import nulls, repeat, scalar_bytes
from fermion_table.schema.schema import ELEMENT, KEY, VALUE, Field, TableSchema, field_to_arrow
from fermion_table.schema.widening import can_cast_checked, cast_checked, is_list_view


@dataclass(frozen=True, slots=True)
class Conversion:
    """How one field is made.

    field: What is made, exactly.
    source: Ordinal of the field it is made from among its siblings; None: every value is
        `constant`.
    constant: None is null.
    cast: Whether values are cast.
    children: How the children are made, where a nested array is put together again; None otherwise.
    """

    field: pa.Field
    source: int | None = None
    constant: pa.Scalar | None = None
    cast: bool = False
    children: tuple[Conversion, ...] | None = None

    @property
    def is_trivial(self) -> bool:
        """Whether the source's values are used as they lie (names may differ)."""
        return self.source is not None and not self.cast and self.children is None


def convert(conversion: Conversion, array: pa.Array) -> pa.Array:
    """An array of exactly the conversion's type; a view where nothing has to change.

    Raises SchemaMismatch: A value does not fit.
    """
    if conversion.source is None:
        return constant_array(conversion, len(array))
    if conversion.cast:
        array = _cast(array, conversion.field)
    if conversion.children is not None:
        array = _rebuild(conversion, array)
    return relabel(array, conversion.field)


def convert_batch(
    conversions: Sequence[Conversion], batch: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    """A batch of exactly this schema, whose fields the conversions make."""
    if batch.num_rows and batch.schema.equals(schema) and _stays(conversions):
        if batch.schema.equals(schema, check_metadata=True):
            return batch
        # Many columns get another schema's metadata at once.
        return pa.Table.from_batches([batch], schema=schema).to_batches()[0]
    arrays = []
    for conversion in conversions:
        if conversion.source is None:
            arrays.append(constant_array(conversion, batch.num_rows))
        else:
            arrays.append(convert(conversion, batch.column(conversion.source)))
    if not arrays:
        return empty_columns(schema, batch.num_rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _stays(conversions: Sequence[Conversion]) -> bool:
    """Whether every column is used as it lies, where it lies."""
    places = [None if each.cast or each.children else each.source for each in conversions]
    return places == list(range(len(places)))


def empty_columns(schema: pa.Schema, num_rows: int) -> pa.RecordBatch:
    """A batch without columns that has rows all the same."""
    struct = pa.Array.from_buffers(pa.struct([]), num_rows, [None])
    return pa.RecordBatch.from_struct_array(struct).replace_schema_metadata(schema.metadata)


def constant_array(conversion: Conversion, length: int) -> pa.Array:
    """The constant, so many times."""
    field, constant = conversion.field, conversion.constant
    try:
        if constant is None or not constant.is_valid:
            return nulls(field.type, length)
        return relabel(repeat(constant, length), field)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"column {field.name!r}: {error}") from None


def filled_bytes_of(conversions: Iterable[Conversion]) -> int:
    """Bytes of each row in columns that are made of nothing, but below lists."""
    total = 0
    for conversion in conversions:
        if conversion.source is not None:
            if pat.is_struct(conversion.field.type):
                total += filled_bytes_of(conversion.children or ())
        elif conversion.constant is None:
            total += filled_bytes(conversion.field.type)
        else:
            total += scalar_bytes(conversion.constant)
    return total


class _Relabelled:
    """An array's memory under another type of the same layout, by the Arrow C data interface."""

    def __init__(self, array: pa.Array, field: pa.Field) -> None:
        self._array, self._field = array, field

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self._field.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def relabel(array: pa.Array, field: pa.Field) -> pa.Array:
    """The same memory as an array of a type that differs in names, nullability and metadata."""
    dtype = field.type
    if array.type.equals(dtype, check_metadata=True):
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        inner = relabel(array.storage, pa.field("", dtype.storage_type))
        return pa.ExtensionArray.from_storage(dtype, inner)
    if pat.is_struct(dtype):
        children = [relabel(array.field(at), child) for at, child in enumerate(dtype)]
        return pa.Array.from_buffers(dtype, len(array), [_validity(array)], children=children)
    if dtype.num_fields and not pat.is_run_end_encoded(dtype):
        return _around(relabel(array.values, dtype.field(0)), array, dtype)
    return pa.array(_Relabelled(array, field))


def _around(values: pa.Array, array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """A list, map or fixed-size list like another one, around other values."""
    count = 1 if pat.is_fixed_size_list(dtype) else 3 if is_list_view(dtype) else 2
    buffers = array.buffers()[:count]
    return pa.Array.from_buffers(dtype, len(array), buffers, offset=array.offset, children=[values])


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    dtype = field.type
    if is_variant(field) and is_variant(
        pa.field("", array.type)
    ):  # libraries have their own types of bytes
        target, batch = pa.schema([field]), pa.record_batch([array], [field.name])
        return engine.convert_batch(batch, target, SchemaMismatch).column(0)
    try:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        storage = dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype
        if pat.is_dictionary(array.type) and not pat.is_dictionary(storage):
            array = _decoded(array)
        stored = cast_checked(array, storage)
        return stored if storage == dtype else stored.cast(dtype)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"column {field.name!r}: a value of type {array.type} does not fit {dtype}: {error}"
        ) from None


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """The values of a dictionary array; Arrow takes none of views."""
    values = array.dictionary
    if pat.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pat.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def _rebuild(conversion: Conversion, array: pa.Array) -> pa.Array:
    children = conversion.children
    assert children is not None
    dtype = conversion.field.type
    if pat.is_struct(dtype):
        return _rebuild_struct(children, array)
    if pat.is_map(dtype):
        # Not `keys` and `items`: those forget where a sliced entries array begins.
        entries = array.values
        pair = [convert(child, entries.field(at)) for at, child in enumerate(children)]
        inner = pa.StructArray.from_arrays(pair, fields=[child.field for child in children])
    elif array.type.id != dtype.id:
        return _regroup(children[0], array, dtype)
    else:
        inner = convert(children[0], array.values)
    return _around(inner, array, dtype)


def _regroup(child: Conversion, array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """A list of another kind: the elements in order, under new offsets."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    wide = pat.is_large_list(dtype) or pat.is_large_list_view(dtype)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if not wide and offsets[-1] > np.iinfo(np.int32).max:
        raise SchemaMismatch(f"{offsets[-1]} list elements in one batch do not fit {dtype}")
    width = np.int64 if wide else np.int32
    buffers = [_validity(array), pa.py_buffer(offsets.astype(width))]
    if is_list_view(dtype):
        buffers.append(pa.py_buffer(lengths.astype(width)))
    inner = convert(child, array.flatten())
    return pa.Array.from_buffers(dtype, len(array), buffers, children=[inner])


def _validity(array: pa.Array) -> pa.Buffer | None:
    return array.is_valid().buffers()[1] if array.null_count else None


def _rebuild_struct(children: Sequence[Conversion], array: pa.StructArray) -> pa.Array:
    made = []
    for child in children:
        if child.source is None:
            made.append(constant_array(child, len(array)))
        else:
            made.append(convert(child, array.field(child.source)))
    mask = array.is_null() if array.null_count else None
    if not made:
        return pa.Array.from_buffers(pa.struct([]), len(array), [_validity(array)])
    fields = [child.field for child in children]
    return pa.StructArray.from_arrays(made, fields=fields, mask=mask)


def plan_reading(
    targets: Iterable[Field],
    sources: Sequence[Field],
    *,
    all_null: Collection[int] = (),
    field_ids: bool = False,
) -> list[Conversion]:
    """How the columns of a query are made from those of a file, matched by id.

    targets: Fields of the table's schema.
    sources: Fields of the file, in the order of its batches.
    all_null: Ids of fields that the file knows, and in which every row is null.
    field_ids: Whether what is made has field ids in its metadata.
    Returns: One a target. A field that the file lacks is its initial default, or null.
    """
    ordinals = {source.id: ordinal for ordinal, source in enumerate(sources)}
    return [
        Conversion(field_to_arrow(target, field_ids=field_ids))
        if target.id in all_null
        else _reading(target, sources, ordinals, field_ids)
        for target in targets
    ]


def _reading(
    target: Field, sources: Sequence[Field], ordinals: dict[int, int], field_ids: bool
) -> Conversion:
    field = field_to_arrow(target, field_ids=field_ids)
    ordinal = ordinals.get(target.id)
    if ordinal is None:
        return Conversion(field, constant=target.initial_default)
    source = sources[ordinal]
    if source.stored_type == "null" != target.stored_type:
        return Conversion(field)
    if not target.children or target.kind != source.kind:
        same = source.stored_type == target.stored_type
        return Conversion(field, ordinal, cast=not same)
    children = plan_reading(target.children, source.children, field_ids=field_ids)
    return _nested(field, ordinal, children, len(source.children))


def _nested(
    field: pa.Field,
    ordinal: int,
    children: Sequence[Conversion],
    source_children: int,
    *,
    regroup: bool = False,
) -> Conversion:
    """A nested field; one whose children all stay as they lie is not put together again."""
    in_place = [child.source for child in children] == list(range(source_children))
    if in_place and not regroup and all(child.is_trivial for child in children):
        return Conversion(field, ordinal)
    return Conversion(field, ordinal, children=tuple(children))


def plan_writing(schema: TableSchema, data: pa.Schema) -> list[Conversion]:
    """How the columns of a table are made from those of a user's data, matched by name.

    Types are cast where no value can change; what the data lacks is the write default, or null.

    Raises SchemaMismatch: Shows every field that does not fit.
    """
    problems: list[str] = []
    fields = list(schema.to_arrow())
    conversions = _match_names(schema.fields, fields, list(data), (), problems)
    if problems:
        raise SchemaMismatch(
            "the data does not fit the table's schema (- the table has it, + the data has it, "
            "~ both have it):\n" + "\n".join(f"  {problem}" for problem in problems)
        )
    return conversions


def plan_column(target: Field, data: pa.DataType) -> Conversion:
    """How one column is made from the values of a user's, the first of a batch.

    Raises SchemaMismatch: The types do not fit.
    """
    problems: list[str] = []
    found = pa.field(target.name, data)
    field = field_to_arrow(target, field_ids=True)
    conversion = _writing(target, field, found, 0, (target.name,), problems)
    if problems:
        raise SchemaMismatch("; ".join(problem.removeprefix("~ ") for problem in problems))
    return conversion


def _match_names(
    targets: Sequence[Field],
    fields: Sequence[pa.Field],
    found: Sequence[pa.Field],
    path: tuple[str, ...],
    problems: list[str],
) -> list[Conversion]:
    """``fields`` are the targets as Arrow's, with field ids."""
    ordinals = {field.name: ordinal for ordinal, field in enumerate(found)}
    repeated = first_repeated(field.name for field in found) if len(ordinals) < len(found) else None
    if repeated is not None:
        where = _text(path, repeated)
        problems.append(f"+ {where}: the data has more than one column of this name")
    names = {target.name for target in targets}
    conversions = []
    for target, field in zip(targets, fields, strict=True):
        ordinal = ordinals.get(target.name)
        if ordinal is None:
            where = _text(path, target.name)
            conversions.append(_missing(target, field, where, problems))
        else:
            below = (*path, target.name)
            conversions.append(_writing(target, field, found[ordinal], ordinal, below, problems))
    for field in found:
        if field.name not in names:
            problems.append(f"+ {_text(path, field.name)}: {field.type}: not in the table")
    return conversions


def _missing(target: Field, field: pa.Field, where: str, problems: list[str]) -> Conversion:
    constant = target.write_default
    if constant is None and not target.nullable:
        problems.append(f"- {where}: {field.type} not null: not in the data, and it has no default")
    return Conversion(field, constant=constant)


def _writing(
    target: Field,
    field: pa.Field,
    found: pa.Field,
    ordinal: int,
    path: tuple[str, ...],
    problems: list[str],
) -> Conversion:
    if field.type.equals(found.type):
        return Conversion(field, ordinal)
    if pat.is_null(found.type):
        return Conversion(field, ordinal, cast=True)
    nested = _writing_nested(target, field, found, ordinal, path, problems)
    if nested is not None:
        return nested
    is_cast = not target.children and can_cast_checked(found.type, field.type)
    if is_cast or (is_variant(field) and is_variant(found)):
        return Conversion(field, ordinal, cast=True)
    problems.append(f"~ {'.'.join(path)}: the table has {field.type}, the data has {found.type}")
    return Conversion(field, ordinal)


def _writing_nested(
    target: Field,
    field: pa.Field,
    found: pa.Field,
    ordinal: int,
    path: tuple[str, ...],
    problems: list[str],
) -> Conversion | None:
    dtype = found.type
    fields = [field_to_arrow(child, field_ids=True) for child in target.children]
    if target.kind == "struct" and pat.is_struct(dtype):
        children = _match_names(target.children, fields, list(dtype), path, problems)
        return _nested(field, ordinal, children, dtype.num_fields)
    if target.kind == "map" and pat.is_map(dtype):
        key = _writing(target.children[0], fields[0], dtype.key_field, 0, (*path, KEY), problems)
        value = _writing(
            target.children[1], fields[1], dtype.item_field, 1, (*path, VALUE), problems
        )
        return _nested(field, ordinal, (key, value), 2)
    if len(target.children) == 1 and target.kind != "struct" and _is_list(dtype):
        if target.kind == "fixed_size_list" and (
            not pat.is_fixed_size_list(dtype) or dtype.list_size != field.type.list_size
        ):
            return None
        source = dtype.value_field
        child = _writing(target.children[0], fields[0], source, 0, (*path, ELEMENT), problems)
        return _nested(field, ordinal, (child,), 1, regroup=dtype.id != field.type.id)
    return None


def _is_list(dtype: pa.DataType) -> bool:
    return (
        pat.is_list(dtype)
        or pat.is_large_list(dtype)
        or pat.is_fixed_size_list(dtype)
        or is_list_view(dtype)
    )


def _text(path: tuple[str, ...], name: str) -> str:
    return ".".join((*path, name))


def required_places(fields: Iterable[Field]) -> list[int]:
    """Places of the columns that `find_null` has to look at."""
    return [
        place
        for place, field in enumerate(fields)
        if not field.nullable or not isinstance(field.stored_type, str)
    ]


def find_null(field: pa.Field, array: pa.Array, seen: np.ndarray | None = None) -> str | None:
    """The path of a field that must not be null and is, None if all is well.

    What a null parent hides does not count. Only offsets and validity are looked at, as Arrow
    selects no rows of some types.

    seen: ``bool``, shape (n,): slots that no parent hides; None: all.
    """
    dtype = field.type
    required = not isinstance(dtype, pa.BaseExtensionType) and _has_required(dtype)
    if field.nullable and not required:
        return None
    valid = numbers_of(array.is_valid())
    if not field.nullable and not (valid.all() if seen is None else valid[seen].all()):
        return field.name
    if not required:
        return None
    below = valid if seen is None else valid & seen
    for child, values, inside in _children(dtype, array, below):
        found = find_null(child, values, inside)
        if found is not None:
            return f"{field.name}.{found}"
    return None


def _children(
    dtype: pa.DataType, array: pa.Array, seen: np.ndarray
) -> Iterator[tuple[pa.Field, pa.Array, np.ndarray]]:
    """The fields inside a type, their values in an array, and which of those can be seen."""
    if pat.is_struct(dtype):
        for place, child in enumerate(dtype):
            yield child, array.field(place), seen
    elif pat.is_fixed_size_list(dtype):
        inside = np.zeros(len(array.values), bool)
        start = array.offset * dtype.list_size
        inside[start : start + len(array) * dtype.list_size] = np.repeat(seen, dtype.list_size)
        yield dtype.value_field, array.values, inside
    elif pat.is_map(dtype) or _is_list(dtype):
        starts = array.offsets.to_numpy().astype(np.int64)
        sizes = array.sizes.to_numpy() if is_list_view(dtype) else np.diff(starts)
        starts, sizes = starts[: len(array)][seen], sizes[seen].astype(np.int64)
        steps = np.zeros(len(array.values) + 1, np.int64)
        np.add.at(steps, starts, 1)
        np.add.at(steps, starts + sizes, -1)
        yield dtype.field(0), array.values, np.cumsum(steps[:-1]) > 0


def _has_required(dtype: pa.DataType) -> bool:
    """Whether some field inside a type must not be null."""
    children = [dtype.field(i) for i in range(dtype.num_fields)]
    return any(not child.nullable or _has_required(child.type) for child in children)
