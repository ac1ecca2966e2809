"""Which fields a query needs: of the table by path, of a file by id.

Fields are pruned below structs: ``s.a`` gives the column ``s`` with the field ``a`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from fermion.arguments import names_like
from fermion.engine import (
    VariantValue,
    has_shreddable_keys,
    is_variant,
    key_name,
    looked_up,
    parse_key,
    split_key_name,
)
from fermion.errors import ColumnNotFoundError, InvalidArgumentError, column_not_found
from fermion.exports import LoadedWhenAskedFor, NamedTuple
from fermion.layout import BLOB_KEY
from fermion_table.schema.schema import (
    KIND_COLUMN,
    Field,
    Path,
    PathLike,
    TableSchema,
    field_to_arrow,
    type_text,
)

if TYPE_CHECKING:
    from fermion_table.schema import properties
else:  # few queries name keys by settings
    properties = LoadedWhenAskedFor("fermion_table.schema.properties")

BATCH_ID = Field(id=-1, name="batch_id", stored_type="int64")
INDEX_IN_BATCH = Field(id=-2, name="index_in_batch", stored_type="int64")
BATCH_COLUMNS = (BATCH_ID, INDEX_IN_BATCH)
BATCH_NAMES = (BATCH_ID.name, INDEX_IN_BATCH.name)
"""Columns that files in batch mode have besides the table's own; null in other files."""
ROW_ID = Field(id=-3, name="_row_id", stored_type="int64")
"""Tells a row from all others that the table ever had; a row that is rewritten gets another."""
FIRST_KEY = -100
"""Id of the first key of a map among the columns of a query; those of others are below."""
ROW_KIND = Field(
    id=-4, name=KIND_COLUMN, stored_type="int8", nullable=False, stored_initial_default=0
)
"""The kinds of rows in data files that hold retractions; in others every row is an insertion."""


def queryable_fields(schema: TableSchema) -> tuple[Field, ...]:
    """The table's columns, and the virtual ones: of batches those whose names are not taken."""
    batches = tuple(field for field in BATCH_COLUMNS if field.name not in schema.by_name)
    return schema.fields + batches + (row_id_field(schema),)


def row_id_field(schema: TableSchema) -> Field:
    """`ROW_ID` under the name that it has in a table: see `TableSchema.row_id_name`."""
    return msgspec.structs.replace(ROW_ID, name=schema.row_id_name)


class MapKey(NamedTuple):
    """A key of a map, or a path of a Variant, as a column of a query.

    field: Of the query: it has the type of the values, and a negative id of its own.
    map_id: Of the map, or the Variant.
    """

    field: Field
    map_id: int
    key: str | int | VariantValue

    def values_of(self, array: pa.Array) -> pa.Array:
        """The values of whole maps or Variants."""
        if isinstance(self.key, VariantValue):
            return self.key.values_of(array)
        return looked_up(array, self.key)

    def of_file(self, fields: Iterable[Field]) -> list[Field]:
        """The column of the key in a file with some fields; none where the map is not there."""
        return [
            _key_field(each, self.key, self.field.id) for each in fields if each.id == self.map_id
        ]


def _key_field(field: Field, key: str | int | VariantValue, number: int) -> Field:
    if isinstance(key, VariantValue):
        name, text = key.of(field.name).to_sql(), type_text(key.type)
        if text is None:  # Variant
            return msgspec.structs.replace(field, id=number, name=name)
        return Field(id=number, name=name, stored_type=text)
    (value,) = field.children[1:]
    name = key_name(field.name, key)
    return msgspec.structs.replace(value, id=number, name=name, nullable=True)


def map_key(field: Field, key: str | int | VariantValue, number: int) -> MapKey:
    """A key of a map of the table, or a path of a Variant, under an id that no field has."""
    return MapKey(_key_field(field, key, number), field.id, key)


def map_keys(schema: TableSchema, columns: Sequence[PathLike], *, where: str) -> dict[int, MapKey]:
    """Those of some columns that are keys of maps, or paths of Variants, by their places.

    Raises InvalidArgumentError: A key is no value of the type of the map's keys; or what has the
        path is no Variant.
    """
    found: dict[int, MapKey] = {}
    for place, column in enumerate(columns):
        path = (column,) if isinstance(column, str) else tuple(column)
        if len(path) == 1 and path[0] not in schema.by_name:
            path = split_key_name(path[0]) or path
            if path[0].endswith(")"):
                from fermion.engine import check_variant, parse_value  # few name parts of Variants

                value = parse_value(path[0], f"{where}: column {path[0]!r}")
                if value is not None:
                    field = schema.find(value.path, where=where)
                    check_variant(value, field_to_arrow(field, field_ids=False))
                    found[place] = map_key(field, value, FIRST_KEY - place)
        if len(path) != 2 or path[0] not in schema.by_name:
            continue
        field = schema.by_name[path[0]]
        if has_shreddable_keys(field.type):
            key = parse_key(field.type, path[1], f"{where}: column {path[0]!r}")
            found[place] = map_key(field, key, FIRST_KEY - place)
    return found


def named_keys(schema: TableSchema) -> pa.Schema:
    """Keys that settings name, as a scan calls them."""
    shred = properties.parse_properties(schema.properties).shred
    names = [
        key_name(column, key)
        for column, chosen in shred.items()
        for key in (chosen.keys if isinstance(chosen.keys, tuple) else ())
    ]
    found = map_keys(schema, names, where="table")
    return pa.schema([field_to_arrow(each.field, field_ids=False) for each in found.values()])


def select_columns(
    schema: TableSchema,
    columns: Sequence[PathLike] | None,
    *,
    where: str,
    keys: Mapping[int, MapKey] = MappingProxyType({}),
) -> tuple[Field, ...]:
    """The fields that a caller asked for, in the order asked, pruned below structs.

    columns: Names, names joined by dots, or sequences of names; None: every column of the table.
    keys: Those that are keys of maps or paths of Variants, by their places.
    Raises ColumnNotFoundError: Names the closest matches.
    """
    if columns is None:
        return schema.fields
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns={columns!r}: expected a list of names")
    virtual = {field.name for field in queryable_fields(schema)[len(schema.fields) :]}
    paths = [
        (keys[place].field.name,)
        if place in keys
        else (column,)
        if isinstance(column, str) and column in virtual
        else schema.resolve(column, where=where)
        for place, column in enumerate(columns)
    ]
    fields = (*queryable_fields(schema), *(each.field for each in keys.values()))
    return select_paths(fields, paths, where=where)


def named_columns(
    schema: TableSchema, columns: Sequence[PathLike], *, where: str
) -> list[PathLike]:
    """Columns with names in the places of patterns such as ``"f_*"``, in the order of the table.

    Raises ColumnNotFoundError: A pattern stands for no column.
    """
    named: list[PathLike] = []
    for column in columns:
        if (
            not isinstance(column, str)
            or "*" not in column
            or column in schema.by_name
            or (split_key_name(column) or ("",))[0] in schema.by_name  # a key with an asterisk
        ):
            named.append(column)
            continue
        found = names_like(column, schema.names)
        if not found:
            raise column_not_found(column, schema.names, where=where)
        named += [(schema.names[number],) for number in found]
    return named


def select_paths(
    fields: Sequence[Field], paths: Iterable[Path], *, where: str
) -> tuple[Field, ...]:
    """Fields by path, in order of first mention, pruned below structs.

    Raises ColumnNotFoundError.
    """
    by_name = {field.name: field for field in fields}
    wanted: dict[str, list[Path]] = {}
    for path in paths:
        wanted.setdefault(path[0], []).append(tuple(path[1:]))
    chosen = []
    for name, below in wanted.items():
        if name not in by_name:
            raise column_not_found(name, by_name, where=where)
        chosen.append(_pruned(by_name[name], below, where))
    return tuple(chosen)


def _pruned(field: Field, paths: Sequence[Path], where: str) -> Field:
    if () in paths:
        return field
    if field.kind != "struct":
        (name, *_), hint = paths[0], ""
        if is_variant(field_to_arrow(field, field_ids=False)):
            hint = f"; write variant_get({field.name}, '$.{name}', 'bigint'), or the like"
        elif BLOB_KEY.decode() in field.stored_metadata:
            hint = "; blobs='handles' gives the size of each value"
        where = f"{where}: column {field.name!r}"
        error = column_not_found(name, field.child_names(), where=where)
        raise ColumnNotFoundError(f"{error}{hint}")
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    known = [child.name for child in field.children]
    for name in below.keys() - set(known):
        raise column_not_found(name, known, where=f"{where}: column {field.name!r}")
    return field.with_children(
        _pruned(child, below[child.name], where) for child in field.children if child.name in below
    )


def file_columns(
    targets: Iterable[Field], sources: Sequence[Field]
) -> tuple[list[str | Path], list[Field]]:
    """What to read of a file for some fields of the table.

    targets: Fields of the table, pruned.
    sources: Fields of the file that have data.
    Returns: What to ask the file's reader for, and the fields that its batches then have, in order:
        paths, and the names of columns that are not stored, which a column of the file may have
        too.
    """
    by_id = {source.id: source for source in sources}
    paths: list[str | Path] = []
    found: list[Field] = []
    for target in targets:
        source = by_id.get(target.id)
        if source is not None:
            pruned = _for_target(target, source)
            found.append(pruned)
            paths += [source.name] if source.id < 0 else _paths(pruned, source)
    return paths, found


def _for_target(target: Field, source: Field) -> Field:
    """The part of a file's field that a target is made of."""
    if target.kind != "struct" or source.kind != "struct":
        return source
    targets = {child.id: child for child in target.children}
    wanted = [
        _for_target(targets[child.id], child) for child in source.children if child.id in targets
    ]
    # A struct none of whose fields is wanted still says where it is null: one field tells.
    return source.with_children(wanted or source.children[:1])


def _paths(pruned: Field, source: Field) -> list[Path]:
    if pruned == source:
        return [(source.name,)]
    children = {child.id: child for child in source.children}
    return [
        (source.name, *below)
        for child in pruned.children
        for below in _paths(child, children[child.id])
    ]
