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
