"""Kinds of Arrow types, each in several layouts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are text: string, large string or string view."""
    return pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype)


def is_list_view(dtype: pa.DataType) -> bool:
    """Whether lists have offsets and sizes, and so may overlap or lie out of order."""
    return pat.is_list_view(dtype) or pat.is_large_list_view(dtype)


def shares_memory(dtype: pa.DataType) -> bool:
    """Whether rows that are taken of an array use all of its values: views, dictionaries."""
    if isinstance(dtype, pa.BaseExtensionType):
        return shares_memory(dtype.storage_type)
    return (
        pat.is_string_view(dtype)
        or pat.is_binary_view(dtype)
        or is_list_view(dtype)
        or pat.is_dictionary(dtype)
        or any(shares_memory(dtype.field(at).type) for at in range(dtype.num_fields))
    )
