"""What clients are told of catalogs, schemas, tables, keys, types and the server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Catalog
from fermion_table.serving.catalog_tables import CatalogTables
from fermion_table.serving.messages import read_message, written
from tests.fermion_table.serving.conftest import Server

ALL = [
    ("fermion", "db", "a.b", "TABLE"),
    ("fermion", "db", "events", "TABLE"),
    ("fermion", "db.deep.er", "users", "TABLE"),
    ("fermion", "main", "top", "TABLE"),
]


@pytest.fixture
def tables(catalog: Catalog) -> CatalogTables:
    return CatalogTables(catalog)


def rows(tables: CatalogTables, kind: str, **values: Any) -> list[tuple[Any, ...]]:
    command = read_message(written(kind))
    command = command._replace(values={**command.values, **values})
    answer = tables.answer(command)
    assert answer.schema == tables.schema(command)
    answer.validate(full=True)
    return [tuple(row.values()) for row in answer.to_pylist()]


def test_a_client_sees_every_table_with_its_columns(server: Server) -> None:
    with server.connect() as connection:
        (found,) = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        assert found["catalog_name"] == "fermion"
        seen = {
            (schema["db_schema_name"], table["table_name"]): [
                column["column_name"] for column in table["table_columns"]
            ]
            for schema in found["catalog_db_schemas"]
            for table in schema["db_schema_tables"]
        }
        assert seen == {
            ("db", "a.b"): ["x"],
            ("db", "events"): ["id", "kind"],
            ("db.deep.er", "users"): ["id", "name"],
            ("main", "top"): ["id"],
        }
        schema = connection.adbc_get_table_schema("users", db_schema_filter="db.deep.er")
        assert schema.names == ["id", "name"]
        assert connection.adbc_get_table_types() == ["TABLE"]
        assert connection.adbc_get_info()["vendor_name"] == "Fermion"


def test_tables_are_found_by_patterns(tables: CatalogTables) -> None:
    for values, expected in (
        ({}, ALL),
        ({"catalog": "fermion"}, ALL),
        ({"catalog": "other"}, []),
        ({"catalog": ""}, []),
        ({"table_types": ("VIEW",)}, []),
        ({"table_types": ("VIEW", "TABLE")}, ALL),
        ({"db_schema_filter_pattern": "db"}, ALL[:2]),
        ({"db_schema_filter_pattern": "db%"}, ALL[:3]),
        ({"db_schema_filter_pattern": ""}, []),
        ({"table_name_filter_pattern": "%"}, ALL),
        ({"table_name_filter_pattern": "_._"}, ALL[:1]),
        ({"table_name_filter_pattern": "___"}, [ALL[0], ALL[3]]),
        ({"table_name_filter_pattern": r"\_\_\_"}, []),
        ({"table_name_filter_pattern": "e%s"}, ALL[1:2]),
        ({"table_name_filter_pattern": "("}, []),
        ({"table_name_filter_pattern": "\\"}, []),
    ):
        assert rows(tables, "CommandGetTables", **values) == expected, values


def test_schemas_are_namespaces_and_one_for_tables_without(tables: CatalogTables) -> None:
    names = ["db", "db.deep", "db.deep.er", "main"]
    assert rows(tables, "CommandGetDbSchemas") == [("fermion", name) for name in names]
    deep = rows(tables, "CommandGetDbSchemas", db_schema_filter_pattern="db._%")
    assert deep == [("fermion", "db.deep"), ("fermion", "db.deep.er")]
    assert rows(tables, "CommandGetDbSchemas", catalog="other") == []


def test_a_broken_table_hides_no_other_one(
    tables: CatalogTables, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """One has lost its files, another one's newest snapshot is cut."""
    catalog._names.enter()  # one that has no row and no files is not there
    shutil.rmtree(catalog.table("top").location)
    place = Path(catalog.table("db.`a.b`").location)
    max((place / "snapshot").glob("*.json")).write_text("{")
    found = rows(tables, "CommandGetTables", include_schema=True)
    assert [row[2] for row in found] == ["events", "users"]
    assert pa.ipc.read_schema(pa.py_buffer(found[0][4])).names == ["id", "kind"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert len(rows(tables, "CommandGetTables")) == 4


def test_primary_keys_are_told_in_their_order(tables: CatalogTables, catalog: Catalog) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    catalog.create_table("keyed", schema, primary_key=["b", "a"])
    found = rows(tables, "CommandGetPrimaryKeys", db_schema="main", table="keyed")
    assert found == [
        ("fermion", "main", "keyed", "b", None, 1),
        ("fermion", "main", "keyed", "a", None, 2),
    ]
    deep = rows(tables, "CommandGetPrimaryKeys", db_schema="db.deep.er", table="users")
    assert [row[3] for row in deep] == ["id"]
    for values in (
        {"db_schema": "db", "table": "events"},
        {"db_schema": "db", "table": "none"},
        {"db_schema": "none/..", "table": "x"},
        {"table": None},
        {"catalog": "other", "table": "keyed"},
    ):
        assert rows(tables, "CommandGetPrimaryKeys", **values) == [], values


def test_what_a_catalog_does_not_have_is_an_empty_answer(tables: CatalogTables) -> None:
    for kind in ("ExportedKeys", "ImportedKeys", "CrossReference"):
        assert rows(tables, f"CommandGet{kind}") == []
    assert tables.schema(read_message(written("TicketStatementQuery"))) is None


def test_the_server_describes_itself_and_its_types(tables: CatalogTables) -> None:
    info = dict(rows(tables, "CommandGetSqlInfo"))
    assert info[0] == "Fermion"
    assert info[3] is True
    assert info[504] == '"'
    assert rows(tables, "CommandGetSqlInfo", info=(4, 0, 9999)) == [(0, "Fermion"), (4, True)]
    names = {row[0]: row[1] for row in rows(tables, "CommandGetXdbcTypeInfo")}
    assert names["VARCHAR"] == 12
    (only,) = rows(tables, "CommandGetXdbcTypeInfo", data_type=-5)
    assert only[0] == "BIGINT"
