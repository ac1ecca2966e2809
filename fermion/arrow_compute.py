"""``pyarrow.compute``, loaded when the first of its functions is called.

It builds some three hundred functions at import, which takes about as long as loading the whole
reader. Only filters need it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    found = globals()[name] = getattr(pyarrow.compute, name)
    return found


def ordered_decimals(values: Any) -> Any:
    """Values in a type that Arrow compares, in the same order.

    Parameters
    ----------
    values : pyarrow.Array or pyarrow.ChunkedArray
        Without wrappers around the type.

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        A view of decimals of a negative scale as their unscaled numbers; others as they are.
    """
    dtype = values.type
    if not pat.is_decimal(dtype) or dtype.scale >= 0:
        return values
    unscaled = getattr(pa, f"decimal{dtype.bit_width}")(dtype.precision, 0)
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(unscaled) for chunk in values.chunks], unscaled)
    return values.view(unscaled)
