"""ORDER BY ... LIMIT and LIMIT: each task returns its first rows, and reads little else."""

from __future__ import annotations

import math
import pickle
import random
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import spark_ext
from fermion_table import Table
from spark_ext.catalog.scans import TableScanBuilder
from spark_ext.reading.first_rows import SORTED_ROWS_MAX, FirstRowsTask, SortKey
from spark_ext.reading.task import ReadTask
from spark_ext.types import exchange_schema, spark_schema

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("whole", pa.int32()),
        ("real", pa.float64()),
        ("half", pa.float32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(30, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("place", pa.struct({"zip": pa.uint32(), "city": pa.string()})),
    ]
)
NAN = math.nan
VALUES = {
    "whole": [None, -5, 0, 3, 2**31 - 1],
    "real": [None, NAN, -math.inf, -0.0, 0.0, 1.5, math.inf],
    "half": [None, NAN, -0.0, 0.0, 1.5],
    "text": [None, "", "a", "ä", "z", "\U0001f600"],
    "raw": [None, b"", b"\x00", b"\x7f", b"\xff"],
    "flag": [None, False, True],
    "price": [None, Decimal("-1.50"), Decimal("0.00"), Decimal(10) ** 27],
    "day": [None, date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29)],
    "at": [None, datetime(1969, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)],
    "place": [None, {"zip": None, "city": "b"}, {"zip": 2**32 - 1, "city": None}],
}
ORDERS = [
    "whole",
    "real DESC, flag",
    "half NULLS LAST, text",
    "text DESC",
    "raw NULLS LAST, whole DESC",
    "price DESC NULLS FIRST",
    "day NULLS LAST, real",
    "at DESC",
    "place.zip NULLS LAST, place.city DESC",
]


def some_rows(chance: random.Random, ids: range) -> pa.Table:
    made = [{name: chance.choice(of) for name, of in VALUES.items()} | {"id": i} for i in ids]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def plan(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def is_pushed(frame) -> bool:
    return re.search(r"limit \d+ by ", plan(frame)) is not None


@pytest.fixture(scope="module", params=["deleted", "keyed"])
def path(request, tmp_path_factory):
    """Three files with deletion vectors; or unmerged runs, some of whose rows hide others."""
    made = tmp_path_factory.mktemp("first") / "table"
    keyed = {"primary_key": ["id"], "properties": {"bucket": "2"}}
    table = Table.create(made, SCHEMA, **(keyed if request.param == "keyed" else {}))
    chance = random.Random(request.param)
    overlap = 20 if request.param == "keyed" else 0
    for start in (0, 60, 120):
        table.append(some_rows(chance, range(max(0, start - overlap), start + 60)))
    table.delete("id % 7 = 3")
    return made


@pytest.mark.spark
@pytest.mark.parametrize("order", ORDERS)
def test_the_first_rows_are_those_of_spark_without_the_push(spark, path, order, monkeypatch):
    """With the id at last no rows are equal; without it only the columns of the order are told."""
    frame = spark_ext.read_table(spark, path)
    frame.createOrReplaceTempView("first_rows")
    by = ", ".join(part.split()[0] for part in order.split(", "))
    queries = [
        f"SELECT * FROM first_rows WHERE whole > -5 AND id > 9 ORDER BY {order}, id LIMIT 5",
        f"SELECT {by} FROM first_rows ORDER BY {order} LIMIT 40",
    ]
    pushed = [spark.sql(query) for query in queries]
    assert all(map(is_pushed, pushed))
    found = [repr(each.collect()) for each in pushed]
    monkeypatch.setattr(TableScanBuilder, "pushTopN", lambda *_: False)
    alone = [spark.sql(query) for query in queries]
    assert not any(map(is_pushed, alone))
    assert [text.replace("-0.0", "0.0") for text in found] == [
        repr(each.collect()).replace("-0.0", "0.0") for each in alone
    ]


@pytest.mark.spark
def test_what_has_no_counterpart_is_sorted_by_spark_alone(spark, path):
    """Expressions, conditions that stay with Spark, aggregates, too many rows."""
    spark_ext.read_table(spark, path).createOrReplaceTempView("first_rows")
    for query in (
        "SELECT id FROM first_rows ORDER BY whole % 3, id LIMIT 5",
        "SELECT id FROM first_rows WHERE upper(text) = 'A' ORDER BY id LIMIT 5",
        "SELECT max(id) m FROM first_rows ORDER BY m LIMIT 5",
        "SELECT whole, max(id) m FROM first_rows GROUP BY whole ORDER BY m LIMIT 5",
        "SELECT id FROM first_rows ORDER BY place LIMIT 5",
        f"SELECT id FROM first_rows ORDER BY id LIMIT {SORTED_ROWS_MAX + 1}",
    ):
        assert not is_pushed(spark.sql(query))


@pytest.mark.spark
def test_a_table_of_the_catalog_gives_first_rows_too(spark, tmp_path):
    Table.create(tmp_path / "t", SCHEMA).append(some_rows(random.Random(4), range(50)))
    spark_ext.install_catalog(spark, "firsts", tmp_path)
    found = spark.sql("SELECT id FROM firsts.t ORDER BY id DESC LIMIT 3")
    assert "limit 3 by id DESC NULLS LAST" in plan(found)
    assert [row.id for row in found.collect()] == [49, 48, 47]


class CountedTask(ReadTask):
    """Counts the rows that it gives, in this process."""

    __slots__ = ()
    rows: list[int] = []  # noqa: RUF012 - all tasks of a test count together

    def read(self, splits):
        for batch in super().read(splits):
            self.rows.append(batch.num_rows)
            yield batch


def task_of(table: Table, order: tuple[SortKey, ...], limit: int, **wanted):
    """The task and its splits, pickled, of a scan; what is asked of files counts in the scan."""
    scan = table.scan(**wanted)

    def read(part):
        return CountedTask(part.reader, exchange_schema(spark_schema(part.schema, where="t")))

    keys = read(scan.select([key.path for key in order])) if order else None
    given = pa.record_batch({"splits": [pickle.dumps(list(scan.plan().splits))]})
    CountedTask.rows.clear()
    return scan, FirstRowsTask(read(scan), keys, order, limit), given


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Table:
    """Two files of 100,000 rows by time, with a column of random bytes."""
    made = tmp_path_factory.mktemp("wide") / "t"
    chance = np.random.default_rng(7)
    schema = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("bytes", pa.binary(32))])
    table = Table.create(made, schema)
    for start in (0, 100_000):
        ids = np.arange(start, start + 100_000)
        raw = pa.Array.from_buffers(
            pa.binary(32), len(ids), [None, pa.py_buffer(chance.bytes(32 * len(ids)))]
        )
        table.append({"at": ids, "k": ids % 1_000, "bytes": raw})
    return table


@pytest.mark.parametrize("descending", [False, True])
def test_pages_that_cannot_hold_first_rows_are_not_read(wide, descending):
    """All pages of the other columns but those of the first rows: less than a fifth is read."""
    order = (SortKey(("at",), descending, False),)
    scan, task, given = task_of(wide, order, 10)
    assert scan.to_arrow().num_rows == 200_000
    everything = scan.io_stats["bytes_requested"]
    scan, task, given = task_of(wide, order, 10)
    (found,) = task([given])
    assert found["at"].to_pylist() == (
        list(range(199_999, 199_989, -1)) if descending else list(range(10))
    )
    assert scan.io_stats["bytes_requested"] < everything / 5
    assert sum(CountedTask.rows) <= 200_000 + 2 * 10  # the keys, once, and then the rows


def test_later_files_are_asked_only_for_what_may_still_be_first(wide):
    """Of the second file no key comes before the tenth of the first one."""
    _, task, given = task_of(wide, (SortKey(("at",), False, False),), 10)
    assert sum(batch.num_rows for batch in task([given])) == 10
    assert sum(CountedTask.rows) == 100_000 + 10


def test_rows_without_an_order_are_read_until_there_are_enough(wide):
    """Also behind a filter, which tells no number of rows: one batch is read."""
    scan, task, given = task_of(wide, (), 7, filter="k >= 0")
    scan = replace(scan, batch_rows=1_000)
    task = replace(task, task=CountedTask(scan.reader, task.task.schema))
    assert sum(batch.num_rows for batch in task([given])) == 7
    assert sum(CountedTask.rows) == 1_000


def test_a_task_without_rows_gives_none(wide):
    _, task, given = task_of(wide, (SortKey(("at",), True, True),), 10, filter="at < 0")
    assert [batch.num_rows for batch in task([given])] == [0]


@pytest.mark.spark
def test_a_limit_reads_the_first_rows_of_a_file_alone(spark, wide):
    """One split of as many rows, of a file of many more."""
    frame = spark_ext.read_table(spark, wide.location).limit(5)
    assert frame.count() == 5
    assert "1 of 2 files, limit 5" in plan(frame)
    assert frame.rdd.getNumPartitions() == 1
