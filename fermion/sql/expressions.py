"""SQL expressions over the rows of record batches, parsed and computed by DuckDB.

DuckDB's own parser gives the tree of a text, which is searched here: an expression that looks at
its own row only, and gives the same value whenever it is computed, may stay. What DuckDB computes
is this tree, spelled by DuckDB again, with names of our own for the columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.rows import field_within, one_batch
from fermion.columns.types import child_fields, with_wide_floats
from fermion.errors import InvalidArgumentError, column_not_found
from fermion.sql.engine import ENGINE, ROWS, NotSqlError, functions, load_duckdb

Path = tuple[str, ...]

SHOWN_LENGTH = 120
"""Characters of an expression that messages show."""
_CLASSES = {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT"),
    *("FUNCTION", "LAMBDA", "OPERATOR", "TYPE"),
}
"""Parts of DuckDB's trees that compute a value of a row from the row."""
_CLOCK = frozenset(["current_localtime", "current_localtimestamp"])
"""Functions that look at the clock, though DuckDB's catalog calls them consistent; `age` of one
argument does, too."""
_COLUMN = "fermion column "
_UNSTABLE = "gives other values when it is called again"
_REFUSED = {
    "STAR": "* is no expression of one column",
    "SUBQUERY": "it has a subquery",
    "WINDOW": "it has a window function, which looks at other rows",
    "PARAMETER": "it has a parameter",
    "POSITIONAL_REFERENCE": "it names a column by position",
}


class SqlValues:
    """Trees of expressions over some columns, which one query computes. Picklable.

    trees: What `SqlTree.renamed` gives, with `alias` of the place of each column as its name.
    columns: What each column is, for messages.
    """

    def __init__(
        self, trees: Sequence[Mapping[str, Any]], columns: Sequence[str], where: str, shown: str
    ) -> None:
        self._where, self._shown = where, shown
        self._columns = tuple(columns)
        self._query = _query(trees)
        self._extracts = re.search("(struct|array)_extract", json.dumps(trees), re.I) is not None

    def compute(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """The value of each tree, of the types that DuckDB gives.

        columns: Of ``rows`` values each.
        Raises InvalidArgumentError: The columns' types do not fit, or a value can't be computed.
        """
        reader = pa.RecordBatchReader.from_batches(*self._given(columns, rows))
        duckdb = load_duckdb(self._where)
        try:
            answer = ENGINE.run(self._query, reader)
        except (duckdb.InternalError, duckdb.FatalException) as error:
            ENGINE.restart()  # it refuses any other query
            raise self._failed(error) from error
        except duckdb.Error as error:
            raise self._failed(error) from error
        if answer.num_rows != rows:  # not possible with the trees that may stay
            raise self._failed(f"{answer.num_rows:,} values for {rows:,} rows")
        if not rows:
            return [pa.nulls(0, dtype) for dtype in answer.schema.types]
        try:
            return list(one_batch([batch for batch in answer.to_batches() if batch]).columns)
        except pa.ArrowInvalid as error:
            raise self._failed(f"{error}; give fewer rows at a time") from error

    def _given(
        self, columns: Sequence[pa.Array], rows: int
    ) -> tuple[pa.Schema, list[pa.RecordBatch]]:
        """The columns as DuckDB takes them, under names that no text holds."""
        arrays = [
            _taken(column, f"{self._where}: SQL: column {name}")
            for column, name in zip(columns, self._columns, strict=True)
        ]
        for array in arrays if self._extracts else ():
            for first, other in alike(child_fields(array.type)):
                raise self._failed(
                    f"fields {first!r} and {other!r} differ in case alone, which DuckDB does not "
                    "tell apart in brackets and functions: name a field as column.field"
                )
        if not arrays:  # the number of rows has to come from somewhere
            arrays = [pa.nulls(rows)]
        schema = pa.schema([pa.field(alias(at), array.type) for at, array in enumerate(arrays)])
        return schema, [pa.RecordBatch.from_arrays(arrays, schema=schema)]

    def _failed(self, reason: Any) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._where}: SQL {self._shown:.400}: {reason}")


class SqlExpressions:
    """Several SQL expressions, which one query computes. Picklable.

    Parameters
    ----------
    texts
        By the name of the column that each one gives.

    Attributes
    ----------
    paths
        The columns that they name; fields of structs as paths.

    Raises
    ------
    InvalidArgumentError
        A text is no expression of one row, or DuckDB is not installed.
    """

    def __init__(self, texts: Mapping[str, str], where: str) -> None:
        self._where = where
        trees, paths = [], dict[Path, None]()
        for name, text in texts.items():
            tree = SqlTree(text, f"{where}: column {name!r}: SQL {_shown(text)}")
            trees.append(tree)
            paths.update(dict.fromkeys(tree.paths))
        self.paths = tuple(paths)
        # Each path is a column to DuckDB, which would find fields of structs whatever their case.
        aliases = {path: (alias(at),) for at, path in enumerate(self.paths)}
        shown = ", ".join(f"{name!r}: {_shown(text)}" for name, text in texts.items())
        self._values = SqlValues(
            [tree.renamed(aliases.__getitem__) for tree in trees],
            [repr(".".join(path)) for path in self.paths],
            where,
            f"{{{shown}}}",
        )

    def compute(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The values of some rows, of the types that DuckDB gives, in the order of the texts.

        Parameters
        ----------
        batch
            With the columns of `paths`; others are not looked at.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError
            The batch lacks a column, its types do not fit, or a value can't be computed.
        """
        names = dict.fromkeys(batch.schema.names)
        columns = []
        for path in self.paths:
            if path[0] not in names:
                raise column_not_found(path[0], names, where=f"{self._where}: SQL")
            try:
                columns.append(field_within(batch.column(path[0]), path[1:]))
            except KeyError as error:
                raise InvalidArgumentError(
                    f"{self._where}: SQL: {'.'.join(path)}: no field {error} in column "
                    f"{path[0]!r}, {batch.schema.field(path[0]).type}"
                ) from None
        return self._values.compute(columns, batch.num_rows)


class SqlTree:
    """The tree of an expression, checked.

    shown: What it is, for messages.
    checks: Whether to check what is in it; otherwise only `root` is known.

    Attributes:
    paths: The columns that it names; fields of structs as paths. One for each time it names one.
    root: The tree, as DuckDB writes it in JSON.
    Raises InvalidArgumentError: The text is no expression of one row, or DuckDB is not installed.
    """

    def __init__(self, text: str, shown: str, *, checks: bool = True) -> None:
        self._shown = shown
        self.root = self._parsed(text)
        self._columns: list[list[str]] = []
        try:
            if checks:
                self._search(self.root, frozenset(), frozenset())
        except RecursionError:
            raise self._wrong("it is nested too deep") from None
        self.paths = tuple(tuple(each) for each in self._columns)

    def renamed(self, rename: Callable[[Path], Path]) -> Mapping[str, Any]:
        """The tree with other names of the columns. Changes this object, once."""
        for path in self._columns:
            path[:] = rename(tuple(path))
        return self.root

    def _parsed(self, text: str) -> dict[str, Any]:
        if not text.strip() or "\0" in text:
            raise self._wrong("expected an expression")
        duckdb = load_duckdb(self._shown)
        try:
            found = ENGINE.parsed(f"SELECT {text}")
        except json.JSONDecodeError:  # it describes no literal whose bytes are no text
            raise NotSqlError(f"{self._shown}: DuckDB cannot read a literal of it") from None
        except (duckdb.Error, RecursionError, UnicodeError) as error:
            raise NotSqlError(f"{self._shown}: {error}") from error
        if found["error"]:
            raise NotSqlError(f"{self._shown}: {found['error_message']}")
        root, *others = _selected(found)
        if others or _without_selected(found) != _template() or root.get("alias"):
            raise self._wrong(
                "expected one expression, without FROM, WHERE or other clauses, and without a name"
            )
        return root

    def _search(self, node: Any, bound: frozenset[str], macros: frozenset[str]) -> None:
        """Note the columns below a node; refuse what is no expression of one row.

        bound: Names that a lambda or a macro around the node gives.
        """
        kind = node.get("class") if isinstance(node, dict) else None
        if kind is not None and kind not in _CLASSES:
            raise self._wrong(_REFUSED.get(kind, f"it has a {kind}"))
        if kind == "COLUMN_REF":
            names = node["column_names"]
            if names[0] in bound:
                return
            if macros:  # such as current_timestamp
                raise self._wrong(f"{names[0]} {_UNSTABLE}")
            self._columns.append(names)
            return
        if kind == "LAMBDA":
            if node.get("syntax_type") != "LAMBDA_KEYWORD":
                raise self._wrong("it has an ->: write lambda x: x + 1, or json_extract(...)")
            bound |= {each["column_names"][0] for each in _references(node["lhs"])}
            if any(name.startswith(_COLUMN) for name in bound):
                raise self._wrong(f"a parameter of a lambda is called {_COLUMN!r}")
        if kind == "FUNCTION":
            self._check_function(node, macros)
        for each in node.values() if isinstance(node, dict) else node:
            if isinstance(each, (dict, list)):
                self._search(each, bound, macros)

    def _check_function(self, node: Mapping[str, Any], macros: frozenset[str]) -> None:
        name = str(node.get("function_name", "")).lower()
        if node.get("distinct") or node.get("filter") or (node.get("order_bys") or {})["orders"]:
            raise self._wrong(f"{name}() is given DISTINCT, FILTER or ORDER BY")
        if name in _CLOCK or (name == "age" and len(node["arguments"]) < 2):
            raise self._wrong(f"{name}() {_UNSTABLE}")
        known = functions().get(name, set())
        kinds = {each.kind for each in known}
        for each in known:
            if each.kind in ("aggregate", "window"):
                raise self._wrong(f"{name}() is no function of one row ({each.kind})")
            if each.kind == "scalar" and each.stability != "CONSISTENT":
                raise self._wrong(f"{name}() {_UNSTABLE}")
            if each.macro is not None and each.kind == "macro" and name not in macros:
                for part in _selected(ENGINE.parsed(f"SELECT {each.macro}")):
                    self._search(part, each.parameters, macros | {name})
        if not kinds & {"scalar", "macro"}:
            what = f"a function of another kind ({', '.join(kinds)})" if kinds else "unknown"
            raise self._wrong(f"{name}() is {what}")

    def _wrong(self, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._shown}: {reason}")


@cache
def _template() -> Any:
    """What surrounds an expression that stands alone."""
    return _without_selected(ENGINE.parsed("SELECT NULL"))


def _query(trees: Sequence[Mapping[str, Any]]) -> str:
    """A query that gives the value of each tree."""
    query = ENGINE.parsed(f"SELECT NULL FROM {ROWS}")
    query["statements"][0]["node"]["select_list"] = [
        dict(tree, alias=f"fermion value {at}") for at, tree in enumerate(trees)
    ]
    return ENGINE.spelled(query)


def spelled(tree: Mapping[str, Any]) -> str:
    """The text of a tree, as DuckDB writes it."""
    query = ENGINE.parsed("SELECT NULL")
    query["statements"][0]["node"]["select_list"] = [tree]
    return ENGINE.spelled(query).removeprefix("SELECT ")


def _selected(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The expressions of the first statement; none of those that are no plain SELECT."""
    return found["statements"][0]["node"].get("select_list") or [{}]


def _without_selected(found: Mapping[str, Any]) -> Any:
    """Statements without the expressions."""
    return [{**each, "node": {**each["node"], "select_list": None}} for each in found["statements"]]


def _references(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF":
        yield node
    elif isinstance(node, (dict, list)):
        for each in node.values() if isinstance(node, dict) else node:
            yield from _references(each)


def alike(fields: Iterable[pa.Field]) -> Iterator[tuple[str, str]]:
    """Names of columns, or of fields of one struct, that DuckDB takes for one: first and other.

    They differ in case alone.
    """
    known: dict[bytes, str] = {}
    for each in fields:
        first = known.setdefault(folded(each.name), each.name)
        if first != each.name:
            yield first, each.name
        yield from alike(child_fields(each.type))


def folded(name: str) -> bytes:
    """A name as DuckDB compares it: only letters of ASCII have a case."""
    return name.encode().lower()


def alias(at: int) -> str:
    """What a column is called in a query. Parameters of lambdas have no such names."""
    return f"{_COLUMN}{at}"


def _taken(array: pa.Array, shown: str) -> pa.Array:
    """An array as DuckDB takes it, without loss."""
    wide = with_wide_floats(pa.field("", array.type)).type
    for dtype in _types(wide):
        if (
            pat.is_decimal256(dtype)
            or (pat.is_decimal(dtype) and dtype.scale < 0)
            or (pat.is_duration(dtype) and dtype.unit == "ns")
        ):
            raise InvalidArgumentError(
                f"{shown}: DuckDB has no type {dtype}: use a function, or an expression of pyarrow"
            )
    return array if wide == array.type else array.cast(wide)


def _types(dtype: pa.DataType) -> Iterator[pa.DataType]:
    """A type and those within it."""
    yield dtype
    for at in range(dtype.num_fields):
        yield from _types(dtype.field(at).type)


def _shown(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= SHOWN_LENGTH else f"{shown[:SHOWN_LENGTH]}..."
