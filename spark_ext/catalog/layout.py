"""Partitions and sort order of a table ⇄ Spark's transforms, both directions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fermion_table import TableSchema
from spark_ext.catalog.callbacks import Jvm
from spark_ext.column_names import quoted
from spark_ext.options import parse_columns

SORT_PROPERTY = "sort_by"
"""The property with a table's sort columns in Spark; `CREATE TABLE` takes it too."""

KEY_PROPERTY = "primary_key"
"""The property with a table's primary key in Spark; `CREATE TABLE` takes it too."""

_TO_SPARK = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_FROM_SPARK = {plural: singular for singular, plural in _TO_SPARK.items()}


def transforms_of(jvm: Jvm, schema: TableSchema) -> Any:
    """The partitions of a table as Spark's transforms."""
    expressions = jvm.type("connector.expressions.Expressions")
    transforms = []
    for field in schema.partition_by:
        arguments = [expressions.column(quoted(schema.by_id[field.source_id].name))]
        if field.parameter:
            arguments.insert(0, expressions.literal(field.parameter))
        listed = jvm.array("connector.expressions.Expression", arguments)
        kind = _TO_SPARK.get(field.transform, field.transform)
        transforms.append(expressions.apply(kind, listed))
    return jvm.array("connector.expressions.Transform", transforms)


def names_in(text: str, key: str, columns: Sequence[str], *, case_sensitive: bool) -> list[str]:
    """The columns that a property lists: with commas between, or as a JSON list; as in a schema.

    Raises InvalidArgumentError: It begins like a JSON list, but is not one.
    """
    return list(map(spelling_of(columns, case_sensitive), parse_columns(text, key)))


def spelling_of(columns: Sequence[str], case_sensitive: bool) -> Callable[[str], str]:
    """A function that gives the name of a column as in a schema; others stay as they are."""
    if case_sensitive:
        return str
    known = {column.lower(): column for column in reversed(columns)}
    known |= {column: column for column in columns}
    return lambda name: known.get(name, known.get(name.lower(), name))


def names_text(names: Sequence[str]) -> str:
    """The inverse of `names_in`."""
    plain = all(name == name.strip() and name and not {*name} & {*",["} for name in names)
    return ", ".join(names) if plain else json.dumps(list(names))


def layout_of(transforms: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Partitions in the spelling of ``fermion_table``, and the sort columns of ``CLUSTER BY``."""
    partition_by, sort_by = [], []
    for transform in transforms:
        names = [".".join(reference.fieldNames()) for reference in transform.references()]
        if transform.name() == "cluster_by":
            sort_by += names
        elif transform.name() == "identity":
            partition_by += names
        else:
            kind = _FROM_SPARK.get(transform.name(), transform.name())
            arguments = [*map(_number, transform.arguments()), *names]
            partition_by.append(f"{kind}({', '.join(filter(None, arguments))})")
    return partition_by, sort_by


def _number(argument: Any) -> str:
    """A literal as text; empty for a column."""
    if argument.getClass().getSimpleName() != "LiteralValue":
        return ""
    value = argument.value()
    return str(value.toString() if hasattr(value, "toString") else value)
