"""Workers of Spark do not look at their modules whenever they collect garbage."""

from __future__ import annotations

import gc
import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

from fermion_table import Table
from spark_ext import workers
from spark_ext.aggregation.expression import COLUMN, Expression
from spark_ext.aggregation.groups import MAX, Aggregate, Grouping
from spark_ext.aggregation.task import AggregateTask
from spark_ext.datasource.source import FermionDataSource
from spark_ext.reading.row_places import PlacedReadTask
from spark_ext.reading.table import splits_frame
from spark_ext.reading.task import ReadTask
from spark_ext.types import exchange_schema, spark_schema

SCHEMA = pa.schema([("kept", pa.int64())])
MODULE_OBJECTS = 20_000
"""The objects of our modules and Spark's are more."""


@dataclass(frozen=True)
class KeptReader:
    """Says how many objects the garbage collector of its process skips."""

    def read(self, split, *, threads=None):
        yield pa.record_batch([[gc.get_freeze_count()]], SCHEMA)


def tasks_and_sources(table):
    """Everything that workers begin with, as a call each."""
    batch = pa.record_batch([[pickle.dumps([None])]], ["splits"])
    column = Expression(
        COLUMN, spark_schema(SCHEMA, where="t")[0].dataType, value=("kept",), bounds=(0, 9)
    )
    grouping = Grouping((), (Aggregate(MAX, column),))
    results = exchange_schema(grouping.schema())
    source = FermionDataSource({"path": table.location})
    return [
        lambda: list(ReadTask(KeptReader(), SCHEMA)([batch])),
        lambda: list(PlacedReadTask(KeptReader(), SCHEMA, {})([batch])),
        lambda: list(AggregateTask(KeptReader(), SCHEMA, grouping, results)([batch])),
        lambda: FermionDataSource({"path": table.location}),
        lambda: source.reader(source.schema()),
    ]


def test_modules_are_kept_once_and_only_in_workers(tmp_path, monkeypatch):
    """Of each task and plan; again when more modules were imported."""
    calls = tasks_and_sources(Table.create(tmp_path / "t", SCHEMA))
    frozen = []
    monkeypatch.setattr(workers.gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(workers, "_kept", 0)
    for call in calls:
        call()
    assert not frozen
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    for count, call in enumerate(calls, 1):
        monkeypatch.setattr(workers, "_kept", 0)
        call()
        call()
        assert len(frozen) == count


@pytest.mark.spark
def test_a_task_of_spark_keeps_its_modules(spark):
    """The driver, which is the user's process, does not."""
    before = gc.get_freeze_count()
    task = ReadTask(KeptReader(), SCHEMA)
    frame = splits_frame(spark, [[None]]).mapInArrow(task, spark_schema(SCHEMA, where="t"))
    assert frame.collect()[0]["kept"] > MODULE_OBJECTS
    assert gc.get_freeze_count() <= before
