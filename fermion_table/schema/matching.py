"""Values as merges, joins and partitions compare them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.predicate import comparable


def matching(column: pa.Array) -> pa.Array:
    """Values of which those that match are the same bytes: -0.0 is 0.0, and NaN is NaN."""
    plain = comparable(column)
    if not pat.is_floating(plain.type):
        return plain
    zero, nan = pa.scalar(0.0, plain.type), pa.scalar(float("nan"), plain.type)
    return pc.if_else(pc.is_nan(plain), nan, pc.add(plain, zero))  # -0.0 + 0.0 is 0.0
