"""Conditions of any form as filters of a scan: evaluated in tasks, where Spark would in the JVM."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from fermion.exports import dataclass
from fermion.predicate import Computed
from spark_ext.aggregation.expression import COLUMN, Evaluator, Expression, arrow_type
from spark_ext.exchange import convert_batches


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean expression that never fails, as a function of its columns. Picklable.

    Its columns have their numbers as names; the schema is of the columns as expressions take them.
    """

    expression: Expression
    schema: pa.Schema

    def __call__(self, *columns: pa.Array) -> pa.BooleanArray:
        """Evaluate it on columns of the types of the table."""
        batch = pa.RecordBatch.from_arrays(list(columns), names=self.schema.names)
        masks = [self._evaluated(part) for part in convert_batches(batch, self.schema)]
        return masks[0] if len(masks) == 1 else pa.concat_arrays(masks)

    def _evaluated(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        try:
            return Evaluator(batch).array(self.expression)
        except pa.ArrowInvalid:  # too large for 64 bits
            return Evaluator(batch, is_wide=True).array(self.expression)


def computed(expression: Expression, text: str) -> Computed:
    """A filter that selects the rows of which a boolean expression, which never fails, holds."""
    types: dict[tuple[str, ...], pa.DataType] = {}
    numbered = _numbered(expression, types)
    schema = pa.schema([(str(number), dtype) for number, dtype in enumerate(types.values())])
    return Computed(Condition(numbered, schema), tuple(types), text)


def _numbered(expression: Expression, types: dict[tuple[str, ...], pa.DataType]) -> Expression:
    """The expression over the numbers of its columns, whose types are added in this order."""
    if expression.operation == COLUMN:
        types.setdefault(expression.value, arrow_type(expression.type))
        return replace(expression, value=(str(list(types).index(expression.value)),))
    children = tuple(_numbered(child, types) for child in expression.children)
    return replace(expression, children=children)
