"""What calls take, for annotations and type checkers: `TableLike`, `FilterLike`, `KeysLike`.

They are unions of protocols, not of classes: pyarrow comes without types, so that a union with one
of its classes would take everything, ``append(5)`` too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias, Union

import numpy as np


class ArrowStream(Protocol):
    """A table, batch or reader of pyarrow, a frame of pandas or Polars, a relation of DuckDB ..."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        """Batches by Arrow's C interface."""


class ArrowArray(Protocol):
    """A record batch, or an array of structs."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> object:
        """One batch by Arrow's C interface."""


class ArrowSchema(Protocol):
    """A `pyarrow.Schema`."""

    def __arrow_c_schema__(self) -> object:
        """Names and types by Arrow's C interface."""


class ArrowDataset(Protocol):
    """A `pyarrow.dataset.Dataset`."""

    def scanner(self, *args: Any, **kwargs: Any) -> Any:
        """A scanner over its rows."""


class ArrowScanner(Protocol):
    """A `pyarrow.dataset.Scanner`."""

    def to_reader(self) -> Any:
        """A reader of its batches."""


class LazyFrame(Protocol):
    """A `polars.LazyFrame`."""

    def collect_batches(self, *args: Any, **kwargs: Any) -> Any:
        """Its rows, frame after frame."""


class SqlFilter(Protocol):
    """A filter of `fermion.col`."""

    def to_sql(self) -> str:
        """The filter as SQL text."""


class LibraryExpression(Protocol):
    """A `pyarrow.compute.Expression` or a `polars.Expr`."""

    def cast(self, *args: Any, **kwargs: Any) -> Any:
        """The expression with another type."""


# Rows: Arrow data of any library, files of other formats, columns by name, arrays of NumPy, and
# batches or dicts one after the other.
TableLike: TypeAlias = Union[
    ArrowStream,
    ArrowArray,
    ArrowDataset,
    ArrowScanner,
    LazyFrame,
    dict[str, Any],
    "np.ndarray[Any, Any]",
    str,
    "os.PathLike[str]",
    Iterable[ArrowStream | ArrowArray | dict[str, Any]],
]

# SQL text, an expression, tuples as pyarrow has them, or all rows and none.
FilterLike: TypeAlias = (
    str
    | SqlFilter
    | LibraryExpression
    | Sequence[tuple[Any, str, Any]]
    | Sequence[Sequence[tuple[Any, str, Any]]]
    | bool
)

# Values, tuples or dicts of a primary key's columns, or rows that hold these columns.
KeysLike: TypeAlias = ArrowStream | ArrowArray | dict[str, Any] | Iterable[Any]
