"""NOT NULL columns of tables with a primary key: which of them merging would make null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fermion.errors import InvalidArgumentError
from fermion_table.schema.field_functions import FieldFunction
from fermion_table.schema.key_options import KeyOptions
from fermion_table.schema.schema import Field

_TO_NULL = ("last_value", "last_non_null_value")
"""Functions that make the value null where one is taken back."""


def check_required(fields: Iterable[Field], options: KeyOptions) -> None:
    """Refuse NOT NULL for columns that merging makes null although no row holds a null.

    Raises
    ------
    InvalidArgumentError
    """
    grouped = {name for group in options.sequence_groups for name in group.columns}
    for field in fields:
        if not field.nullable and field.name in grouped:
            raise InvalidArgumentError(
                f"column {field.name!r} is NOT NULL: columns of a sequence group are null where "
                "the sequence of a row is, and after deletions; make it nullable"
            )


def made_null(functions: Mapping[str, FieldFunction]) -> dict[str, str]:
    """Columns that retractions make null, and why, of those that have functions."""
    found = {}
    for name, function in functions.items():
        if function.ignore_retract:
            found[name] = "a key of which all rows are taken back has no value of it"
        elif function.name in _TO_NULL:
            found[name] = f"{function.name} of a row that is taken back is null"
    return found
