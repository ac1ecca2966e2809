"""DuckDB as an engine that computes: no data of its own, one connection a thread.

It has no access to files, to the network or to variables of Python, and its settings are locked.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import threading
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple
from fermion.forks import PerProcess

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS = "fermion_rows"
"""What a query calls the rows that it is given."""
DUCKDB_VERSION_MIN = 2, 0
_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}


class NotSqlError(InvalidArgumentError):
    """A text that DuckDB can't parse."""


def has_duckdb() -> bool:
    """Whether DuckDB, which is optional, is installed."""
    return importlib.util.find_spec("duckdb") is not None


def load_duckdb(where: str) -> Any:
    """The module, which is optional.

    Raises
    ------
    InvalidArgumentError
        It is not installed, or too old: before 2.0 it loses digits of times with a zone.
    """
    try:
        import duckdb  # optional
    except ImportError:
        raise InvalidArgumentError(
            f"{where}: SQL needs DuckDB: pip install duckdb (the extra duckdb of fermion)"
        ) from None
    found = duckdb.__version__
    if tuple(map(int, found.split(".")[:2])) < DUCKDB_VERSION_MIN:
        raise InvalidArgumentError(f"{where}: SQL needs DuckDB 2.0 or later, found {found}")
    return duckdb


def isolated_database(where: str = "SQL", **settings: str) -> DuckDBPyConnection:
    """An empty database that reaches nothing outside of it; its settings can't be changed.

    Parameters
    ----------
    where
        For the error, as of `load_duckdb`.
    """
    database = load_duckdb(where).connect(":memory:", config={**_SETTINGS, **settings})
    database.execute("SET TimeZone = 'UTC'")  # the same on every machine
    database.execute("SET lock_configuration = true")
    return database


class _Engine:
    """A database without data, which computes; each thread has a connection of its own to it."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with another database when the next one is needed."""
        self._local = threading.local()
        # One thread: the rows stay in order, and callers bring threads of their own.
        self._database = PerProcess(partial(isolated_database, threads="1"))

    def run(self, query: str, rows: pa.RecordBatchReader) -> pa.Table:
        """The answer to a query of rows."""
        connection = self._connection()
        try:
            connection.register(ROWS, rows)
            found = connection.sql(query).to_arrow_table()
            connection.unregister(ROWS)  # or it would hold the rows
        except BaseException:  # it may be busy with this query still
            self._local.__dict__.clear()
            raise
        return found

    def parsed(self, text: str) -> dict[str, Any]:
        """The statements of a text as DuckDB describes them."""
        return json.loads(self._value("SELECT json_serialize_sql(?)", text))

    def spelled(self, statements: Mapping[str, Any]) -> str:
        """Statements as text."""
        return self._value("SELECT json_deserialize_sql(?::JSON)", json.dumps(statements))

    def functions(self) -> list[tuple[Any, ...]]:
        """What `Function` has of each one."""
        found = self._connection().execute(
            "SELECT function_name, function_type, stability, macro_definition, parameters, "
            "parameter_types, return_type FROM duckdb_functions()"
        )
        return found.fetchall()

    def _value(self, query: str, argument: str) -> str:
        ((value,),) = self._connection().execute(query, [argument]).fetchall()
        return value

    def _connection(self) -> DuckDBPyConnection:
        database, own = self._database.get(), self._local
        if getattr(own, "database", None) is not database:
            own.connection, own.database = database.cursor(), database
        return own.connection


ENGINE = _Engine()
atexit.register(ENGINE.restart)  # DuckDB complains of connections that outlive it


class Function(NamedTuple):
    """What DuckDB says of a function.

    kind: ``scalar``, ``aggregate``, ``window``, ``macro``, ``table`` or another one.
    stability: ``CONSISTENT`` if it gives the same value whenever it is called; of scalar functions.
    macro, parameters: What a macro stands for.
    """

    kind: str
    stability: str | None
    macro: str | None
    parameters: frozenset[str]


@cache
def functions() -> dict[str, set[Function]]:
    """DuckDB's functions by name; one name may have several."""
    found: dict[str, set[Function]] = {}
    for name, kind, stability, macro, parameters, types, result in ENGINE.functions():
        known = frozenset(parameters or ()) if macro else frozenset()
        if stability == "CONSISTENT_WITHIN_QUERY" and _needs_zone(types or (), result):
            stability = "CONSISTENT"  # the zone is a setting, which is always the same here
        found.setdefault(name.lower(), set()).add(Function(kind, stability, macro, known))
    return found


def _needs_zone(types: Sequence[Any], result: Any) -> bool:
    """Whether a function has arguments and computes with times with a zone."""
    shown = map(str, (*types, result))
    return len(types) > 0 and any("TIME ZONE" in each or "TIMESTAMPTZ" in each for each in shown)
