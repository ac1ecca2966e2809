"""SQL over scans: a query that DuckDB computes, whose columns and filters go into the scans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset

from fermion.arguments import integer
from fermion.display import facts_repr, names_text, shortened
from fermion.engine import isolated_database, load_duckdb
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_text
from fermion_table.errors import TableNotFound
from fermion_table.scanning.arrow_dataset import Scan, ScanDataset
from fermion_table.scanning.arrow_rows import ArrowRows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

SqlName = tuple[str, ...]
"""The name of a table in a query, by its parts."""

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

    Parameters
    ----------
    query
        One statement that reads.
    scans
        What it reads by name; or what gives the scan of a name in the query.

    Attributes
    ----------
    scans
        What it reads, by name: their `Scan.io_stats` tell how much was read.

    Raises
    ------
    TypeError
        The query is no text.
    InvalidArgumentError
        DuckDB is not installed; or the query is none, several, one that writes, or wrong.
    """

    def __init__(
        self,
        query: str,
        scans: Mapping[SqlName, Scan] | Callable[[SqlName], Scan],
        *,
        where: str,
    ) -> None:
        self.query, self._where = check_text(query, "query"), where
        self.scans: Mapping[SqlName, Scan] = {} if callable(scans) else scans
        with self._database() as database:
            names = _tables_of(database.connection, self.query, where)
            if callable(scans):
                self.scans = _found(scans, names, f"{where}: expected a SELECT")
            elif names is not None:
                self._check_known(names)
            self._schema = self._relation(database).limit(0).to_arrow_table().schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        return self._schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The answer as record batches, while it is computed."""
        with self._database() as database:
            for batch in self._relation(database).to_arrow_reader():
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
        with isolated_database(self._where) as connection:
            database = _Database(connection, [])
            try:
                yield database
            except duckdb.Error as error:
                for source in database.sources:
                    if source.failure is not None:
                        raise source.failure from None
                columns = {name for scan in self.scans.values() for name in scan.schema.names}
                hint = _quotes_hint(connection, self.query, columns)
                raise InvalidArgumentError(f"{self._where}: {error}{hint}") from error

    def _relation(self, database: _Database) -> DuckDBPyRelation:
        """The query, where the scans have their names."""
        connection = database.connection
        for number, (name, scan) in enumerate(self.scans.items()):
            database.sources.append(_Source(scan))
            connection.register(f"rows {number}", database.sources[-1])
            for length in range(1, len(name)):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name[:length])}")
            connection.execute(f'CREATE VIEW {_quoted(name)} AS FROM "rows {number}"')
        return connection.sql(self.query)

    def _check_known(self, names: _Names) -> None:
        known = {_quoted(name).lower() for name in self.scans}
        for name in names.tables:
            if _quoted(name).lower() not in known and name not in names.subqueries:
                raise InvalidArgumentError(
                    f"{self._where}: no table {'.'.join(name)}; expected "
                    f"{', '.join('.'.join(each) for each in self.scans) or 'none'}"
                )


class _Database(NamedTuple):
    """Where a query is computed, and the scans that it reads there."""

    connection: DuckDBPyConnection
    sources: list[_Source]


class _Source(ScanDataset):
    """A scan that keeps its own error, which DuckDB gives as text."""

    failure: Exception | None = None

    def scanner(self, *arguments: Any, **options: Any) -> pyarrow.dataset.Scanner:
        scan = self._asked(*arguments, **options)
        reader = pa.RecordBatchReader.from_batches(scan.schema, self._kept(scan))
        return pyarrow.dataset.Scanner.from_batches(reader)

    def _kept(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        try:
            yield from scan.to_batches()
        except Exception as error:
            self.failure = error
            raise


class _Names(NamedTuple):
    """What a query names where tables stand, and which of it may be a subquery (WITH)."""

    tables: set[SqlName]
    subqueries: set[SqlName]


def _tables_of(connection: DuckDBPyConnection, query: str, where: str) -> _Names | None:
    """The names of the tables that a query reads; None if DuckDB does not tell them."""
    kinds = [statement.type.name for statement in connection.extract_statements(query)]
    if len(kinds) != 1:
        raise InvalidArgumentError(f"{where}: expected one query, found {len(kinds)} statements")
    if kinds[0] not in _READING:
        advice = _INSTEAD.get(kinds[0])
        raise InvalidArgumentError(
            f"{where}: expected a query, which only reads, found {kinds[0]}"
            + (f": {advice}" if advice else "")
        )
    if kinds[0] != "SELECT":
        return None
    ((tree,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    names = _Names(set(), set())
    _collect(json.loads(tree), names)
    return names


def _collect(tree: Any, names: _Names) -> None:
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            names.tables.add(tuple(tree["qualified_name"]["path"]))
        names.subqueries.update((each["key"],) for each in tree.get("cte_map", {}).get("map", ()))
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            _collect(part, names)


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
