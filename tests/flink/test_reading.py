"""SELECT: rows equal those of a scan, and what is pushed down stands in EXPLAIN."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion_table import Catalog
from tests.flink.environment import FlinkError, use_catalog
from tests.kit.arrow_samples import every_type

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def events(warehouse):
    """Ten rows in two files, with a tag on the first, of a table whose column got another name."""
    catalog = Catalog.open(warehouse)
    table = catalog.create_table("db.events", pa.schema({"id": pa.int64(), "city": pa.string()}))
    for start in (0, 5):
        ids = list(range(start, start + 5))
        table.append(pa.table({"id": ids, "city": [f"c{number}" for number in ids]}))
    table.tags.create("half", version=1)
    table.rename_column("city", "town")
    return table


def explained(flink, warehouse: str, query: str) -> str:
    """The optimized plan."""
    [(_, (text,))] = flink.sql(*use_catalog(warehouse), f"EXPLAIN {query}")
    return text.split("== Optimized Execution Plan ==")[1]


def test_a_copy_by_flink_of_every_type_is_equal(flink, warehouse):
    """Read and written: each type of Arrow, in each nesting, with nulls."""
    rows = every_type()
    catalog = Catalog.open(warehouse)
    catalog.create_table("db.given", data=rows)
    catalog.create_table("db.copy", rows.schema)
    flink.sql(*use_catalog(warehouse), "INSERT INTO db.copy SELECT * FROM db.given")
    given, copy = (catalog.table(f"db.{name}").scan().to_arrow() for name in ("given", "copy"))
    assert copy.num_rows == given.num_rows
    for name in given.column_names:
        copied = sorted(map(repr, copy[name].to_pylist()))
        assert copied == sorted(map(repr, given[name].to_pylist())), given.schema.field(name)


def test_maps_are_valid_after_the_first_batches(flink, warehouse):
    """Flink's own writer makes maps invalid that come later, and refuses keys that may be null."""
    rows = 100_000
    maps = [[(f"k{row % 7}", row), ("x", None)][: row % 3] for row in range(rows)]
    given = pa.table({"id": range(rows), "m": pa.array(maps, pa.map_(pa.string(), pa.int64()))})
    catalog = Catalog.open(warehouse)
    catalog.create_table("db.given", data=given)
    flink.sql(
        *use_catalog(warehouse),
        "CREATE TABLE db.copy (id BIGINT, m MAP<STRING, BIGINT>)",
        "INSERT INTO db.copy SELECT * FROM db.given",
    )
    copied = catalog.table("db.copy").scan().to_arrow().sort_by("id")
    assert copied["m"].to_pylist() == given["m"].to_pylist()


def test_times_with_a_zone_are_the_same_instants(flink, warehouse):
    """Whatever the session's zone is."""
    ticks = [0, 1_700_000_000_123_456, -1]
    given = pa.table({"t": pa.array(ticks, pa.timestamp("us", "Europe/Paris"))})
    catalog = Catalog.open(warehouse)
    catalog.create_table("db.given", data=given)
    flink.sql(
        *use_catalog(warehouse),
        "CREATE TABLE db.copy (t TIMESTAMP_LTZ(6))",
        "INSERT INTO db.copy SELECT t FROM db.given",
        settings={"table.local-time-zone": "Asia/Tokyo"},
    )
    copied = catalog.table("db.copy").scan().to_arrow()["t"]
    assert copied.type == pa.timestamp("us", "UTC")
    assert sorted(copied.cast(pa.int64()).to_pylist()) == sorted(ticks)


def test_columns_filters_and_limits_are_pushed_down_and_the_rest_stays_with_flink(
    flink, warehouse, events
):
    plan = explained(flink, warehouse, "SELECT town FROM db.events WHERE id > 6 AND town LIKE '%9'")
    assert "filter=[>(id, 6)]" in plan
    assert "project=[town]" in plan
    assert "where=[LIKE(town, '%9')]" in plan
    assert "limit=[2]" in explained(flink, warehouse, "SELECT id FROM db.events LIMIT 2")
    catalog = use_catalog(warehouse)
    rows = flink.sql(*catalog, "SELECT town FROM db.events WHERE id > 6 AND town LIKE '%9'")
    assert rows == [("+I", ("c9",))]
    assert len(flink.sql(*catalog, "SELECT id FROM db.events LIMIT 2")) == 2


def test_count_minimum_and_maximum_come_from_metadata(flink, warehouse, events):
    """EXPLAIN says so."""
    query = "SELECT count(*), min(id), max(id) FROM db.events"
    assert "LongMaxAggFunction(id)" in explained(flink, warehouse, query)
    assert flink.sql(*use_catalog(warehouse), query) == [("+I", (10, 0, 9))]
    counted = explained(flink, warehouse, "SELECT count(*) FROM db.events WHERE id > 3")
    assert "aggFunctions" not in counted


def test_versions_are_read_by_hints_and_by_system_time(flink, warehouse, events):
    catalog = use_catalog(warehouse)
    for hint in ("'scan.snapshot-id' = '1'", "'scan.tag' = 'half'"):
        query = f"SELECT town FROM db.events /*+ OPTIONS({hint}) */"
        assert sorted(row for _, row in flink.sql(*catalog, query)) == [
            (f"c{number}",) for number in range(5)
        ]
    now = "SELECT count(town) FROM db.events /*+ OPTIONS('scan.timestamp' = '2999-01-01') */"
    assert flink.sql(*catalog, now) == [("+I", (10,))]
    query = "SELECT count(*) FROM db.events FOR SYSTEM_TIME AS OF TIMESTAMP '2999-01-01 00:00:00'"
    assert flink.sql(*catalog, query) == [("+I", (10,))]
    early = query.replace("2999", "1999")
    with pytest.raises(FlinkError, match="earliest"):
        flink.sql(*catalog, early)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("'scan.snapshotid' = '1'", r"unknown options \[scan.snapshotid\].*scan.snapshot-id"),
        ("'scan.snapshot-id' = 'x'", "expected the id of a snapshot"),
        ("'scan.snapshot-id' = '1', 'scan.tag' = 'half'", "expected one of"),
        ("'storage-options' = 'x'", "expected a JSON object"),
    ],
)
def test_a_wrong_hint_is_refused(flink, warehouse, events, hint, expected):
    with pytest.raises(FlinkError, match=expected):
        flink.sql(*use_catalog(warehouse), f"SELECT * FROM db.events /*+ OPTIONS({hint}) */")


def test_a_table_without_a_catalog_is_read_and_written_by_its_path(flink, warehouse, events):
    """Also by a temporary table that is LIKE one of a catalog, with a computed column."""
    catalog = use_catalog(warehouse)
    rows = flink.sql(
        *catalog,
        "CREATE TEMPORARY TABLE near (twice AS id * 2) LIKE db.events",
        "INSERT INTO near VALUES (10, 'c10')",
        "SELECT twice, town FROM near WHERE id >= 9",
    )
    assert sorted(row for _, row in rows) == [(18, "c9"), (20, "c10")]
