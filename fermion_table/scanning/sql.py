"""SQL over scans: a query that DuckDB computes, whose columns and filters go into the scans."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset

from fermion.arguments import integer
from fermion.display import facts_repr, names_text, shortened
from fermion.engine import alike, folded, isolated_database, load_duckdb
from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple
from fermion_table.argument_checks import check_text
from fermion_table.errors import TableNotFound
from fermion_table.scanning.arrow_dataset import Scan, WideningDataset
from fermion_table.scanning.arrow_rows import ArrowRows, types_hint

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation, Statement

SqlName = tuple[str, ...]
"""The name of a table in a query, by its parts."""
OpenDatabase = Callable[[], AbstractContextManager["DuckDBPyConnection"]]
"""Opens a database for a ``with`` block: an isolated one, which may hold tables of this query."""

_READING = ("SELECT", "EXPLAIN", "MULTI")  # MULTI: a pivot whose columns its rows tell
_INSTEAD = {
    "ALTER": "table.update_schema() changes columns",
    "CREATE": "Table.create(path, result) makes a table of an answer",
    "DELETE": "table.delete(filter) deletes rows",
    "DROP": "fermion_table.drop_table(path) drops a table",
    "INSERT": "table.append(rows) or table.upsert(rows) adds rows",
    "MERGE_INTO": "table.merge(source, on=...) merges rows",
    "UPDATE": "table.update(filter, {...}) changes rows",
}
"""What to call instead of a statement that writes, by DuckDB's type of it."""


class SqlResult(ArrowRows):
    """The answer to a query of SQL, computed by DuckDB each time that a result is requested.

    Make one with `Table.sql` or `Catalog.sql`. Tables are read at the snapshots that they had then;
    of each only the columns and the rows that the query needs. The query reaches no files, no
    network and no variables. Times with a zone are shown in UTC.

    query: One statement that reads.
    scans: What it reads by name; or what gives the scan of a name in the query.
    where: For errors.
    parameters: Values for ``?``, ``$1`` and ``$name`` in the query, by number or name as text;
        those that are left out are NULL. None: the query has none.
    open_database: Opens the database that computes an answer; None: an isolated one.

    Attributes:
    scans: What it reads, by name: their `Scan.io_stats` tell how much was read.
    parameter_types: Of ``?``, ``$1`` and ``$name`` in the query, in their order: that of the column
        which a parameter is compared with, text if there is none.
    Raises TypeError: The query is no text.
    Raises InvalidArgumentError: DuckDB is not installed; or the query is none, several, one that
        writes, or wrong.
    """

    def __init__(
        self,
        query: str,
        scans: Mapping[SqlName, Scan] | Callable[[SqlName], Scan],
        *,
        where: str,
        parameters: Mapping[str, Any] | None = None,
        open_database: OpenDatabase | None = None,
    ) -> None:
        self.query, self._where = check_text(query, "query"), where
        self._open_database = open_database or partial(isolated_database, where)
        self.scans: Mapping[SqlName, Scan] = {} if callable(scans) else scans
        with self._database() as database:
            statement = _statement(database.connection, self.query, where)
            parameter_names = _parameter_names(statement)
            self._parameters: dict[str, Any] | None = None
            if parameters is not None and parameter_names:
                self._parameters = {name: parameters.get(name) for name in parameter_names}
            names = _tables_of(database.connection, statement)
            if callable(scans):
                self.scans = _found(scans, names, f"{where}: expected a SELECT")
            elif names is not None:
                self._check_known(names)
            if names is not None:
                self._check_told_apart(names)
            self.parameter_types = self._types_of(parameter_names, names)
            self._schema = self._relation(database).limit(0).to_arrow_table().schema

    def computed_in(self, open_database: OpenDatabase) -> SqlResult:
        """The same answer, computed in another database."""
        other = copy.copy(self)
        other._open_database = open_database
        return other

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        return self._schema

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The answer as record batches, while it is computed; `close` ends it."""
        with self._database() as database:
            reader = self._relation(database).to_arrow_reader()
            while (batch := _next_batch(reader)) is not None:
                yield batch.rename_columns(self.schema.names)  # each has another one there

    def head(self, n: int = 10) -> pa.Table:
        """The first rows."""
        n = integer(n, "n", minimum=0)
        with self._database() as database:
            return self._relation(database).limit(n).to_arrow_table()

    def __repr__(self) -> str:
        columns = names_text(self.schema.names, "columns")
        return facts_repr(f"SqlResult of {shortened(self.query, 200)!r}", {"columns": columns})

    @contextmanager
    def _database(self) -> Iterator[_Database]:
        """A database of its own for each answer, as one that is still read blocks another."""
        duckdb = load_duckdb(self._where)
        with self._open_database() as connection:
            database = _Database(connection, [])
            try:
                yield database
            except (duckdb.Error, _StreamError) as error:
                for source in database.sources:
                    if source.failure is not None:
                        raise source.failure from None
                columns = {name for scan in self.scans.values() for name in scan.schema.names}
                hint = _quotes_hint(connection, self.query, columns)
                hint += types_hint(error, [scan.schema for scan in self.scans.values()])
                raise InvalidArgumentError(f"{self._where}: {error}{hint}") from error

    def _relation(self, database: _Database) -> DuckDBPyRelation:
        """The query, where the scans have their names."""
        connection = database.connection
        for number, (name, scan) in enumerate(self.scans.items()):
            database.sources.append(_Source(scan))
            connection.register(f"rows {number}", database.sources[-1])
            for length in range(1, len(name)):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name[:length])}")
            view = f'CREATE OR REPLACE VIEW {_quoted(name)} AS FROM "rows {number}"'
            connection.execute(view)
        if self._parameters is None:
            return connection.sql(self.query)
        query = self.query.rstrip("; \t\r\n")  # which becomes part of another query
        return connection.sql(query, params=self._parameters)

    def _types_of(self, parameters: Sequence[str], names: _Names | None) -> dict[str, pa.DataType]:
        columns = {_LIMIT: pa.int64()}
        for scan in self.scans.values() if parameters else ():
            for column in scan.schema:
                is_dictionary = pa.types.is_dictionary(column.type)
                kind = column.type.value_type if is_dictionary else column.type
                columns.setdefault(folded(column.name), kind)
        compared = names.compared if names is not None else {}
        return {name: columns.get(compared.get(name, b""), pa.string()) for name in parameters}

    def _check_known(self, names: _Names) -> None:
        known = {folded(_quoted(name)) for name in self.scans}
        for name in names.tables:
            if folded(_quoted(name)) not in known and name not in names.subqueries:
                raise InvalidArgumentError(
                    f"{self._where}: no table {'.'.join(name)}; expected "
                    f"{', '.join('.'.join(each) for each in self.scans) or 'none'}"
                )

    def _check_told_apart(self, names: _Names) -> None:
        """Refuse a name that DuckDB takes for another column's, or field's, which it is like."""
        for scan in self.scans.values():
            for first, other in alike(scan.schema):
                if any(folded(each) == folded(other) for each in names.columns - {first}):
                    raise InvalidArgumentError(
                        f"{self._where}: {first!r} and {other!r} differ in case alone, which SQL "
                        f"does not tell apart, and {other!r} would mean {first!r}: rename one, or "
                        f"see what SELECT * calls the column (such as {other}_1)"
                    )


class _Database(NamedTuple):
    """Where a query is computed, and the scans that it reads there."""

    connection: DuckDBPyConnection
    sources: list[_Source]


class _StreamError(Exception):
    """DuckDB's error while an answer is read, which pyarrow tells as one of input and output."""


def _next_batch(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
    """The next one; None at the end."""
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None
    except (OSError, pa.ArrowException) as error:
        raise _StreamError(str(error)) from error


class _Source(WideningDataset):
    """A scan that keeps its own error, which DuckDB gives as text."""

    failure: Exception | None = None

    def _batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        try:
            yield from scan.to_batches()
        except Exception as error:
            self.failure = error
            raise


class _Names(NamedTuple):
    """What a query names where tables stand, and which of it may be a subquery (WITH).

    compared: By parameters, the columns that they are compared with, folded; or `_LIMIT`.
    columns: The names of columns and fields.
    """

    tables: set[SqlName]
    subqueries: set[SqlName]
    compared: dict[str, bytes]
    columns: set[str]


_LIMIT = b"LIMIT"
"""Stands for the column where a parameter is a number of rows; columns are in lower case."""


def _statement(connection: DuckDBPyConnection, query: str, where: str) -> Statement:
    """The only statement of a query, which reads."""
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise InvalidArgumentError(
            f"{where}: expected one query, found {len(statements)} statements"
        )
    kind = statements[0].type.name
    if kind not in _READING:
        advice = _INSTEAD.get(kind)
        raise InvalidArgumentError(
            f"{where}: expected a query, which only reads, found {kind}"
            + (f": {advice}" if advice else "")
        )
    return statements[0]


def _parameter_names(statement: Statement) -> tuple[str, ...]:
    """Numbers ascending, names as they stand in the query."""
    names, text = statement.named_parameters, statement.query
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names, key=lambda name: text.find(f"${name}")))


def _tables_of(connection: DuckDBPyConnection, statement: Statement) -> _Names | None:
    """The names of the tables that a query reads; None if DuckDB does not tell them."""
    if statement.type.name != "SELECT":
        return None
    ((tree,),) = connection.execute("SELECT json_serialize_sql(?)", [statement.query]).fetchall()
    names = _Names(set(), set(), {}, set())
    _collect(json.loads(tree), names)
    return names


def _collect(tree: Any, names: _Names) -> None:
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            names.tables.add(tuple(tree["qualified_name"]["path"]))
        names.columns.update(tree.get("column_names") or ())
        names.subqueries.update((each["key"],) for each in tree.get("cte_map", {}).get("map", ()))
        if tree.get("class") in _COMPARING or tree.get("type") in _COMPARING:
            _collect_compared(tree, names)
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            _collect(part, names)


_COMPARING = {"COMPARISON", "BETWEEN", "COMPARE_IN", "COMPARE_NOT_IN", "LIMIT_MODIFIER"}


def _collect_compared(tree: dict[str, Any], names: _Names) -> None:
    """The parameters that an expression compares with a column."""
    values = [
        part for value in tree.values() for part in (value if isinstance(value, list) else [value])
    ]
    parts = [part for part in values if isinstance(part, dict)]
    column = next((part["column_names"][-1] for part in parts if "column_names" in part), "")
    compared = _LIMIT if tree["type"] == "LIMIT_MODIFIER" else folded(column)
    for part in parts:
        if part.get("class") == "PARAMETER":
            names.compared[part["identifier"]] = compared


def _found(
    scan: Callable[[SqlName], Scan], names: _Names | None, expected: str
) -> dict[SqlName, Scan]:
    """The scans of the tables of a query."""
    if names is None:
        raise InvalidArgumentError(f"{expected}, in which the tables are known from the text")
    scans = {}
    for name in sorted(names.tables):
        try:
            scans[name] = scan(name)
        except TableNotFound:
            if name not in names.subqueries:
                raise
    return scans


def _quoted(name: SqlName) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def _quotes_hint(connection: DuckDBPyConnection, query: str, columns: set[str]) -> str:
    """Which columns of the query have to be quoted, as they are called like words of SQL."""
    words = set(re.findall(r'(?<!["\w])\w+(?!["\w])', query)) & columns
    reserved = {
        word
        for word, category in connection.execute(
            "SELECT keyword_name, keyword_category FROM duckdb_keywords()"
        ).fetchall()
        if category != "unreserved"
    }
    quoted = sorted(f'"{word}"' for word in words if word.lower() in reserved)
    if not quoted:
        return ""
    return f"\nwords of SQL as columns go in double quotes: write {', '.join(quoted)}"
