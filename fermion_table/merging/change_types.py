"""What a change does to the row of its key: the names of change types, and their row kinds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.engine import array_of, numbers_of
from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.key_groups import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)
from fermion_table.schema.widening import is_text

CHANGE_NAMES = ("insert", "update_preimage", "update_postimage", "delete")
"""The names of the row kinds, 0 to 3."""
CHANGE_TYPES = {
    **{name: kind for kind, name in enumerate(CHANGE_NAMES)},
    "+I": INSERT,
    "-U": UPDATE_BEFORE,
    "+U": UPDATE_AFTER,
    "-D": DELETE,
}
"""Row kinds by their names."""


def check_change_type(name: str, dtype: pa.DataType) -> None:
    """Refuse a column that can't hold change types.

    Raises InvalidArgumentError: It holds neither text nor a dictionary of texts.
    """
    values = dtype.value_type if pat.is_dictionary(dtype) else dtype
    if not (is_text(values) or pat.is_null(values)):
        raise InvalidArgumentError(f"change_type: column {name!r} is {dtype}, expected text")


def row_kinds(
    name: str, column: pa.Array, *, first_row: int = 0, types: Mapping[str, int] = CHANGE_TYPES
) -> np.ndarray:
    """The kinds of rows whose change types are given.

    column: Text, or a dictionary of texts.
    first_row: The number of the first row, for messages.
    types: The kinds by the texts that stand for them.
    Returns: ``int8``, shape (n,).
    Raises InvalidArgumentError: Another value, or null; names the first such row.
    """
    check_change_type(name, column.type)
    found = _places(column, list(types))
    if found.null_count:
        at = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidArgumentError(
            f"change_type: column {name!r}, row {first_row + at:,}: expected one of "
            f"{', '.join(types)}; found {column[at].as_py()!r}"
        )
    return np.array(list(types.values()), np.int8)[numbers_of(found)]


def _places(column: pa.Array, names: list[str]) -> pa.Array:
    """Where each text is among the names: ``int32``; null where it is none of them."""
    if pat.is_dictionary(column.type):  # Arrow can't decode a dictionary of views
        return _places(column.dictionary, names).take(column.indices)
    return pc.index_in(column.cast(pa.large_string()), array_of(names, pa.large_string()))
