"""A merge that is being described: the methods that add clauses, whoever executes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from fermion.display import names_text
from fermion.errors import InvalidArgumentError
from fermion_table.operations.assignments import Assignment
from fermion_table.operations.merge_clauses import Action, Case, Clause, check_reachable


class MergeDescription(ABC):
    """Takes clauses, and is executed once.

    Rows of the table and of the source whose columns of ``on`` are equal match. For each pair, and
    for each row without a partner, the first clause of its case whose condition holds decides what
    happens; a row that no clause takes stays as it is.

    Every method that adds a clause changes this object, and returns it.

    Parameters
    ----------
    on
        Columns of the source by those of the table that they are compared with.
    """

    def __init__(self, on: Mapping[str, str]) -> None:
        self._on = on
        self._clauses: list[Clause] = []
        self._is_executed = False

    def when_matched_update(
        self, set: Mapping[str, Assignment] | None = None, condition: Any = None
    ) -> Self:
        """Update rows of the table that have a partner.

        Parameters
        ----------
        set
            What columns are set to: values as the class says, by column. None sets every column to
            that of its name in the source.
        condition
            Which pairs; None: all.

        Raises
        ------
        ColumnNotFoundError
            The table or the source lacks a column.
        SchemaMismatch
            A value does not fit its column; or the source lacks a column, with ``set=None``.
        TypeError, InvalidArgumentError
            No mapping, nothing to set, a condition or a value that can't be understood, or a
            clause that is never reached.
        pyspark.errors.PySparkException
            In `spark_ext.merge`: Spark does not understand an expression.
        """
        return self._add("matched", "update", condition, set)

    def when_matched_delete(self, condition: Any = None) -> Self:
        """Delete rows of the table that have a partner; raises as `when_matched_update`.

        Parameters
        ----------
        condition
            Which pairs; None: all.
        """
        return self._add("matched", "delete", condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Assignment] | None = None, condition: Any = None
    ) -> Self:
        """Insert rows of the source that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        values
            As in `when_matched_update`; there is only ``source``. Columns that are not named are
            null, or have their default. None takes every column of its name from the source.
        condition
            Which rows of the source; None: all.
        """
        return self._add("not_matched", "insert", condition, values)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Assignment], condition: Any = None
    ) -> Self:
        """Update rows of the table that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        set
            As in `when_matched_update`; there is only ``target``.
        condition
            Which rows of the table; None: all.
        """
        if set is None:
            raise InvalidArgumentError(
                "merge: when_not_matched_by_source_update: set=None: expected the columns to set, "
                "as there is no row of the source to take them from"
            )
        return self._add("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Any = None) -> Self:
        """Delete rows of the table that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        condition
            Which rows of the table; None: all.
        """
        return self._add("not_matched_by_source", "delete", condition)

    def __repr__(self) -> str:
        clauses = names_text([each.method for each in self._clauses], "clauses") or "no clauses yet"
        return f"<{type(self).__name__} on {names_text(list(self._on), 'columns')}: {clauses}>"

    @abstractmethod
    def _check(self, clause: Clause) -> None:
        """Check a clause against the table and the source."""

    def _begun(self) -> Sequence[Clause]:
        """The clauses, which are executed now.

        Raises
        ------
        InvalidArgumentError
            There are none, or they were executed before.
        """
        if not self._clauses:
            raise InvalidArgumentError(
                "merge: nothing to do: add a clause, such as when_matched_update()"
            )
        if self._is_executed:
            raise InvalidArgumentError("merge: executed before: call merge() again")
        self._is_executed = True
        return self._clauses

    def _add(
        self,
        case: Case,
        action: Action,
        condition: Assignment,
        values: Mapping[str, Assignment] | None = None,
    ) -> Self:
        clause = Clause(case, action, condition, values)
        check_reachable([*self._clauses, clause])
        self._check(clause)
        self._clauses.append(clause)
        return self
