"""The namespaces of a catalog: directories with tables, and rows of the list."""

from __future__ import annotations

from collections.abc import Iterable

from fermion.errors import InvalidArgumentError
from fermion.redaction import redacted
from fermion_table.catalog.names import quoted
from fermion_table.catalog.rows import CatalogRow, Key
from fermion_table.catalog.table_list import (
    TableList,
    keys_of_namespace,
    namespace_rows,
    within,
)
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.errors import TableNotFound

NAMES_SHOWN = 5


class Namespaces:
    """The namespaces of a warehouse.

    warehouse, names: Where they lie, and the list of tables.
    """

    def __init__(self, warehouse: Warehouse, names: TableList) -> None:
        self._warehouse = warehouse
        self._names = names

    def require(self, parts: tuple[str, ...]) -> None:
        """Refuse a namespace that is not there.

        Raises TableNotFound.
        """
        if not self._names.has_namespace(parts) and not self._has_folder(parts):
            raise self._missing(parts)

    def create(self, parts: tuple[str, ...]) -> None:
        """Make a namespace (see `Catalog.create_namespace`)."""
        for count in range(1, len(parts) + 1):
            if self._warehouse.has_table("/".join(parts[:count])):
                raise InvalidArgumentError(
                    f"namespace {quoted(parts)}: {quoted(parts[:count])} is the directory of a "
                    "table, which can't hold anything else"
                )

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            inside = (row for row in there.values() if _is_in(row, parts))
            if any(row.kind != "unused" or row.directories for row in inside):
                raise InvalidArgumentError(f"namespace {quoted(parts)}: it exists already")
            yield from namespace_rows(parts, there)

        message = f"create namespace {quoted(parts)}"
        self._names.change(keys_of_namespace(parts), decide, message, also=within(parts))
        self._warehouse.make_folder("/".join(parts))

    def drop(self, parts: tuple[str, ...]) -> None:
        """Drop an empty namespace (see `Catalog.drop_namespace`)."""
        path, name = "/".join(parts), quoted(parts)

        def decide(there: dict[Key, CatalogRow]) -> Iterable[CatalogRow | Key]:
            inside = [row for row in there.values() if _is_in(row, parts)]
            others = [row for row in inside if row.key != (name, "")]
            if not inside and not self._has_folder(parts):
                raise self._missing(parts)
            held = sorted(
                ".".join(filter(None, row.key))
                for row in others
                if row.kind != "unused" or row.dropped
            )
            if held:
                raise InvalidArgumentError(
                    f"namespace {name}: it is not empty: {', '.join(held[:NAMES_SHOWN])}"
                    f"{' ...' if len(held) > NAMES_SHOWN else ''}"
                )
            if not self._warehouse.is_empty(path):
                raise InvalidArgumentError(
                    f"namespace {name}: its directory is not empty; repair() lists the tables in "
                    "it, and removes what is left of others"
                )
            for row in inside:
                yield row.key

        keys = keys_of_namespace(parts)
        self._names.change(keys, decide, f"drop namespace {name}", also=within(parts))
        self._warehouse.remove_folder(path)

    def _has_folder(self, parts: tuple[str, ...]) -> bool:
        folders = self._warehouse.folders("/".join(parts[:-1]))
        is_there = any(folder.name == parts[-1] for folder in folders)
        return is_there and not self._warehouse.has_table("/".join(parts))

    def _missing(self, parts: tuple[str, ...]) -> TableNotFound:
        return TableNotFound(f"{redacted(self._warehouse.location)}: no namespace {quoted(parts)}")


def _is_in(row: CatalogRow, parts: tuple[str, ...]) -> bool:
    """Whether a row is of a namespace, of what is in it, or below it."""
    name = quoted(parts)
    return row.namespace == name or row.namespace.startswith(f"{name}.")
