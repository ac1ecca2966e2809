"""Which columns a caller asked for, and which a filter reads; what is found is remembered.

Names and paths become column trees, pruned below structs; filters are bound to the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.arguments import integer, names_like, several
from fermion.bounded_cache import BoundedCache
from fermion.columns.maps import Key, has_shreddable_keys, key_name, parse_key, split_key_name
from fermion.columns.types import Node, NodeKind, is_variant
from fermion.errors import ColumnNotFoundError, InvalidArgumentError, column_not_found
from fermion.exports import LoadedWhenAskedFor, NamedTuple, dataclass
from fermion.layout import BLOB_KEY, ChunkFlag
from fermion.metadata.cmb import ColumnBlock
from fermion.metadata.file_info import VIRTUAL_COLUMNS
from fermion.metadata.map_keys import MapKeys, VariantPaths
from fermion.pages.global_dictionary import DictionaryRecord, dictionary_record
from fermion.predicate import (
    VALUE,
    Expression,
    KeyCondition,
    VariantCondition,
    VariantValue,
    bind,
    candidate_names,
    parse_filter,
    rename_columns,
    transform,
    with_keys,
)
from fermion.predicate.expression import IsIn
from fermion.reading.index import FileIndex

if TYPE_CHECKING:
    from fermion.predicate import sql, variant_value
    from fermion.variant import values as variant_values
else:  # few files have Variant columns, or blobs whose lengths a filter asks for
    sql = LoadedWhenAskedFor("fermion.predicate.sql")
    variant_value = LoadedWhenAskedFor("fermion.predicate.variant_value")
    variant_values = LoadedWhenAskedFor("fermion.variant.values")

_Name = str | tuple[str, ...] | int
ColumnName = _Name | VariantValue


@dataclass(frozen=True, slots=True)
class Projected:
    """One column of a result.

    ordinal: The column's ordinal; -1 for a virtual column of batch mode.
    field: The field of the result.
    tree: Its tree without the fields that nobody asked for; None for a virtual column, and for a
        part that is looked up. Columns of one shape may share it, under the name of any.
    as_dictionary: Whether the result is an Arrow dictionary.
    shared: The dictionary of the result, where all stripes share one; else each has its own.
    of, key: The column that a part is looked up in, which has no column; and the part.
    """

    ordinal: int
    field: pa.Field
    tree: Node | None = None
    as_dictionary: bool = False
    shared: DictionaryRecord | None = None
    of: Projected | None = None
    key: Key | VariantValue | None = None

    @property
    def node(self) -> Node | None:
        """The tree under the column's own name."""
        return None if self.tree is None else self.tree.renamed(self.field.name)


def project(index: FileIndex, columns: Sequence[ColumnName] | None) -> list[Projected]:
    """Resolve what a caller asked for, in the order asked.

    columns: Names, ordinals, and where no column has the whole name dotted paths into structs and
        patterns (``"f_*"``); or tuples of names; or parts of Variant columns; None for every
        column. Several paths into one struct give one column.
    Raises ColumnNotFoundError, InvalidArgumentError.
    """
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns={columns!r}: expected a list of names")
    names: list[_Name] | None = None
    if columns is not None:  # 1, 1.0 and True are one to a dictionary
        names = [
            each
            if isinstance(each, (str, tuple))
            else each.to_sql()
            if isinstance(each, VariantValue)
            else integer(each, "columns")
            for each in several(columns, "columns", "a list of names")
        ]
    layout = index.layout
    if layout is None and _is_most(index, names):
        layout = index.layout_hash
    if layout is None:
        return _project(index, names)
    key = layout, None if names is None else tuple(names)
    try:
        known: tuple[Projected, ...] | None = _known.get(key)
    except TypeError:  # a name that can't be hashed is none
        return _project(index, names)
    if known is None:
        known = tuple(_project(index, names))
        _known.put(key, known, max(len(known), COLUMNS_KNOWN_MAX // FILES_KNOWN_MAX))
    return list(known)


FILES_KNOWN_MAX = 128
COLUMNS_KNOWN_MAX = 64 * 1024
MOST_COLUMNS_MIN = 64
MOST_COLUMNS_PART = 16
"""Of a file of which a query asks for at least this part of the columns, all names are read."""
_known = BoundedCache(COLUMNS_KNOWN_MAX)
"""Results of `project`, by the layout of the file: a table's files are mostly alike."""


def _is_most(index: FileIndex, columns: Sequence[_Name] | None) -> bool:
    """Whether so many columns are asked for that looking at all is no more work."""
    if columns is None:
        return True
    count = len(columns)
    return count >= MOST_COLUMNS_MIN and count * MOST_COLUMNS_PART >= index.footer.num_columns


SCHEMA_COLUMNS_MAX = 64
"""Of a result whose schema is remembered."""
_schemas = BoundedCache(FILES_KNOWN_MAX)
"""By the identity of the columns, which are kept alive here: files alike share theirs."""


def read_by(expression: Expression, columns: Sequence[Projected]) -> list[Projected]:
    """Those of some columns that a filter reads."""
    names = {path[0] for path in expression.columns()}
    return [column for column in columns if column.field.name in names]


def result_schema(
    columns: Sequence[Projected], metadata: dict[bytes, bytes] | None = None
) -> pa.Schema:
    """The schema of a result."""
    if len(columns) > SCHEMA_COLUMNS_MAX:
        return pa.schema([column.field for column in columns], metadata=metadata)
    key = (metadata is None, *map(id, columns))
    known: tuple[Sequence[Projected], pa.Schema] | None = _schemas.get(key)
    if known is None or known[1].metadata != metadata:
        schema = pa.schema([column.field for column in columns], metadata=metadata)
        known = tuple(columns), schema
        _schemas.put(key, known)
    return known[1]


def _project(index: FileIndex, columns: Sequence[_Name] | None) -> list[Projected]:
    if columns is None:
        ordinals = range(index.footer.num_columns)
        return list(map(Projected, ordinals, index.all_fields(), index.all_trees()))
    if _is_most(index, columns):
        whole = _whole_columns(index, columns)
        if whole is not None:
            fields, trees = index.all_fields(), index.all_trees()
            return [Projected(each, fields[each], trees[each]) for each in whole]
    wanted: dict[int | str | tuple[int, Key], list[tuple[str, ...]]] = {}
    for column in columns:
        if index.footer.is_batch and column in VIRTUAL_COLUMNS:
            wanted.setdefault(str(column), []).append(())
            continue
        key = find_key(index, column)
        if key is None and isinstance(column, str) and column.endswith(")"):
            key = _find_value(index, column)
        if key is not None:
            wanted.setdefault(key, []).append(())
            continue
        for ordinal, below in _resolve(index, column):
            wanted.setdefault(ordinal, []).append(below)
    return [_projected(index, key, paths) for key, paths in wanted.items()]


def _whole_columns(index: FileIndex, columns: Sequence[_Name]) -> list[int] | None:
    """Ordinals of many columns; None where not each is the name of one column, and of another."""
    names = index.all_names
    ordinals = {name: ordinal for ordinal, name in enumerate(names)}
    if len(ordinals) < len(names):
        return None
    given = [each[0] if isinstance(each, tuple) and len(each) == 1 else each for each in columns]
    try:
        found = [ordinals[each] for each in given]  # type: ignore[index]
    except (KeyError, TypeError):
        return None
    return found if len(set(found)) == len(found) else None


def keep_dictionaries(index: FileIndex, columns: Sequence[Projected]) -> list[Projected]:
    """The same columns, as Arrow dictionaries where all stripes share one or each has its own.

    Only top-level columns of scalars; the indices are int32. Columns that are Arrow dictionaries
    anyway keep their type, and get the one that all stripes share.
    """
    scalar = [
        each.node is not None and each.node.kind is NodeKind.LEAF and _is_bare(each.node)
        for each in columns
    ]
    ordinals = [each.ordinal for each, wanted in zip(columns, scalar, strict=True) if wanted]
    blocks = iter(index.blocks(ordinals))
    return [
        _as_dictionary(each, next(blocks)) if wanted else each
        for each, wanted in zip(columns, scalar, strict=True)
    ]


def _is_bare(node: Node) -> bool:
    """Whether a leaf has no wrapper, or that of a dictionary alone."""
    own = node.type.value_type if pat.is_dictionary(node.type) else node.type
    return own.equals(node.storage)


def _as_dictionary(column: Projected, block: ColumnBlock | None) -> Projected:
    if block is None or not block.num_stripes or column.node is None:
        return column
    stored = [chunk for _, chunk in block.stored(column.node.stream)]
    shared = None
    if stored and all(chunk.flags & ChunkFlag.USES_GLOBAL_DICT for chunk in stored):
        shared = dictionary_record(block, stored[-1])
    elif not stored or not all(chunk.flags & ChunkFlag.FIRST_PAGE_IS_DICT for chunk in stored):
        return column
    dtype = pa.dictionary(pa.int32(), column.node.storage)
    if pat.is_dictionary(column.node.type):
        dtype = column.node.type
        if dtype.ordered:  # has a dictionary of its own
            return column
        if shared is None or shared.count - 1 > np.iinfo(dtype.index_type.to_pandas_dtype()).max:
            return column
    return replace(column, field=column.field.with_type(dtype), as_dictionary=True, shared=shared)


def _projected(
    index: FileIndex, key: int | str | tuple[int, Key], paths: list[tuple[str, ...]]
) -> Projected:
    if isinstance(key, str):
        return Projected(-1, pa.field(key, pa.int64(), nullable=False))
    if isinstance(key, tuple):
        return _projected_key(index, *key)
    node, field = index.node(key), index.field(key)
    if () in paths:
        return Projected(key, field, node)
    pruned = _prune(node, paths, index.where)
    return Projected(key, field.with_type(pruned.type), pruned)


def _has_keys(index: FileIndex, name: str) -> bool:
    """Whether a column is a map with integers as keys."""
    found = index.names.find(name)
    dtype = index.field(found[0], name).type if len(found) == 1 else pa.null()
    return has_shreddable_keys(dtype) and pa.types.is_integer(dtype.key_type)


def find_key(index: FileIndex, column: _Name) -> tuple[int, Key] | None:
    """The map and the key that a path means: ``features['age']``, or a tuple of both.

    Raises InvalidArgumentError: The key is no value of the type of the map's keys.
    """
    if isinstance(column, int):
        return None
    path: tuple[str, ...] = (column,) if isinstance(column, str) else column
    if len(path) == 1 and path[0].endswith("]") and not index.names.find(path[0]):
        path = split_key_name(path[0]) or path
    if len(path) != 2:
        return None
    found = index.names.find(path[0])
    if len(found) != 1 or not has_shreddable_keys(dtype := index.field(found[0], path[0]).type):
        return None
    return found[0], parse_key(dtype, path[1], f"{index.where}: column {path[0]!r}")


def _projected_key(index: FileIndex, ordinal: int, key: Key) -> Projected:
    """The value of a key of a map: its column, or where it has none a look-up in the map.

    Of a Variant, too; its keys are calls of ``variant_get``.
    """
    field, keys = index.field(ordinal), index.map_keys.get(ordinal)
    if isinstance(key, str) and is_variant(field):
        value = variant_value.parse_value(key, index.where)
        assert value is not None
        return _projected_value(index, ordinal, value)
    name = key_name(field.name, key)
    own = keys.find(key) if keys is not None else None
    result = pa.field(name, field.type.item_type)
    if isinstance(keys, MapKeys) and own is not None:
        return Projected(own, result, keys.node.renamed(name))
    whole = Projected(ordinal, field, index.node(ordinal))
    return Projected(-1, result, of=whole, key=key)


def _find_value(index: FileIndex, text: str) -> tuple[int, str] | None:
    """The column and the call in one form, if a name calls ``variant_get``; None: it is another.

    Raises ColumnNotFoundError, InvalidArgumentError.
    """
    if index.names.find(text):
        return None
    value = variant_value.parse_value(text, f"{index.where}: column {text!r}")
    if value is None:
        return None
    ordinal = _named(index, value.path[0])
    variant_value.check_variant(value, index.field(ordinal))
    return ordinal, value.to_sql()


def _projected_value(index: FileIndex, ordinal: int, value: VariantValue) -> Projected:
    """A part of a Variant: the column of its path if it has the type that is asked for.

    Else the part is made of that column, where in no stripe a value of the path is elsewhere, or of
    the Variant column.
    """
    name, paths = value.to_sql(), index.map_keys.get(ordinal)
    own = part_columns(paths, value) if isinstance(paths, VariantPaths) else None
    of = Projected(ordinal, index.field(ordinal), index.node(ordinal))
    if isinstance(value, variant_value.PrunedVariant):
        value = value.of(value.path[0], of.field.type)
        if isinstance(paths, VariantPaths) and paths.places_below(*value.wanted)[1]:
            # A struct without its fields still says where it is null.
            bare = pa.struct([])
            of = replace(
                of, tree=replace(index.node(ordinal), type=bare, storage=bare, children=())
            )
    elif own and isinstance(paths, VariantPaths):
        (of_path,) = own
        if paths.complete[:, of_path.ordinal - paths.first].all():
            of = of_path
            assert of.tree is not None
            if of.tree.type.equals(value.type):
                return replace(of, field=pa.field(name, value.type), tree=of.tree.renamed(name))
    return Projected(-1, pa.field(name, value.type), of=of, key=value)


def part_columns(keys: VariantPaths, value: VariantValue) -> list[Projected] | None:
    """The columns of paths that a part is made of, besides the rest; None: of all of them."""
    if isinstance(value, variant_value.PrunedVariant):
        return keys_columns(keys, keys.places_below(*value.wanted)[0])
    places = keys.places_of(value.steps, value.type)
    types = [keys.node_at(place).type for place in places or ()]
    if places is None or not all(variant_values.is_cast_alike(each, value.type) for each in types):
        return None
    return keys_columns(keys, places)


def keys_columns(
    keys: MapKeys | VariantPaths, places: Iterable[int] | None = None
) -> list[Projected]:
    """The columns of some keys of a map, or paths (None: of all), as they are stored."""
    chosen = range(keys.count) if places is None else places
    if isinstance(keys, VariantPaths):
        nodes = map(keys.node_at, chosen)
        return [
            Projected(keys.first + place, pa.field("", node.type), node)
            for place, node in zip(chosen, nodes, strict=True)
        ]
    field, node = pa.field("", keys.node.type), keys.node.renamed("")
    return [Projected(keys.first + place, field, node) for place in chosen]


def _resolve(index: FileIndex, column: _Name) -> list[tuple[int, tuple[str, ...]]]:
    if isinstance(column, int):
        if not 0 <= column < index.footer.num_columns:
            raise column_not_found(column, index.all_names, where=index.where)
        return [(column, ())]
    if isinstance(column, tuple):
        if not column:
            raise InvalidArgumentError(f"{index.where}: an empty path names no column")
        return [(_named(index, column[0]), column[1:])]
    if ("." in column or "*" in column) and not index.names.find(column):
        parts = column.split(".")
        for split in range(len(parts) - 1, 0, -1):
            head = ".".join(parts[:split])
            if index.names.find(head):
                return [(index.find(head), tuple(parts[split:]))]
        if "*" in column and (found := names_like(column, index.all_names)):
            return [(ordinal, ()) for ordinal in found]
    return [(_named(index, column), ())]


def _named(index: FileIndex, name: str) -> int:
    ordinal = index.find(name)
    index.field(ordinal, name)
    return ordinal


def _prune(node: Node, paths: list[tuple[str, ...]], where: str) -> Node:
    """The tree with only the fields that the paths name; stream ordinals stay what they are."""
    if any(not path for path in paths):
        return node
    if node.kind is not NodeKind.STRUCT or not pat.is_struct(node.type):
        raise ColumnNotFoundError(
            f"{where}: column {node.name!r} is {node.type}, which has no field {paths[0][0]!r}"
        )
    wanted: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        wanted.setdefault(path[0], []).append(path[1:])
    known = {child.name: child for child in node.children}
    for name in wanted:
        if name not in known:
            raise column_not_found(name, known, where=f"{where}: column {node.name!r}")
    children = [
        _prune(child, wanted[child.name], where) for child in node.children if child.name in wanted
    ]
    fields = [
        node.type.field(child.name).with_type(pruned.type)
        for child, pruned in zip(
            (child for child in node.children if child.name in wanted), children, strict=True
        )
    ]
    dtype = pa.struct(fields)
    return replace(node, type=dtype, storage=dtype, children=tuple(children))


class KnownNames:
    """A file's column names, decoded only when an error message wants to suggest some."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index

    def __iter__(self) -> Iterator[str]:
        yield from self._index.all_names
        if self._index.footer.is_batch:
            yield from VIRTUAL_COLUMNS


FILTERS_KNOWN_MAX = 64
VALUES_KNOWN_MAX = 1000
"""Of the lists in a filter that is remembered."""


class BoundFilter(NamedTuple):
    """A filter, and the columns that it reads; None and none: all rows."""

    expression: Expression | None
    columns: Sequence[Projected]


_known_filters = BoundedCache(FILTERS_KNOWN_MAX)
"""By the layout of the file and the identity of the filter, which is kept alive here."""


def bound_filter(index: FileIndex, given: Any) -> BoundFilter:
    """A filter resolved against only the columns that it names.

    Raises ColumnNotFoundError, InvalidArgumentError.
    """
    expression = parse_filter(given)
    if expression is None:
        return BoundFilter(None, ())
    layout = index.layout if expression is given else None
    if layout is None:
        return _bound(index, expression)
    known: tuple[Expression, BoundFilter] | None = _known_filters.get((layout, id(expression)))
    if known is None:
        known = expression, _bound(index, expression)
        values = sum(len(node.values) for node in expression.walk() if isinstance(node, IsIn))
        if values <= VALUES_KNOWN_MAX:
            _known_filters.put((layout, id(expression)), known)
    return known[1]


def _with_sizes(index: FileIndex, node: Expression) -> Expression:
    """A leaf of a filter that takes stored sizes for lengths of blobs, which it need not read."""

    def is_blob(name: str) -> bool:
        found = index.names.find(name)
        return len(found) == 1 and BLOB_KEY in (index.field(found[0], name).metadata or ())

    return sql.with_sizes(node, is_blob, index.where)


def _bound(index: FileIndex, expression: Expression) -> BoundFilter:
    expression = transform(expression, lambda node: with_keys(node, partial(_has_keys, index)))
    if index.footer.has_blobs:
        expression = transform(expression, partial(_with_sizes, index))
    keys = {
        path: (key_name(index.field(key[0]).name, key[1]),)
        for path in expression.columns()
        if (key := find_key(index, path)) is not None
    }
    expression = rename_columns(expression, keys) if keys else expression

    of_paths: dict[str, Projected] = {}

    def of_file(node: Expression) -> Expression:
        if isinstance(node, VariantCondition):
            value = node.value.of(node.paths[0][0])
            ordinals = index.names.find(value.path[0])
            if not any(isinstance(index.map_keys.get(each), VariantPaths) for each in ordinals):
                return node
            column = _projected_value(index, ordinals[0], value)
            if column.tree is None and value.needs_whole:
                return node
            of_paths[name := column.field.name] = column
            if column.tree is None:
                return replace(node, paths=((name,),), value=value)
            return rename_columns(node.inner, {VALUE: (name,)})
        if not isinstance(node, KeyCondition):
            return node
        return rename_columns(node.inner, {VALUE: (key_name(node.paths[0][0], node.key),)})

    expression = transform(expression, of_file)
    names = candidate_names(expression)
    if names is None:
        columns = project(index, None)
    else:
        batch = VIRTUAL_COLUMNS if index.footer.is_batch else ()
        found: list[ColumnName] = [name for name in batch if name in names]
        found += [
            (name,)
            for name in sorted(names.difference(batch))
            if index.names.find(name) or find_key(index, name) is not None
        ]
        columns = project(index, found)
    columns = [*columns, *of_paths.values()]
    schema = pa.schema([column.field for column in columns])
    bound = bind(expression, schema, where=index.where, known=KnownNames(index))
    used = {path[0] for path in bound.columns()} if names is not None else set(schema.names)
    return BoundFilter(bound, tuple(each for each in columns if each.field.name in used))
