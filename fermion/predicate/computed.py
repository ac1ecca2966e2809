"""Filters that can only be evaluated: what a function computes; how they are told from others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from fermion.predicate.expression import Expression, Path, conjunction, conjuncts


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Computed(Expression):
    """A filter that a function computes from whole columns; statistics never settle it.

    Attributes
    ----------
    function
        Takes the columns at ``paths``, ``pyarrow.Array`` of one length and of the types that the
        filter is bound to, without dictionaries, run ends and extensions around them, and returns a
        ``pyarrow.BooleanArray`` of this length. Picklable, if the filter has to be.
    paths
        The columns.
    text
        What it computes, for people.
    """

    function: Callable[..., pa.BooleanArray]
    paths: tuple[Path, ...]
    text: str

    @property
    def is_opaque(self) -> bool:
        """True."""
        return True

    def to_sql(self) -> str:
        """The text; not SQL of ours."""
        return self.text


def without_opaque(expression: Expression) -> tuple[Expression | None, Expression | None]:
    """The operands of an AND without opaque filters in them, and the others; None where no one is.

    Of any other filter, it is one of the two.
    """
    parts: tuple[list[Expression], list[Expression]] = [], []
    for part in conjuncts(expression):
        parts[any(node.is_opaque for node in part.walk())].append(part)
    plain, opaque = (conjunction(each) if each else None for each in parts)
    return plain, opaque
