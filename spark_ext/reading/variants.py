"""Parts of Variant columns in filters of Spark, which casts values otherwise than Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.engine import VariantType, VariantValue

_INTEGERS = (3, 4, 5, 6)
_SHORT_TEXTS = [bytes([size << 2 | 1]) for size in range(64)]
_HEADS: dict[pa.DataType, list[bytes]] = {
    dtype: [bytes([kind << 2]) for kind in (0, *kinds)]
    for dtype, kinds in {
        pa.bool_(): (1, 2),
        pa.int64(): _INTEGERS,
        pa.float64(): (*_INTEGERS, 7, 14),
        pa.string(): (16,),
        pa.date32(): (11,),
        pa.timestamp("us", "UTC"): (12,),
        pa.timestamp("us"): (13,),
    }.items()
}
"""By type: the first bytes of values that Spark and Arrow cast to it alike, and of null."""
_HEADS[pa.string()] += _SHORT_TEXTS


class SparkPart(VariantValue):
    """The value at a path, for filters that Spark applies again.

    A filter selects every row that it may select in Spark: also those whose value at the path has
    another type, which Spark casts by its own rules, or refuses.
    """

    __slots__ = ()
    needs_whole = True

    def __reduce__(self) -> tuple[Any, ...]:
        return SparkPart, (self.path[0], self.steps, self.type, self.strict)

    def of(self, column: str) -> SparkPart:
        """The same of a column of another name."""
        return SparkPart(column, self.steps, self.type, self.strict)

    def chosen(self, matches: pa.Array, values: pa.Array, array: pa.Array) -> pa.Array:
        """The rows that a filter may select."""
        whole = VariantValue(self.path[0], self.steps, VariantType(), strict=False)
        parts = whole.values_of(array).storage
        heads = pc.binary_slice(parts.field("value"), 0, 1).cast(pa.binary())
        is_alike = pc.is_in(heads, pa.array(_HEADS[self.type], pa.binary()))
        is_null = pc.equal(heads, b"\0")
        is_cast_alike = pc.and_(is_alike, pc.or_(is_null, pc.is_valid(values)))
        return pc.or_kleene(matches, pc.and_not(pc.is_valid(parts), is_cast_alike))
