"""Aggregate functions of columns: their names, options, and the types that they are made for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

import pyarrow as pa
import pyarrow.types as pat

from fermion.exports import dataclass
from fermion_table.schema.value_codec import has_plain_json
from fermion_table.schema.widening import is_binary, is_text

COMMUTATIVE = frozenset({"sum", "product", "max", "min", "bool_and", "bool_or", "rbm64"})
PICKS = frozenset({"first_value", "first_non_null_value", "last_value", "last_non_null_value"})
"""Functions that look at no value."""
RETRACTABLE = frozenset(
    {"sum", "product", "collect", "merge_map", "nested_update", "last_value", "last_non_null_value"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFunction:
    """How the values of a column are aggregated.

    delimiter: Of ``listagg``.
    distinct: Of ``listagg`` and ``collect``: whether equal items are kept once.
    nested_key: Of ``nested_update``: fields that identify an item; empty: none do, items are
        appended.
    count_limit: Of ``nested_update`` without them: from so many items on no more are appended;
        None: no limit.
    ignore_retract: Whether retractions leave the value as it is.
    """

    name: str
    delimiter: str = ","
    distinct: bool = False
    nested_key: tuple[str, ...] = ()
    count_limit: int | None = None
    ignore_retract: bool = False

    @property
    def refuses_retractions(self) -> bool:
        """Whether no row can be written that takes a value of the column back."""
        return self.name not in RETRACTABLE and not self.ignore_retract


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """Columns of the engine ``partial_update`` that have a sequence of their own.

    sequence: Columns by which rows are ordered for this group, before time does.
    columns: The other columns of the group.
    functions: By column, of those that are aggregated; the others are replaced.
    """

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    functions: Mapping[str, FieldFunction] = field(default_factory=dict)


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pat.is_integer(dtype) or pat.is_floating(dtype) or pat.is_decimal(dtype))


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype))


_Fits = Callable[[pa.DataType], bool]
_ANY: tuple[_Fits, str] = (lambda dtype: True, "any type")
_NUMBERS: tuple[_Fits, str] = (_is_number, "a number")
_ORDERED: tuple[_Fits, str] = (has_plain_json, "values that have an order")
_FLAGS: tuple[_Fits, str] = (lambda dtype: bool(pat.is_boolean(dtype)), "a boolean")
FUNCTIONS: dict[str, tuple[_Fits, str]] = {
    "sum": _NUMBERS,
    "product": _NUMBERS,
    "max": _ORDERED,
    "min": _ORDERED,
    "last_value": _ANY,
    "last_non_null_value": _ANY,
    "first_value": _ANY,
    "first_non_null_value": _ANY,
    "listagg": (is_text, "a string"),
    "bool_and": _FLAGS,
    "bool_or": _FLAGS,
    "collect": (_is_list, "a list"),
    "merge_map": (lambda dtype: bool(pat.is_map(dtype)), "a map"),
    "nested_update": (
        lambda dtype: _is_list(dtype) and bool(pat.is_struct(dtype.value_type)),
        "a list of structs",
    ),
    "rbm64": (is_binary, "binary"),
}
"""Functions of the engine ``aggregation``: the columns that each is made for, and in words."""
