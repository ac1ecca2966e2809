"""The order that a file's rows are in: how it is stored, and whether rows keep it.

Rows are compared column by column, as SQL does: NaN is greater than every other number and equal to
itself, -0.0 equals 0.0, byte strings compare as unsigned bytes, false comes before true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.arguments import first_repeated
from fermion.columns.rows import ordered_decimals, unwrapped
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor
from fermion.layout import SORT_KEY, SortFlag
from fermion.options import SortKey

if TYPE_CHECKING:
    from fermion.columns import arrow_input
else:  # readers need it not
    arrow_input = LoadedWhenAskedFor("fermion.columns.arrow_input")

SHOWN_CHARACTERS_MAX = 60


def sort_ordinals(names: Sequence[str], keys: Sequence[SortKey], where: str) -> list[int]:
    """The columns of an order.

    Raises InvalidArgumentError: For a column that is not there, is there twice, or has a name that
        several have.
    """
    places: dict[str, list[int]] = {key.name: [] for key in keys}
    for ordinal, name in enumerate(names) if keys else ():
        if name in places:
            places[name].append(ordinal)
    for name, found in places.items():
        if len(found) != 1:
            raise InvalidArgumentError(
                f"{where}: sorted_by: expected one column {name!r}, found {len(found)}"
            )
    repeated = first_repeated(key.name for key in keys)
    if repeated is not None:
        raise InvalidArgumentError(f"{where}: sorted_by: column {repeated!r} comes twice")
    return [places[key.name][0] for key in keys]


def build_sort_order(ordinals: Sequence[int], keys: Sequence[SortKey]) -> bytes:
    """The section SORT_ORDER."""
    entries = np.zeros(len(keys), SORT_KEY)
    for entry, ordinal, key in zip(entries, ordinals, keys, strict=True):
        flags = SortFlag.DESCENDING if key.descending else SortFlag(0)
        if key.nulls_first:
            flags |= SortFlag.NULLS_FIRST
        entry["ordinal"], entry["flags"] = ordinal, flags
    return entries.tobytes()


def parse_sort_order(
    data: memoryview, name_of: Callable[[int], str], columns: int, where: str
) -> list[tuple[int, SortKey]]:
    """Ordinal and key of each column that the section SORT_ORDER names.

    Raises InvalidFileError.
    """
    if not len(data) or len(data) % SORT_KEY.itemsize:
        raise InvalidFileError(
            f"{where}: sort order: expected entries of {SORT_KEY.itemsize} bytes, "
            f"found {len(data)} bytes"
        )
    found: dict[int, SortKey] = {}
    for ordinal, flags in np.frombuffer(data, SORT_KEY).tolist():
        if ordinal >= columns or ordinal in found or flags & ~sum(SortFlag):
            raise InvalidFileError(
                f"{where}: sort order: expected columns below {columns}, each once, and known "
                f"flags; found column {ordinal} with flags {flags:#x}"
            )
        found[ordinal] = SortKey(
            name_of(ordinal),
            descending=bool(flags & SortFlag.DESCENDING),
            nulls_first=bool(flags & SortFlag.NULLS_FIRST),
        )
    return list(found.items())


class OrderCheck:
    """Whether rows are in an order, run after run of them."""

    def __init__(self, keys: Sequence[SortKey]) -> None:
        self._keys = keys
        self._rows = 0
        self._last: list[pa.Array] | None = None

    def first_wrong(self, columns: Sequence[pa.ChunkedArray]) -> str | None:
        """Look at the rows that follow those of the last call.

        columns: One a key, all of the same length.
        Returns: Which row is wrong, counted from the first call's first, and why; None when none
            is.
        """
        rows = len(columns[0])
        if not rows:
            return None
        arrays = [_comparable(column) for column in columns]
        if self._last is not None:
            pairs = zip(self._last, arrays, strict=True)
            arrays = [pa.concat_arrays([last, array]) for last, array in pairs]
        before = self._rows - (self._last is not None)
        self._last = [arrow_input.copied_array(array.slice(len(array) - 1)) for array in arrays]
        self._rows += rows
        wrong = _first_wrong(arrays, self._keys)
        if wrong is None:
            return None
        row, place = wrong
        key, array = self._keys[place], arrays[place]
        nulls = "first" if key.nulls_first else "last"
        return (
            f"row {before + row + 1}: column {key.name!r}: expected "
            f"{'descending' if key.descending else 'ascending'} order, nulls {nulls}; "
            f"found {_shown(array[row + 1])} after {_shown(array[row])}"
        )


def _shown(value: pa.Scalar) -> str:
    """A value for people; times that Python has no objects for as numbers."""
    try:
        text = repr(value.as_py())
    except UnicodeDecodeError:
        text = repr(value.as_buffer().to_pybytes())
    except (OverflowError, ValueError):
        text = str(value.cast(pa.int32() if value.type.bit_width == 32 else pa.int64()))
    return text[:SHOWN_CHARACTERS_MAX]


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array of a type that Arrow compares."""
    plain = unwrapped(column)
    array = pa.concat_arrays(plain.chunks) if plain.num_chunks else pa.nulls(0, plain.type)
    return array.cast(pa.float32()) if pat.is_float16(array.type) else array


def _first_wrong(arrays: Sequence[pa.Array], keys: Sequence[SortKey]) -> tuple[int, int] | None:
    """The first row that the next one should not follow, and the key that says so."""
    pairs = len(arrays[0]) - 1
    tied = np.ones(pairs, bool)
    deciding = np.full(pairs, -1)
    for place, (array, key) in enumerate(zip(arrays, keys, strict=True)):
        falls, equal = _compare(array, key)
        deciding[tied & falls] = place
        tied &= equal
        if not tied.any():
            break
    wrong = np.flatnonzero(deciding >= 0)
    return (int(wrong[0]), int(deciding[wrong[0]])) if len(wrong) else None


def _compare(array: pa.Array, key: SortKey) -> tuple[np.ndarray, np.ndarray]:
    """Whether each row but the first comes before, or ties with, the one that it follows.

    Both ``bool``, shape (rows - 1,).
    """
    array = ordered_decimals(array)
    before, after = array.slice(0, len(array) - 1), array.slice(1)
    greater, less = (before, after) if not key.descending else (after, before)
    falls = _flags(pc.greater(greater, less))
    equal = _flags(pc.equal(before, after))
    if pat.is_floating(array.type):
        nan = _flags(pc.is_nan(array))
        valid = _flags(pc.is_valid(array))
        earlier, later = (nan[:-1], nan[1:]) if not key.descending else (nan[1:], nan[:-1])
        falls |= earlier & ~later & valid[:-1] & valid[1:]
        equal |= nan[:-1] & nan[1:]
    if array.null_count:
        null = _flags(pc.is_null(array))
        first, second = (null[:-1], null[1:]) if not key.nulls_first else (null[1:], null[:-1])
        falls |= first & ~second
        equal |= null[:-1] & null[1:]
    return falls, equal


def _flags(array: pa.Array) -> np.ndarray:
    """Booleans, false for null; a copy."""
    return array.fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
