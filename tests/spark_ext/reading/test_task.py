"""Of very many files tasks make the splits, and the driver nothing for each file."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import spark_ext
from fermion_table import Table
from fermion_table.planning import plan
from spark_ext.datasource.batch import FermionReader
from spark_ext.options import SourceOptions
from spark_ext.reading import task
from spark_ext.reading.table import frame_of, schema_of

pytestmark = pytest.mark.spark
FILES, ROWS = 24, 10


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    spark_ext.install_catalog(spark, "files", path)
    schema = pa.schema({"part": pa.int64(), "id": pa.int64(), "text": pa.string()})
    table = Table.create(path / "many", schema, partition_by="part", durability="fast")
    for start in range(0, FILES * ROWS, ROWS * 3):
        ids = range(start, start + ROWS * 3)
        columns = {"part": [each // ROWS for each in ids], "id": ids, "text": list(map(str, ids))}
        table.append(columns)
    table.delete("id % 17 = 3 OR part = 5")
    return path


@pytest.fixture
def few(monkeypatch):
    """A driver that makes no splits where there are more than a few files."""
    monkeypatch.setattr(task, "FILES_PLANNED_MAX", 4)
    made = plan.splits_of

    def splits_of(entries, store):
        assert len(entries) <= FILES // 2 + 1, "the driver makes splits of all files"
        return made(entries, store)

    monkeypatch.setattr(plan, "splits_of", splits_of)


QUERIES = (
    "SELECT * FROM {} WHERE id > 20 AND text LIKE '1%'",
    "SELECT * FROM {} WHERE part IN (1, 2)",
    "SELECT part, count(*), sum(id), max(text) FROM {} GROUP BY part",
    "SELECT sum(id), count(DISTINCT part), avg(id) FROM {} WHERE id % 3 = 0",
    "SELECT id, text FROM {} ORDER BY text DESC LIMIT 7",
    "SELECT count(*) FROM {}",
    "SELECT id % 5 AS five, count(*) FROM {} WHERE part <> 3 GROUP BY 1 ORDER BY 1 LIMIT 3",
    "SELECT l.id, r.text FROM {0} l JOIN {0} r ON l.id = r.part",
)


def test_results_are_those_of_splits_that_the_driver_makes(spark, lake, request):
    """Filters, aggregates, first rows, joins, places of rows and limits, in each way to read."""
    location, queries = (
        str(lake / "many"),
        [*QUERIES, "SELECT _file, _pos, id FROM {} WHERE id > 99"],
    )
    expected = [sorted(spark.sql(query.format("files.many")).collect()) for query in queries]
    request.getfixturevalue("few")
    for query, rows in zip(queries, expected, strict=True):
        assert sorted(spark.sql(query.format("files.many")).collect()) == rows, query
    spark_ext.read_table(spark, location).createOrReplaceTempView("view_of_many")
    for query, rows in zip(QUERIES[:5], expected, strict=False):
        assert sorted(spark.sql(query.format("view_of_many")).collect()) == rows, query
    some = spark.sql("SELECT id FROM files.many LIMIT 12").collect()
    assert len({row.id for row in some if row.id % 17 != 3}) == 12


def test_the_format_and_frames_without_planning_send_parts_to_tasks(spark, lake, few):
    options = SourceOptions(path=str(lake / "many"), filter="id > 100")
    scan = Table.open(options.path).scan(filter="id > 100")
    reader = FermionReader(options, None, schema_of(spark, scan))
    partitions = pickle.loads(pickle.dumps(list(reader.partitions())))
    sent = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in partitions for batch in sent.read(each)]
    found = sorted(number for batch in batches for number in batch.column("id").to_pylist())
    assert len(partitions) > 1
    expected = sorted(row.id for row in frame_of(spark, scan).collect())
    assert found == expected == [each for each in range(101, 240) if each % 17 != 3]
