"""What a filter asks of one column, and how each library spells it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Condition:
    """A condition on one column; values are strings, numbers or dates, all of one type.

    ``in``: equal to one of the values. ``prefix``: starts with the only value. ``between``: at
    least the first value, and below the second.
    """

    column: str
    kind: Literal["in", "prefix", "between"]
    values: tuple[Any, ...]

    def for_fermion(self) -> Any:
        """An expression of ours."""
        import fermion

        return self._built(fermion.col(self.column), "isin", "starts_with")

    def for_arrow(self) -> Any:
        """An expression of pyarrow."""
        import pyarrow.compute as pc

        value = pc.field(self.column)
        if self.kind == "prefix":
            return pc.starts_with(value, self.values[0])
        return self._built(value, "isin", "")

    def for_polars(self) -> Any:
        """An expression of Polars."""
        import polars as pl

        value = pl.col(self.column)
        if self.kind == "prefix":
            return value.str.starts_with(self.values[0])
        return self._built(value, "is_in", "")

    def for_vortex(self) -> Any:
        """An expression of Vortex."""
        import vortex
        import vortex.expr as ve

        value = ve.column(self.column)
        if isinstance(self.values[0], str):
            kind = vortex.utf8(nullable=False)
        elif isinstance(self.values[0], datetime.date):
            kind = vortex.date("days")
        else:
            kind = vortex.float_(64) if isinstance(self.values[0], float) else vortex.int_(64)
        literals = [ve.literal(kind, value) for value in self.values]
        if self.kind == "prefix":
            return ve.like(value, ve.literal(kind, self.values[0] + "%"))
        if self.kind == "between":
            return ve.and_(ve.gt_eq(value, literals[0]), ve.lt(value, literals[1]))
        if len(self.values) == 1:
            return ve.eq(value, literals[0])
        return ve.in_list(value, list(self.values))

    def in_sql(self) -> str:
        """The text of SQL, for DuckDB and Lance."""
        texts = [_literal(value) for value in self.values]
        if self.kind == "prefix":
            return f"{self.column} LIKE '{self.values[0]}%'"
        if self.kind == "between":
            return f"{self.column} >= {texts[0]} AND {self.column} < {texts[1]}"
        if len(texts) == 1:
            return f"{self.column} = {texts[0]}"
        return f"{self.column} IN ({', '.join(texts)})"

    def _built(self, value: Any, isin: str, starts_with: str) -> Any:
        """By the operators and methods of a library's column."""
        if self.kind == "prefix":
            return getattr(value, starts_with)(self.values[0])
        if self.kind == "between":
            return (value >= self.values[0]) & (value < self.values[1])
        if len(self.values) == 1:
            return value == self.values[0]
        return getattr(value, isin)(list(self.values))


def _literal(value: Any) -> str:
    if isinstance(value, datetime.date):
        return f"DATE '{value}'"
    return f"'{value}'" if isinstance(value, str) else repr(value)
