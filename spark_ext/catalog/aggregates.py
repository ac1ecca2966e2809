"""Aggregates that a table's metadata can answer: no task runs, no data file is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import types as st

from fermion.engine import unscaled_integer
from fermion.exports import dataclass
from fermion_table import Scan
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.nodes import COUNT_ALL, Function, NotTheSame
from spark_ext.types import exchange_schema, spark_schema

WORD_BYTES = 8
DECIMAL_DIGITS_IN_WORD = 18
_MIN_MAX = ("Min", "Max")


@dataclass(frozen=True, slots=True)
class Answer:
    """One aggregate: its type in Spark, and a function that gives its value in Spark's own form."""

    type: st.DataType
    value: Callable[[], int | bool | None]


def answers(scan: Scan, functions: Sequence[Function]) -> list[Answer] | None:
    """Answer aggregates over all rows of a scan without a limit from metadata.

    None if an aggregate needs data files, or has no exact counterpart. Minimum and maximum are
    known only without a filter.
    """
    known: dict[tuple[str, ...], list[Answer] | None] = {}
    answered = []
    for function in functions:
        if function.kind == COUNT_ALL:
            if not scan.plan().is_exact:  # files have to be merged: better by many tasks
                return None
            answered.append(Answer(st.LongType(), scan.count))
            continue
        if function.kind not in _MIN_MAX or function.of is None:
            return None
        try:
            path, dtype = function.of.column
        except NotTheSame:
            return None
        if path not in known:
            known[path] = _min_max(scan, path, dtype)
        both = known[path]
        if both is None:
            return None
        answered.append(both[_MIN_MAX.index(function.kind)])
    return answered


def _min_max(scan: Scan, path: tuple[str, ...], dtype: pa.DataType) -> list[Answer] | None:
    """The minimum and the maximum of a column of integers, dates, timestamps or decimals."""
    schema = spark_schema(pa.schema([("value", dtype)]), where=scan.store.location)
    held = exchange_schema(schema)[0].type
    bounds = scan.known_min_max(path) if _fits_word(held) else None
    if bounds is None or bounds[0].type != dtype:
        return None
    return [Answer(schema[0].dataType, partial(number_of, bound.cast(held))) for bound in bounds]


def _fits_word(dtype: pa.DataType) -> bool:
    """Whether Spark holds values as integers of at most 64 bits, in the same order."""
    if pat.is_decimal(dtype):
        return bool(dtype.precision <= DECIMAL_DIGITS_IN_WORD)
    return bool(
        pat.is_boolean(dtype)
        or pat.is_signed_integer(dtype)
        or pat.is_date32(dtype)
        or pat.is_timestamp(dtype)
    )


def number_of(scalar: pa.Scalar) -> int | bool | None:
    """A value as Spark holds it in a word: dates and times as numbers, decimals unscaled."""
    if not scalar.is_valid:
        return None
    if pat.is_decimal(scalar.type):
        return unscaled_integer(scalar.as_py(), scalar.type.scale)
    value: int | bool = scalar.value if hasattr(scalar, "value") else scalar.as_py()
    return value


class AnswerScan(Callback):
    """A scan whose result is one row of answers, one for each aggregate of the query."""

    Java = interfaces("connector.read.LocalScan")

    def __init__(self, jvm: Jvm, where: str, answered: Sequence[Answer]) -> None:
        super().__init__(jvm)
        self._where = where
        self._answered = answered

    def readSchema(self) -> Any:  # noqa: N802 - Java's name
        """A column for each aggregate."""
        fields = [
            st.StructField(f"answer_{number}", answer.type)
            for number, answer in enumerate(self._answered)
        ]
        return self._jvm.schema(st.StructType(fields).json())

    def rows(self) -> Any:
        """One row, in Spark's own form: a bit set of nulls, then a word for each value."""
        count = len(self._answered)
        row = self._jvm.type("catalyst.expressions.UnsafeRow")(count)
        size = WORD_BYTES * (-(-count // 64) + count)
        row.pointTo(bytearray(size), size)
        for number, answer in enumerate(self._answered):
            value = answer.value()
            if value is None:
                row.setNullAt(number)
            else:
                getattr(row, _SETTERS.get(type(answer.type), "setLong"))(number, value)
        return self._jvm.array("catalyst.InternalRow", [row])

    def description(self) -> str:
        """For ``EXPLAIN``."""
        return f"{self._where}: answered from metadata"


_SETTERS: dict[type[st.DataType], str] = {
    st.BooleanType: "setBoolean",
    st.ByteType: "setByte",
    st.ShortType: "setShort",
    st.IntegerType: "setInt",
    st.DateType: "setInt",
}
