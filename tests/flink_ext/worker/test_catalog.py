"""The catalog's requests: databases, tables, their descriptions, and changes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Catalog, Table
from flink_ext.worker.tables import moment
from tests.kit.flink_worker import Refused, ask

COLUMNS = [["id", "BIGINT NOT NULL", "the key"], ["city", "STRING", ""]]


@pytest.fixture
def lake(tmp_path):
    """A function that asks the catalog of a warehouse."""

    def asked(op: str, **fields: Any) -> Any:
        return ask(op, warehouse=str(tmp_path), **fields)

    asked.catalog = Catalog.open(tmp_path)
    return asked


def test_databases_are_namespaces(lake):
    lake("create_namespace", name="sales")
    lake("create_namespace", name="`a.b`")
    assert lake("namespaces")["names"] == ["`a.b`", "sales"] == lake.catalog.namespaces()
    lake("drop_namespace", name="`a.b`")
    assert lake("namespaces")["names"] == ["sales"]
    with pytest.raises(Refused, match="TableNotFound"):
        lake("drop_namespace", name="nothing")


def test_a_database_is_dropped_with_its_tables_only_if_it_says_so(lake):
    lake("create_table", namespace="db", name="t", columns=COLUMNS)
    with pytest.raises(Refused, match="db"):
        lake("drop_namespace", name="db")
    lake("drop_namespace", name="db", cascade=True)
    assert lake("namespaces")["names"] == []


def test_a_table_is_made_and_described(lake):
    made = lake(
        "create_table",
        namespace="db",
        name="offers",
        columns=COLUMNS,
        primary_key=["id"],
        properties={"bucket": "2", "sort_by": "city"} | {"sort_by": ""},
        comment="all offers",
    )
    table = lake.catalog.table("db.offers")
    assert made == lake("get_table", namespace="db", name="offers")
    assert made == {
        "columns": COLUMNS,
        "primary_key": ["id"],
        "partition_by": [],
        "properties": {"bucket": "2", "comment": "all offers"},
        "location": table.location,
        "snapshot": 0,
    }
    assert table.schema.to_arrow(field_ids=False) == pa.schema(
        [pa.field("id", pa.int64(), False), pa.field("city", pa.string())]
    )


def test_what_flink_has_no_words_for_is_in_the_options_and_can_be_given_again(lake):
    """Partitions by functions of columns, and the sort order."""
    properties = {"partition_by": "bucket(4, id),city", "sort_by": "city,id"}
    made = lake("create_table", namespace="db", name="t", columns=COLUMNS, properties=properties)
    assert (made["properties"], made["partition_by"]) == (properties, [])
    again = lake("create_table", namespace="db", name="u", columns=COLUMNS, properties=properties)
    assert again["properties"] == made["properties"]
    assert lake.catalog.table("db.u").partition_by == ["bucket(4, id)", "city"]


def test_partitions_by_columns_are_flinks(lake):
    made = lake("create_table", namespace="d", name="t", columns=COLUMNS, partition_by=["city"])
    assert (made["properties"], made["partition_by"]) == ({}, ["city"])


def test_names_that_need_quotes_are_listed_without_them(lake):
    for name in ("plain", "with.dot", "with`quote"):
        lake("create_table", namespace="`a.b`", name=name, columns=COLUMNS)
    assert lake("tables", namespace="`a.b`")["names"] == ["plain", "with.dot", "with`quote"]
    assert lake("get_table", namespace="`a.b`", name="with.dot")["columns"] == COLUMNS


def test_a_missing_table_is_said_to_be_missing(lake):
    assert lake("get_table", namespace="db", name="t") == {"missing": True}


def test_a_misspelt_property_is_refused_with_the_right_one(lake):
    with pytest.raises(Refused, match="did you mean 'merge_engine'"):
        lake(
            "create_table",
            namespace="db",
            name="t",
            columns=COLUMNS,
            primary_key=["id"],
            properties={"merge_engin": "first_row"},
        )
    assert lake("namespaces")["names"] == []


def test_the_path_of_another_table_is_left_out_and_any_other_refused(lake):
    """CREATE TABLE ... LIKE has the options of the table that it is like."""
    first = lake("create_table", namespace="db", name="t", columns=COLUMNS)
    path = {"path": first["location"]}
    second = lake("create_table", namespace="db", name="u", columns=COLUMNS, properties=path)
    assert second["location"] != first["location"]
    with pytest.raises(Refused, match="'path' = 'nowhere'"):
        lake(
            "create_table", namespace="d", name="v", columns=COLUMNS, properties={"path": "nowhere"}
        )


def test_a_type_that_a_table_would_not_return_is_refused_before_anything_is_made(lake):
    with pytest.raises(Refused, match=r"column 'city': type VARCHAR\(3\)"):
        lake("create_table", namespace="db", name="t", columns=[["city", "VARCHAR(3)", ""]])
    assert lake("namespaces")["names"] == []


def test_a_table_is_renamed_and_dropped_with_its_files(lake, tmp_path):
    made = lake("create_table", namespace="db", name="t", columns=COLUMNS)
    lake("rename_table", namespace="db", name="t", to="u")
    assert lake("tables", namespace="db")["names"] == ["u"]
    lake("drop_table", namespace="db", name="u")
    assert not Table.exists(made["location"])


def test_of_a_table_that_lies_elsewhere_only_the_name_is_dropped(lake, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "t"
    Table.create(elsewhere, pa.schema([("id", pa.int64())]))
    lake.catalog.register_table("db.t", elsewhere)
    lake("drop_table", namespace="db", name="t")
    assert lake("get_table", namespace="db", name="t") == {"missing": True}
    assert Table.exists(elsewhere)


def test_a_table_is_described_as_it_was_at_a_time(lake):
    lake("create_table", namespace="db", name="t", columns=COLUMNS)
    table = lake.catalog.table("db.t")
    before = table.snapshot.time_ms
    table.add_columns({"n": pa.int32()})
    assert table.snapshot.time_ms >= before
    names = [column[0] for column in lake("get_table", namespace="db", name="t")["columns"]]
    assert names == ["id", "city", "n"]
    if table.snapshot.time_ms > before:
        old = lake("get_table", namespace="db", name="t", timestamp_ms=before)
        assert [column[0] for column in old["columns"]] == ["id", "city"]


def test_all_changes_of_a_statement_are_one_snapshot(lake):
    lake("create_table", namespace="db", name="t", columns=[*COLUMNS, ["n", "INT", ""]])
    changes = [
        {"change": "add", "name": "first", "type": "DOUBLE", "first": True},
        {"change": "add", "name": "second", "type": "STRING", "after": "id", "comment": "new"},
        {"change": "rename", "name": "city", "to": "town"},
        {"change": "type", "name": "n", "type": "BIGINT"},
        {"change": "comment", "name": "n", "comment": "how many"},
        {"change": "move", "name": "n", "after": "first"},
        {"change": "move", "name": "id"},
        {"change": "set", "key": "team.owner", "value": "ann"},
        {"change": "set", "key": "sort_by", "value": "town, id"},
    ]
    altered = lake("alter_table", namespace="db", name="t", changes=changes)
    assert altered["columns"] == [
        ["id", "BIGINT NOT NULL", "the key"],
        ["first", "DOUBLE", ""],
        ["n", "BIGINT", "how many"],
        ["second", "STRING", "new"],
        ["town", "STRING", ""],
    ]
    assert altered["properties"] == {"team.owner": "ann", "sort_by": "town,id"}
    assert altered["snapshot"] == 1
    changes = [
        {"change": "drop", "name": "second"},
        {"change": "reset", "key": "team.owner"},
        {"change": "reset", "key": "sort_by"},
    ]
    altered = lake("alter_table", namespace="db", name="t", changes=changes)
    assert (len(altered["columns"]), altered["properties"]) == (4, {})


def test_a_type_that_shows_as_it_was_is_no_change(lake):
    """A column of uint8 is a SMALLINT for Flink, and stays what it is."""
    lake.catalog.create_table("db.t", pa.schema([("n", pa.uint8())]))
    changes = [{"change": "type", "name": "n", "type": "SMALLINT"}]
    assert lake("alter_table", namespace="db", name="t", changes=changes)["snapshot"] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{"change": "drop", "name": "cty"}], "city"),
        ([{"change": "type", "name": "city", "type": "CHAR(1)"}], "CHAR"),
        ([{"change": "type", "name": "nothing", "type": "INT"}], "nothing"),
        ([{"change": "truncate"}], "Invalid value 'truncate'"),
        ([{"change": "add", "name": "x"}], "missing required field `type`"),
        ([{"change": "set", "key": "merge_engin", "value": "x"}], "did you mean"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(lake, changes, expected):
    lake("create_table", namespace="db", name="t", columns=COLUMNS)
    fine = [{"change": "add", "name": "fine", "type": "INT"}]
    with pytest.raises(Refused, match=expected):
        lake("alter_table", namespace="db", name="t", changes=[*fine, *changes])
    assert lake("get_table", namespace="db", name="t")["columns"] == COLUMNS


def test_moments_are_exact():
    assert moment(1_700_000_000_123) == dt.datetime(
        2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC
    )
