"""Workers of Paimon's Java engine: they read and write the files of ``'file.format' = 'fermion'``.

A worker takes one file after the other. It knows files alone, no tables.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

import fermion
from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion.predicate import RowRanges
from flink_ext import requests
from flink_ext.errors import BadRequest

POSITION = "\0position"
"""The column with the position of each row in its file, beside those that are asked for."""
BATCH_ROWS = 8192
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_COMPARED = {
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
    "==": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
}


class FileWorker:
    """What a worker keeps between requests: the file that it writes."""

    def __init__(self) -> None:
        self.path = ""
        self.options: dict[str, Any] = {}
        self.writer: fermion.Writer | None = None
        self.statistics: list[_ColumnStatistics] = []


class Read(requests.Request, tag="read"):
    """Rows of a file.

    path: A local file.
    columns: Names; those that the file lacks are left out of the answer.
    filter: See `expression`; rows that it does not select may be left out.
    selection: Positions of the rows to read, as pairs of start and stop; None: all.
    """

    path: str
    columns: list[str]
    filter: dict[str, Any] | None = None
    selection: list[tuple[int, int]] | None = None

    def answer(self, worker: FileWorker, rows: pa.Table | None) -> requests.Answer:
        """The rows, with their positions."""
        file = fermion.open(self.path)
        present = set(file.schema.names)
        columns = [name for name in self.columns if name in present]
        schema = pa.schema([file.schema.field(name) for name in columns])
        schema = schema.append(pa.field(POSITION, pa.int64(), nullable=False))
        return requests.Rows(schema, self._batches(file, columns, schema))

    def _batches(
        self, file: fermion.FermionFile, columns: list[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        with file:
            wanted = self._wanted(file)
            starts, lengths = wanted.starts, wanted.stops - wanted.starts
            before = np.cumsum(lengths) - lengths  # rows that come before each range
            done = 0
            for batch in file.iter_batches(columns, rows=wanted, batch_size=BATCH_ROWS):
                numbers = np.arange(done, done + batch.num_rows)
                within = np.searchsorted(before, numbers, side="right") - 1
                positions = pa.array(starts[within] + numbers - before[within], pa.int64())
                yield pa.RecordBatch.from_arrays([*batch.columns, positions], schema=schema)
                done += batch.num_rows

    def _wanted(self, file: fermion.FermionFile) -> Any:
        selected = None
        if self.selection is not None:
            bounds = np.array(self.selection, np.int64).reshape(-1, 2)
            selected = RowRanges.from_bounds(bounds[:, 0], bounds[:, 1])
        filter = None if self.filter is None else expression(self.filter, file.schema)
        try:
            return file.find(filter, rows=selected)
        except (InvalidArgumentError, UnsupportedTypeError):
            return file.find(None, rows=selected)  # the engine tests what comes


class Open(requests.Request, tag="open"):
    """Begin a file.

    path: Of a local file, which is made.
    profile: Of `fermion.WriteOptions`; None: the default.
    """

    path: str
    profile: str | None = None

    def answer(self, worker: FileWorker, rows: pa.Table | None) -> requests.Answer:
        """Nothing; the schema comes with the first rows."""
        abort(worker)
        worker.path = self.path
        worker.options = {} if self.profile is None else {"profile": self.profile}
        fermion.WriteOptions(**worker.options)
        return {}


class Batch(requests.Request, tag="batch"):
    """Rows of the file that is written; the first give its schema."""

    def answer(self, worker: FileWorker, rows: pa.Table | None) -> requests.Answer:
        """Bytes that the file has so far."""
        if rows is None or not worker.path:
            raise BadRequest("batch: expected rows of a file that was begun")
        if worker.writer is None:
            options = fermion.WriteOptions(**worker.options)
            worker.writer = fermion.Writer(worker.path, rows.schema, options=options)
            worker.statistics = [_ColumnStatistics(field.type) for field in rows.schema]
        worker.writer.write(rows)
        for statistics, column in zip(worker.statistics, rows.columns, strict=True):
            statistics.add(column)
        return {"bytes": os.path.getsize(worker.path) if os.path.exists(worker.path) else 0}


class Finish(requests.Request, tag="finish"):
    """Complete the file."""

    def answer(self, worker: FileWorker, rows: pa.Table | None) -> requests.Answer:
        """Of each column its least and greatest value, and the number of nulls."""
        if worker.writer is None:
            raise BadRequest("finish: no file was begun")
        worker.writer.close()
        answer = {"statistics": [each.values() for each in worker.statistics]}
        worker.writer, worker.path = None, ""
        return answer


KINDS: tuple[type[Any], ...] = (Read, Open, Batch, Finish)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the requests about files until the connection ends; what is not finished goes."""
    worker = FileWorker()
    try:
        requests.serve(KINDS, worker, source, sink)
    finally:
        abort(worker)


def abort(worker: FileWorker) -> None:
    """Discard the file that is written."""
    if worker.writer is not None:
        worker.writer.abort()
    if worker.path:  # the JVM made it, and may have been killed
        with suppress(FileNotFoundError):
            os.unlink(worker.path)
    worker.writer, worker.path = None, ""


def expression(filter: dict[str, Any], schema: pa.Schema) -> pc.Expression | None:
    """A filter as a worker is told it; None where a part has no counterpart.

    It is ``{"is": "and" | "or", "parts": [...]}``, or ``{"is": ..., "column": ..., "value": ...}``
    with a comparison, ``in``, ``not_in``, ``starts_with``, ``null`` or ``not_null``. Values: see
    `literal`.
    """
    kind = filter["is"]
    if kind in ("and", "or"):
        parts = [expression(part, schema) for part in filter["parts"]]
        known = [part for part in parts if part is not None]
        if not known or (kind == "or" and len(known) < len(parts)):
            return None
        return reduce(and_ if kind == "and" else or_, known)
    if filter["column"] not in schema.names:
        return None
    field, dtype = pc.field(filter["column"]), schema.field(filter["column"]).type
    if kind in ("null", "not_null"):
        return field.is_null() if kind == "null" else ~field.is_null()
    given = filter["value"] if kind in ("in", "not_in") else [filter["value"]]
    values = [value for each in given if (value := literal(each, dtype)) is not None]
    if len(values) < len(given):
        return None
    if kind in _COMPARED:
        return _COMPARED[kind](field, values[0])
    if kind == "starts_with":
        return pc.starts_with(field, pattern=values[0].as_py())
    inside = field.isin(_array(values))
    return inside if kind == "in" else ~inside & ~field.is_null()


def literal(value: Any, dtype: pa.DataType) -> pa.Scalar | None:
    """A value of JSON as one of a column; None where the column has no such value.

    Dates are days since 1970, times of day milliseconds, timestamps pairs of milliseconds since
    1970 and nanoseconds in them, decimals texts.
    """
    if pat.is_timestamp(dtype):
        nanoseconds = value[0] * 10**6 + value[1]
        ticks, rest = divmod(nanoseconds, 10**9 // _TICKS_PER_SECOND[dtype.unit])
        return None if rest else pa.scalar(ticks, pa.int64()).cast(dtype)
    if pat.is_date32(dtype) or pat.is_time32(dtype):
        return pa.scalar(value, pa.int32()).cast(dtype)
    if pat.is_decimal(dtype):
        return pa.scalar(Decimal(value), dtype)
    if pat.is_floating(dtype) or pat.is_nested(dtype):
        return None
    return pa.scalar(value, dtype)


class _ColumnStatistics:
    """The least and the greatest value of a column, and its nulls; None: not known."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._is_ordered = not (
            pat.is_nested(dtype) or pat.is_large_binary(dtype) or pat.is_binary(dtype)
        )
        self._dtype = dtype
        self._bounds: tuple[Any, Any] | None = None
        self._is_sound = True
        self._nulls = 0

    def add(self, column: pa.ChunkedArray) -> None:
        self._nulls += column.null_count
        if not self._is_ordered or column.null_count == len(column):
            return
        if pat.is_floating(self._dtype) and pc.any(pc.is_nan(column)).as_py():
            self._is_sound = False
        found = pc.min_max(column)
        bounds = [found["min"], found["max"]]
        if self._bounds is not None:
            least, greatest = (_array(pair) for pair in zip(self._bounds, bounds, strict=True))
            bounds = [pc.min_max(least)["min"], pc.min_max(greatest)["max"]]
        self._bounds = bounds[0], bounds[1]

    def values(self) -> list[Any]:
        """Least, greatest, nulls, as JSON."""
        if self._bounds is None or not self._is_sound:
            return [None, None, self._nulls]
        return [*map(_json_of, self._bounds), self._nulls]


def _array(scalars: Iterable[pa.Scalar]) -> pa.Array:
    return pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])


def _json_of(scalar: pa.Scalar) -> Any:
    dtype = scalar.type
    if pat.is_timestamp(dtype):
        nanoseconds = scalar.value * (10**9 // _TICKS_PER_SECOND[dtype.unit])
        return list(divmod(nanoseconds, 10**6))
    if pat.is_date32(dtype) or pat.is_time32(dtype):
        return scalar.value
    value = scalar.as_py()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Decimal) else value
