"""Matches the columns of a data frame to those of a table by name, as Spark treats upper case.

Spark reads a table whose column names differ only in case with ``spark.sql.caseSensitive=true``
alone, so without it no such table is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from fermion.engine import strip_wrappers
from fermion.errors import InvalidArgumentError
from spark_ext.types import arrow_type

CASE_SETTING = "spark.sql.caseSensitive"


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether the session's setting tells upper from lower case in names."""
    return spark.conf.get(CASE_SETTING, "false") == "true"


def spelled(frame: st.StructType, table: pa.Schema, *, case_sensitive: bool) -> st.StructType:
    """Rename the fields of a frame's schema, at any depth, to the names of the table's columns.

    frame: Of the data frame.
    table: Of the table.
    case_sensitive: Whether names that differ only in case are different names: then nothing
        changes.
    Returns: The same object if no name changes.
    Raises InvalidArgumentError: Two names would differ only in case, or a name fits several columns
        of the table.
    """
    if case_sensitive:
        return frame
    renamed = _spelled_struct(frame, list(table), "")
    return frame if renamed == frame else renamed


def free_names(taken: Iterable[str], *wanted: str) -> list[str]:
    """Names for columns of our own beside others, in no case like one of these or each other.

    taken: The names of the others.
    wanted: What the names begin with; as many ``_`` follow as it takes.
    """
    known = {name.lower() for name in taken}
    names = []
    for name in wanted:
        while name.lower() in known:
            name += "_"
        known.add(name.lower())
        names.append(name)
    return names


def quoted(name: str) -> str:
    """A column's name in Spark's backquotes."""
    return f"`{name.replace('`', '``')}`"


def renamed_fields(frame: st.StructType, renamed: st.StructType) -> dict[str, pa.Field]:
    """The Arrow fields of the columns that `spelled` has renamed, by their names in the frame."""
    return {
        old.name: pa.field(new.name, arrow_type(new.dataType, f"column {old.name!r}"), new.nullable)
        for old, new in zip(frame, renamed, strict=True)
        if old != new
    }


def renamed_batch(batch: pa.RecordBatch, fields: Mapping[str, pa.Field]) -> pa.RecordBatch:
    """Rename columns of a batch, at any depth; nothing is copied."""
    if not fields:
        return batch
    schema = pa.schema([fields.get(field.name, field) for field in batch.schema])
    _, array = batch.__arrow_c_array__()
    return pa.RecordBatch._import_from_c_capsule(schema.__arrow_c_schema__(), array)


def _spelled_struct(frame: st.StructType, known: Sequence[pa.Field], path: str) -> st.StructType:
    exact = {field.name: field for field in known}
    alike: dict[str, list[pa.Field]] = {}
    for field in known:
        alike.setdefault(field.name.lower(), []).append(field)
    fields, taken = [], dict[str, str]()
    for column in frame:
        match = exact.get(column.name) or _match(
            column.name, alike.get(column.name.lower(), []), path
        )
        name = column.name if match is None else match.name
        key = name if name in exact else name.lower()
        if taken.setdefault(key, column.name) != column.name:
            raise InvalidArgumentError(
                f"columns {path + taken[key]!r} and {path + column.name!r} differ only in case, "
                f"which Spark reads with {CASE_SETTING}=true only; rename one of them"
            )
        below = f"{path}{name}."
        dtype = _spelled_type(column.dataType, None if match is None else match.type, below)
        fields.append(st.StructField(name, dtype, column.nullable, column.metadata))
    return st.StructType(fields)


def _spelled_type(dtype: st.DataType, stored: pa.DataType | None, path: str) -> st.DataType:
    bare = None if stored is None else strip_wrappers(stored)
    if isinstance(dtype, st.StructType):
        known = list(bare) if bare is not None and pa.types.is_struct(bare) else []
        return _spelled_struct(dtype, known, path)
    if isinstance(dtype, st.ArrayType):
        element = bare.value_type if bare is not None and hasattr(bare, "value_field") else None
        inner = _spelled_type(dtype.elementType, element, f"{path}element.")
        return st.ArrayType(inner, dtype.containsNull)
    if isinstance(dtype, st.MapType):
        key = item = None
        if bare is not None and pa.types.is_map(bare):
            key, item = bare.key_type, bare.item_type
        return st.MapType(
            _spelled_type(dtype.keyType, key, f"{path}key."),
            _spelled_type(dtype.valueType, item, f"{path}value."),
            dtype.valueContainsNull,
        )
    return dtype


def _match(name: str, alike: Sequence[pa.Field], path: str) -> pa.Field | None:
    if len(alike) > 1:
        names = " and ".join(repr(f"{path}{field.name}") for field in alike)
        raise InvalidArgumentError(
            f"column {path + name!r}: the table has {names}; name one of them exactly, or set "
            f"{CASE_SETTING}=true"
        )
    return alike[0] if alike else None
