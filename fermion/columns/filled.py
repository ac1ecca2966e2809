"""What columns take that are filled with nulls or with one value, and how much that may be.

Neither needs bytes in a file, so the width of a type and the number of rows alone say how much
memory is taken; both come from metadata that nobody may trust.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError

FILLED_VALUE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of one value that is filled in."""
FILLED_BYTES_MAX = 4 * 1024**3
"""Bytes of an array of such values, where one takes more than `FILLED_FREE_BYTES`."""
FILLED_FREE_BYTES = 64
"""Bytes of a value that may be filled into any number of rows."""


def filled_bytes(dtype: pa.DataType) -> int:
    """Bytes that each null of a type takes in an array, without its bit; a lower bound.

    Returns
    -------
    int
        Of a fixed-size list those of all elements; of another list those of an offset.
    """
    return -(-_bits(dtype) // 8)


def _bits(dtype: pa.DataType) -> int:
    if isinstance(dtype, pa.BaseExtensionType):
        return _bits(dtype.storage_type)
    if pat.is_dictionary(dtype):
        return _bits(dtype.index_type)
    if pat.is_run_end_encoded(dtype):
        return 0
    if pat.is_fixed_size_list(dtype):
        return int(dtype.list_size) * max(_bits(dtype.value_type), 1)
    if pat.is_struct(dtype):
        return sum(_bits(dtype.field(at).type) for at in range(dtype.num_fields))
    if pat.is_fixed_size_binary(dtype):
        return 8 * int(dtype.byte_width)  # Arrow's number of bits overflows
    try:
        return int(dtype.bit_width)
    except ValueError:  # texts, bytes, lists and maps: at least an offset
        return 0 if pat.is_null(dtype) else 32


def check_filled(
    dtype: pa.DataType, rows: int, where: str = "", *, value_bytes: int | None = None
) -> None:
    """Refuse to fill rows with values that take too much memory.

    Parameters
    ----------
    where
        The column, for the message.
    value_bytes
        Of each value; None: it is null.

    Raises
    ------
    InvalidArgumentError
        More than `FILLED_VALUE_BYTES_MAX` each, or more than `FILLED_BYTES_MAX` together.
    """
    width = filled_bytes(dtype) if value_bytes is None else value_bytes
    if width <= FILLED_FREE_BYTES or not rows:
        return
    place = f"{where}: " if where else ""
    if width > FILLED_VALUE_BYTES_MAX:
        raise InvalidArgumentError(
            f"{place}rows without a value would be filled with values of {width:,} bytes of type "
            f"{dtype}, expected at most {FILLED_VALUE_BYTES_MAX:,} bytes"
        )
    if width * rows > FILLED_BYTES_MAX:
        raise InvalidArgumentError(
            f"{place}{rows:,} rows without a value would be filled with {width * rows:,} bytes of "
            f"type {dtype}, expected at most {FILLED_BYTES_MAX:,}: read or write fewer rows at once"
        )
