"""How Spark finds, describes and calls the procedures of a catalog."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.described import CATALOG
from spark_ext.catalog.local_rows import LocalRows
from spark_ext.catalog.procedures import (
    NAMESPACE,
    PROCEDURES,
    REQUIRED,
    Parameter,
    ProcedureDefinition,
    Target,
    value_of,
)

_PROCEDURES = CATALOG + "procedures."


class ProcedureCatalog(Callback):
    """The part of a catalog that has procedures: subclasses have `_target`."""

    def loadProcedure(self, identifier: Any) -> Any:  # noqa: N802 - Java's name
        """A procedure by name, in any case."""
        parts = [*identifier.namespace(), identifier.name()]
        name = parts[-1].lower()
        if [part.lower() for part in parts[:-1]] != [NAMESPACE] or name not in PROCEDURES:
            return MissingProcedure(self._jvm, ".".join(parts))
        return UnboundProcedure(self._jvm, name, PROCEDURES[name], self)

    def listProcedures(self, namespace: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """All procedures, in the namespace ``system``."""
        listed = [part.lower() for part in namespace]
        names = PROCEDURES if listed in ([], [NAMESPACE]) else ()
        identifier = self._jvm.type(CATALOG + "Identifier")
        space = self._jvm.array("java.lang.String", [NAMESPACE])
        return self._jvm.array(CATALOG + "Identifier", [identifier.of(space, n) for n in names])

    @abstractmethod
    def _target(self, name: str) -> Target:
        """The table that an argument names."""


class MissingProcedure(Callback):
    """What a wrong name leads to: an error as soon as Spark uses it.

    Spark would replace an error of `loadProcedure` by one that does not say what there is.
    """

    Java = interfaces(_PROCEDURES + "UnboundProcedure")

    def __init__(self, jvm: Jvm, name: str) -> None:
        super().__init__(jvm)
        self._name = name

    def bind(self, *types: Any) -> Any:
        """Not there."""
        known = ", ".join(f"{NAMESPACE}.{name}" for name in PROCEDURES)
        raise InvalidArgumentError(f"there is no procedure {self._name}; there are {known}")

    name = description = bind


class _Procedure(Callback):
    def __init__(
        self, jvm: Jvm, name: str, definition: ProcedureDefinition, catalog: ProcedureCatalog
    ) -> None:
        super().__init__(jvm)
        self._name = name
        self._definition = definition
        self._catalog = catalog

    def name(self) -> str:
        """With its namespace."""
        return f"{NAMESPACE}.{self._name}"

    def description(self) -> str:
        """What it does, for ``DESCRIBE PROCEDURE``."""
        return self._definition.description


class UnboundProcedure(_Procedure):
    """A procedure as Spark finds it; the catalog finds the table."""

    Java = interfaces(_PROCEDURES + "UnboundProcedure")

    def bind(self, types: Any) -> Any:
        """The procedure to call; Spark itself converts the arguments.

        Another object: one that is unbound too would be bound again by each rule of Spark's.
        """
        return BoundProcedure(self._jvm, self._name, self._definition, self._catalog)


class BoundProcedure(_Procedure):
    """A procedure as Spark calls it."""

    Java = interfaces(_PROCEDURES + "BoundProcedure")

    def isDeterministic(self) -> bool:  # noqa: N802 - Java's name
        """No: it changes tables."""
        return False

    def parameters(self) -> Any:
        """All parameters."""
        made = [self._parameter(parameter) for parameter in self._definition.parameters]
        return self._jvm.array(_PROCEDURES + "ProcedureParameter", made)

    def call(self, row: Any) -> Any:
        """Run it; the result is one row."""
        definition = self._definition
        given = {
            parameter.name: value_of(parameter, row, place)
            for place, parameter in enumerate(definition.parameters)
        }
        values = definition.run(self._catalog._target(given.pop("table")), **given)
        made = pa.Table.from_pylist([dict(values)], schema=definition.result)
        scans = self._jvm.type("java.util.ArrayList")()
        scans.add(LocalRows(self._jvm, made, self.name()))
        return scans.iterator()

    def _parameter(self, parameter: Parameter) -> Any:
        kind = parameter.type if parameter.type.startswith("{") else f'"{parameter.type}"'
        make = getattr(self._jvm.type(_PROCEDURES + "ProcedureParameter"), "in")
        made = make(parameter.name, self._jvm.schema(kind)).comment(parameter.comment)
        if parameter.default is not REQUIRED:
            made = made.defaultValue(parameter.default)
        return made.build()
