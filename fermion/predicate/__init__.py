"""Public names only."""

from fermion.predicate.expression import Expression, col
from fermion.predicate.ranges import RowRanges

__all__ = ["Expression", "RowRanges", "col"]
