"""SQL of Flink on a catalog: databases, tables, changes, errors."""

from __future__ import annotations

import pytest

from fermion_table import Catalog
from tests.flink.environment import FlinkError, use_catalog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

CREATE = (
    "CREATE TABLE db.offers (id BIGINT COMMENT 'the key', city STRING, at_time TIMESTAMP_LTZ(6), "
    "PRIMARY KEY (id) NOT ENFORCED) COMMENT 'all offers' "
    "WITH ('bucket' = '2', 'merge_engine' = 'first_row')"
)


def values(rows):
    return [row[0] if len(row) == 1 else row for _, row in rows]


def test_a_table_is_made_shown_changed_renamed_and_dropped(flink, warehouse):
    catalog = use_catalog(warehouse)
    flink.sql(*catalog, "CREATE DATABASE db", CREATE)
    assert values(flink.sql(*catalog, "SHOW DATABASES")) == ["db", "default"]
    assert values(flink.sql(*catalog, "SHOW TABLES IN db")) == ["offers"]
    described = values(flink.sql(*catalog, "DESCRIBE db.offers"))
    assert [row[:4] for row in described] == [
        ("id", "BIGINT", False, "PRI(id)"),
        ("city", "STRING", True, None),
        ("at_time", "TIMESTAMP_LTZ(6)", True, None),
    ]
    assert described[0][-1] == "the key"

    table = Catalog.open(warehouse).table("db.offers")
    assert (table.primary_key, table.snapshot.id) == (["id"], 0)
    expected = {"bucket": "2", "merge_engine": "first_row", "comment": "all offers"}
    assert table.properties == expected
    (shown,) = values(flink.sql(*catalog, "SHOW CREATE TABLE db.offers"))
    assert "PRIMARY KEY (`id`) NOT ENFORCED" in shown
    assert "'merge_engine' = 'first_row'" in shown

    flink.sql(
        *catalog,
        "ALTER TABLE db.offers ADD (price DECIMAL(10, 2) AFTER id, note STRING COMMENT 'free')",
        "ALTER TABLE db.offers RENAME city TO town",
        "ALTER TABLE db.offers DROP at_time",
        "ALTER TABLE db.offers SET ('team.owner' = 'ann')",
        "ALTER TABLE db.offers RESET ('team.owner')",
        "CREATE TABLE db.twin WITH ('bucket' = '4') LIKE db.offers (OVERWRITING OPTIONS)",
        "CREATE TABLE db.parts (id BIGINT, day_of DATE) PARTITIONED BY (day_of)",
        "ALTER TABLE db.offers RENAME TO deals",
    )
    catalog_now = Catalog.open(warehouse)
    assert catalog_now.table("db.deals").columns == ["id", "price", "town", "note"]
    assert catalog_now.table("db.parts").partition_by == ["day_of"]
    twin = catalog_now.table("db.twin")
    assert twin.columns == ["id", "price", "town", "note"]
    assert (twin.primary_key, twin.properties["bucket"]) == (["id"], "4")
    assert twin.properties["merge_engine"] == "first_row"
    assert twin.location != catalog_now.table("db.deals").location

    flink.sql(*catalog, "DROP TABLE db.deals", "DROP TABLE IF EXISTS db.deals")
    with pytest.raises(FlinkError, match="is not empty"):
        flink.sql(*catalog, "DROP DATABASE db RESTRICT")
    flink.sql(*catalog, "DROP DATABASE db CASCADE")
    assert Catalog.open(warehouse).namespaces() == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t (id INT) WITH ('merge_engin' = 'x')", "did you mean"),
        ("CREATE TABLE t (name VARCHAR(3))", "tables keep no length of texts; use STRING"),
        ("CREATE TABLE t (id INT, two AS id * 2)", "computed or metadata"),
        (
            "CREATE TABLE t (s TIMESTAMP(3), WATERMARK FOR s AS s)",
            "tables keep no WATERMARK. Use CREATE TEMPORARY TABLE",
        ),
        ("CREATE TABLE t (id INT) WITH ('scan.tag' = 'a')", "give it with the statement"),
        ("CREATE TABLE t (id INT) WITH ('path' = 'elsewhere')", "leave the path out"),
        ("CREATE TABLE t (id INT) WITH ('connector' = 'kafka')", "this catalog has Fermion tables"),
        ("CREATE VIEW v AS SELECT 1", "tables only, no views"),
        ("SELECT * FROM nothing", "Object 'nothing' not found"),
    ],
)
def test_what_tables_do_not_have_is_refused_with_what_to_do_instead(
    flink, warehouse, statement, expected
):
    with pytest.raises(FlinkError, match=expected):
        flink.sql(*use_catalog(warehouse), statement)
    assert Catalog.open(warehouse).tables() == []


def test_a_python_without_fermion_is_said_to_be_the_reason(flink, warehouse):
    with pytest.raises(FlinkError, match=r"Set 'python\.executable'"):
        flink.sql(
            f"CREATE CATALOG lake WITH ('type' = 'fermion', 'warehouse' = '{warehouse}', "
            "'python.executable' = '/nothing/python')"
        )
