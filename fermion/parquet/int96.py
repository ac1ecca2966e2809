"""INT96 timestamps of Parquet files: instants in UTC, read as microseconds.

Spark, Hive and Impala write INT96, a type that Parquet has deprecated: a Julian day and the
nanoseconds of that day, without a unit or a time zone. Spark stores instants in UTC and keeps
microseconds; so does this module. pyarrow alone reads nanoseconds without a time zone, which
overflow before the year 1677 and after 2262 without an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.columns.types import child_fields, with_child_fields
from fermion.errors import InvalidFileError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

INT96 = "INT96"
INSTANT = pa.timestamp("us", "UTC")
SECONDS_MAX = (2**63 - 1) // 1_000_000
"""Seconds before and after 1970 that microseconds of 64 bits can number."""


def int96_leaves(metadata: pq.FileMetaData) -> list[bool]:
    """Which leaf columns hold INT96, in the order of the file's schema."""
    leaves = (metadata.schema.column(index) for index in range(metadata.num_columns))
    return [leaf.physical_type == INT96 for leaf in leaves]


def instants(schema: pa.Schema, leaves: Sequence[bool]) -> pa.Schema:
    """The schema of a file with its INT96 leaves, read in microseconds, as instants in UTC.

    leaves: As `int96_leaves` gives them: an Arrow type has its leaves in the same order.
    """
    if not any(leaves):
        return schema
    remaining = iter(leaves)
    fields = [_instants(field, remaining) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _instants(field: pa.Field, leaves: Iterator[bool]) -> pa.Field:
    dtype = field.type
    if isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    if not dtype.num_fields:
        return field.with_type(INSTANT) if next(leaves, False) else field
    before = child_fields(dtype)
    children = [_instants(child, leaves) for child in before]
    if all(new.equals(old) for new, old in zip(children, before, strict=True)):
        return field
    return field.with_type(with_child_fields(dtype, children))


def check_range(seconds: pa.RecordBatch, where: str) -> None:
    """Refuse timestamps that microseconds of 64 bits can't number.

    seconds: The INT96 columns, read in seconds.
    where: The file and the row group, for the message.
    Raises InvalidFileError: Names the column and the value in seconds since 1970.
    """
    for field, column in zip(seconds.schema, seconds.columns, strict=True):
        for values in _timestamps(column):
            ends = pc.min_max(values.cast(pa.int64())).as_py()
            for end in ends.values():
                if end is not None and abs(end) > SECONDS_MAX:
                    raise InvalidFileError(
                        f"{where}: column {field.name!r}: expected INT96 timestamps within "
                        f"{SECONDS_MAX:,} seconds of 1970, found {end:,}"
                    )


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    """Every array of timestamps in seconds within an array."""
    if pat.is_struct(array.type):
        for child in array.flatten():
            yield from _timestamps(child)
    elif pat.is_map(array.type):
        yield from _timestamps(array.keys)
        yield from _timestamps(array.items)
    elif pat.is_list(array.type) or pat.is_large_list(array.type):
        yield from _timestamps(array.flatten())
    elif array.type == pa.timestamp("s"):
        yield array
