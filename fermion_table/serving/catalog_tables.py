"""The tables of a catalog as clients of Flight SQL ask for them: by catalog, schema and name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion import version
from fermion.errors import FermionError, InvalidArgumentError
from fermion.redaction import logger
from fermion_table.catalog.catalog import Catalog
from fermion_table.catalog.names import parts_of, quoted
from fermion_table.errors import TableNotFound
from fermion_table.scanning.sql import SqlName
from fermion_table.serving.messages import Message

if TYPE_CHECKING:
    from fermion_table.scanning.scan import Scan
    from fermion_table.table.table import Table

CATALOG = "fermion"
"""What clients see as the catalog of all tables; queries need not name it."""
ROOT_SCHEMA = "main"
"""What clients see as the schema of tables without a namespace."""
_TABLE = "TABLE"
_log = logger(__name__)


def _fields(text: str) -> pa.Schema:
    """Fields written as ``name type``, with ``!`` where there are no nulls."""
    fields = []
    for line in text.split(","):
        name, kind = line.split()
        fields.append(pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!")))
    return pa.schema(fields)


_TYPES = {
    "text": pa.string(),
    "bytes": pa.binary(),
    "int": pa.int32(),
    "byte": pa.uint8(),
    "uint": pa.uint32(),
    "flag": pa.bool_(),
    "texts": pa.list_(pa.field("item", pa.string(), nullable=False)),
    "value": pa.dense_union(
        [
            pa.field("string_value", pa.string()),
            pa.field("bool_value", pa.bool_()),
            pa.field("bigint_value", pa.int64()),
            pa.field("int32_bitmask", pa.int32()),
            pa.field("string_list", pa.list_(pa.string())),
            pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
        ]
    ),
}
_FOREIGN_KEYS = _fields(
    "pk_catalog_name text, pk_db_schema_name text, pk_table_name text!, pk_column_name text!, "
    "fk_catalog_name text, fk_db_schema_name text, fk_table_name text!, fk_column_name text!, "
    "key_sequence int!, fk_key_name text, pk_key_name text, update_rule byte!, delete_rule byte!"
)
_TABLES = _fields("catalog_name text, db_schema_name text, table_name text!, table_type text!")
_SCHEMAS = {
    "CommandGetCatalogs": _fields("catalog_name text!"),
    "CommandGetDbSchemas": _fields("catalog_name text, db_schema_name text!"),
    "CommandGetTableTypes": _fields("table_type text!"),
    "CommandGetTables": _TABLES,
    "CommandGetPrimaryKeys": _fields(
        "catalog_name text, db_schema_name text, table_name text!, column_name text!, "
        "key_name text, key_sequence int!"
    ),
    "CommandGetExportedKeys": _FOREIGN_KEYS,
    "CommandGetImportedKeys": _FOREIGN_KEYS,
    "CommandGetCrossReference": _FOREIGN_KEYS,
    "CommandGetSqlInfo": _fields("info_name uint!, value value!"),
    "CommandGetXdbcTypeInfo": _fields(
        "type_name text!, data_type int!, column_size int, literal_prefix text, "
        "literal_suffix text, create_params texts, nullable int!, case_sensitive flag!, "
        "searchable int!, unsigned_attribute flag, fixed_prec_scale flag!, auto_increment flag, "
        "local_type_name text, minimum_scale int, maximum_scale int, sql_data_type int!, "
        "datetime_subcode int, num_prec_radix int, interval_precision int"
    ),
}
_SQL_TYPES = {  # DuckDB's name, the number of XDBC, the size, what literals stand in
    "BOOLEAN": (-7, 1, None),
    "TINYINT": (-6, 3, None),
    "SMALLINT": (5, 5, None),
    "INTEGER": (4, 10, None),
    "BIGINT": (-5, 19, None),
    "REAL": (7, 7, None),
    "DOUBLE": (8, 15, None),
    "DECIMAL": (3, 38, None),
    "VARCHAR": (12, None, "'"),
    "BLOB": (-3, None, "'"),
    "DATE": (91, 10, "'"),
    "TIME": (92, 15, "'"),
    "TIMESTAMP": (93, 26, "'"),
}
_SQL_INFO: dict[int, str | bool | int | dict[int, int]] = {
    0: "Fermion",
    1: version.__version__,
    2: pa.__version__,
    3: True,  # it only reads
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,  # transactions: none
    9: True,  # queries can be cancelled
    504: '"',  # around identifiers
    506: True,  # every table can be read
    507: 3,  # nulls come at the end
    513: "\\",  # escapes in the patterns of names
    514: "",  # characters of names, beyond letters, digits and _
    **dict.fromkeys((515, 516, 518, 520, 521, 523, 524), True),  # what DuckDB's SELECT can
    522: 3,  # GROUP BY of any columns
    525: 1,  # SQL's core grammar
    526: 1,  # of SQL 92 the entry level
    528: 2,  # all outer joins
    529: "schema",
    530: "procedure",
    531: "catalog",
    532: True,  # the catalog comes first in a name
    533: 0,  # where schemas and catalogs may stand besides names of tables
    534: 0,
    535: 0,  # positioned updates
    538: 15,  # subqueries everywhere
    539: True,
    540: 3,  # UNION and UNION ALL
    562: 0,  # transactions: none
    564: 0,
    567: 1,  # results are read forward
    **dict.fromkeys(range(541, 556), 0),  # greatest lengths and counts: none is known
    **dict.fromkeys((557, 558, 559, 560, 561), 0),
    # DDL, references of keys, batches of updates, savepoints, procedures and so on
    517: {},  # CONVERT from no type to no other
    **dict.fromkeys((500, 501, 502, 519, 527, 536, 537, 556, 563, 565, 566), False),
    **dict.fromkeys((572, 573, 574, 575, 576), False),
}
_BITMASKS = {8, 507, 522, 525, 526, 528, 533, 534, 535, 538, 540, 564, 567}
"""Values that Flight SQL wants as numbers of 32 bits."""


class CatalogTables:
    """What a catalog answers to clients that ask for its tables.

    catalog: Whose tables they are.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._rows: dict[str, Callable[[Mapping[str, Any]], Iterable[tuple[Any, ...]]]] = {
            "CommandGetCatalogs": lambda _: [(CATALOG,)],
            "CommandGetDbSchemas": self._schemas,
            "CommandGetTableTypes": lambda _: [(_TABLE,)],
            "CommandGetTables": self._tables,
            "CommandGetPrimaryKeys": self._primary_key,
            "CommandGetXdbcTypeInfo": _types,
        }

    def scan(self, name: SqlName) -> Scan:
        """The rows of a table that a query names, with or without catalog and root schema.

        Clients write a namespace of several parts as one name: ``"a.b".events``.

        Raises TableError, InvalidArgumentError.
        """
        return self._table(name).scan()

    def schema(self, command: Message) -> pa.Schema | None:
        """The schema of the answer to a command for metadata; None: it is no such command."""
        schema = _SCHEMAS.get(command.kind)
        if schema is not None and command.values.get("include_schema"):
            schema = schema.append(pa.field("table_schema", pa.binary(), nullable=False))
        return schema

    def answer(self, command: Message) -> pa.Table:
        """The answer to a command that `schema` knows."""
        schema = self.schema(command) or pa.schema([])
        if command.kind == "CommandGetSqlInfo":
            return _sql_info(set(command.values["info"])).cast(schema)
        rows = list(self._rows.get(command.kind, lambda _: ())(command.values))
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        return pa.table(
            [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
            schema=schema,
        )

    def _schemas(self, wanted: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        if wanted["catalog"] not in (None, CATALOG):
            return
        is_wanted = _like(wanted["db_schema_filter_pattern"])
        for name in sorted({*self.catalog.namespaces(), ROOT_SCHEMA}):
            if is_wanted(name):
                yield CATALOG, name

    def _tables(self, wanted: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        types = wanted["table_types"]
        if wanted["catalog"] not in (None, CATALOG) or (types and _TABLE not in types):
            return
        schema_is_wanted = _like(wanted["db_schema_filter_pattern"])
        table_is_wanted = _like(wanted["table_name_filter_pattern"])
        names = [(parts_of(text), text) for text in self.catalog.tables()]
        for schema, name, text in sorted((_schema_name(parts), parts[-1], t) for parts, t in names):
            if not schema_is_wanted(schema) or not table_is_wanted(name):
                continue
            row = (CATALOG, schema, name, _TABLE)
            if not wanted["include_schema"]:
                yield row
            elif (columns := self._columns(text)) is not None:
                yield *row, columns

    def _columns(self, name: str) -> bytes | None:
        """The schema of a table, serialized; None if it can't be read."""
        try:
            return self.catalog.table(name).scan().schema.serialize().to_pybytes()
        except (FermionError, OSError):  # one that is broken, or dropped now, hides no other
            _log.warning("%s: its columns can't be listed", name, exc_info=True)
            return None

    def _primary_key(self, wanted: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        schema, name = wanted["db_schema"] or ROOT_SCHEMA, wanted["table"] or ""
        if wanted["catalog"] not in (None, CATALOG):
            return
        try:
            key = self._table((schema, name)).primary_key
        except (TableNotFound, InvalidArgumentError):
            return
        for number, column in enumerate(key, 1):
            yield CATALOG, schema, name, column, None, number

    def _table(self, name: SqlName) -> Table:
        first: FermionError | None = None
        for parts in _spellings(name):
            try:
                return self.catalog.table(parts)
            except (TableNotFound, InvalidArgumentError) as error:
                first = first or error
        raise first or InvalidArgumentError("expected the name of a table")


def _spellings(name: SqlName) -> Iterator[SqlName]:
    """What a name in a query may mean, the likeliest first."""
    yield name
    if len(name) > 1 and name[0] == CATALOG:
        name = name[1:]
        yield name
    if len(name) == 2 and name[0] == ROOT_SCHEMA:
        yield name[1:]
    if len(name) == 2 and ("." in name[0] or "`" in name[0]):
        yield (*parts_of(name[0]), name[1])


def _schema_name(parts: tuple[str, ...]) -> str:
    """Of the table with this name."""
    return quoted(parts[:-1]) or ROOT_SCHEMA


def _like(pattern: str | None) -> Callable[[str], bool]:
    """Whether a name is like a pattern with ``%`` and ``_``; backslashes escape them."""
    if pattern is None:
        return lambda _: True
    parts = re.split(r"(\\.|%|_)", pattern, flags=re.DOTALL)
    signs = {"%": ".*", "_": "."}
    text = "".join(signs.get(part) or re.escape(part.removeprefix("\\")) for part in parts)
    compiled = re.compile(text, re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None


def _types(wanted: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """DuckDB's types, as XDBC describes them."""
    for name, (number, size, quote) in _SQL_TYPES.items():
        if wanted["data_type"] in (0, number):
            scale = (0, 38) if name == "DECIMAL" else (None, None)
            row = (name, number, size, quote, quote, None, 1, name == "VARCHAR", 3, False, False)
            yield *row, False, name, *scale, number, None, 10 if quote is None else None, None


def _sql_info(wanted: set[int]) -> pa.Table:
    """What the server says of itself, of all numbers or of some."""
    names, kinds, offsets = [], [], []
    children: list[list[Any]] = [[] for _ in range(6)]
    for number, value in _SQL_INFO.items():
        if wanted and number not in wanted:
            continue
        kind = 3 if number in _BITMASKS else {str: 0, bool: 1, int: 2, dict: 5}[type(value)]
        names.append(number)
        kinds.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(value)
    union = _TYPES["value"]
    value = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, union.field(i).type) for i, child in enumerate(children)],
        [union.field(i).name for i in range(len(children))],
    )
    return pa.table([pa.array(names, pa.uint32()), value], names=["info_name", "value"])
