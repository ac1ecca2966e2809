"""Keys of maps whose statistics the entries of data files keep: the property `STATS_KEYS`.

A key is no field. So that entries, packed manifests and plans treat its statistics as those of a
column, it gets an id that no field has.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fermion.engine import has_shreddable_keys, parse_key
from fermion.errors import InvalidArgumentError
from fermion_table.schema.properties import STATS_KEYS, parse_properties
from fermion_table.schema.schema import KeyStatistics, Path, TableSchema
from fermion_table.schema.selection import MapKey, map_key


def with_key_statistics(
    schema: TableSchema, known: Iterable[KeyStatistics] | None = None
) -> TableSchema:
    """A schema with ids for the keys that its property names.

    known: Keys that have ids; None: those of the schema.
    Raises ColumnNotFoundError: A map that is not there.
    Raises InvalidArgumentError: A column that is no map with scalar values and keys that can have
        columns, a key that is no value of its type, or a map whose keys get no columns.
    """
    settings = parse_properties(schema.properties)
    if not settings.statistics_keys and not schema.statistics_keys:
        return schema
    where = f"property {STATS_KEYS!r}"
    known = schema.statistics_keys if known is None else known
    ids = {(each.field, each.key): each.id for each in known}
    last, found = schema.last_field_id, []
    for column, text in settings.statistics_keys:
        field = schema.find((column,), where=where)
        if not has_shreddable_keys(field.type) or field.children[1].children:
            raise InvalidArgumentError(
                f"{where}: column {column!r} is {field.type}, expected a map of text or integers "
                "to values without children"
            )
        if column not in settings.shred:
            raise InvalidArgumentError(
                f"{where}: keys of {column!r} have no columns, and so no statistics: set the "
                f"property 'fermion.shred.{column}', too"
            )
        key = str(parse_key(field.type, text, f"{where}: column {column!r}"))
        number = ids.get((field.id, key))
        if number is None:
            number = last = last + 1
        found.append(KeyStatistics(field=field.id, key=key, id=number))
    unique = {each.id: each for each in found}
    return msgspec.structs.replace(
        schema, statistics_keys=tuple(unique.values()), last_field_id=last
    )


def statistics_of_keys(schema: TableSchema) -> dict[Path, MapKey]:
    """The keys whose statistics entries keep, as filters and writers of files call them."""
    found: dict[Path, MapKey] = {}
    for each in schema.statistics_keys:
        column = schema.by_id.get(each.field)
        if column is not None and has_shreddable_keys(column.type):
            key = map_key(column, parse_key(column.type, each.key, "schema"), each.id)
            found[(key.field.name,)] = key
    return found
