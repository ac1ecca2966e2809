"""No way of writing loses rows silently if Spark gives them to a writer one after the other.

Spark's writer for Python sources passes over such rows without an error (so in Spark 4.3). Then the
driver gets no message of the task, and must not commit. Statements that change rows are tried in
`catalog/test_row_level.py`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from fermion_table import Table
from spark_ext.catalog import writes
from spark_ext.catalog.callbacks import Jvm
from spark_ext.datasource.source import FermionDataSource
from spark_ext.errors import UnsupportedBySpark
from spark_ext.types import spark_schema
from spark_ext.writing.staged import STAGED_OPTION, StagedDefinition

SCHEMA = pa.schema([("id", pa.int64())])
FRAME = spark_schema(SCHEMA, where="test")
ROWS = pa.record_batch({"id": [1, 2]})


def files(path: Any) -> int:
    return len(list(path.rglob("*.fermion")))


@pytest.mark.parametrize("way", ["append", "overwrite", "create", "replace", "stream"])
def test_a_task_without_a_message_is_an_error_of_the_commit(tmp_path, way):
    """One of two tasks got its rows: nothing is visible, and no file is left."""
    path = tmp_path / "t"
    options = {"path": str(path)}
    if way in ("create", "replace"):
        options[STAGED_OPTION] = StagedDefinition(mode=way, schema=SCHEMA).to_text()
    if way != "create":
        Table.create(path, SCHEMA).append({"id": [7]})
    source = FermionDataSource(options)
    number: tuple[int, ...] = ()
    writer: Any
    if way == "stream":
        writer, number = source.streamWriter(FRAME, overwrite=False), (0,)
        message: Any = writer.write(iter([ROWS]))
    else:
        writer = source.writer(FRAME, overwrite=way == "overwrite")
        message = writer.write(iter([ROWS]))
    with pytest.raises(UnsupportedBySpark, match="1 of 2 tasks did not get their rows"):
        writer.commit([message, None], *number)
    writer.abort([message, None], *number)
    assert files(path) == (way != "create")
    if way != "create":
        assert Table.open(path).scan().to_arrow().to_pydict() == {"id": [7]}


@pytest.mark.spark
def test_spark_passes_over_single_rows_in_silence(spark, tmp_path):
    """Why this is needed; a release of Spark that mends it makes this test fail."""
    table = Table.create(tmp_path / "t", SCHEMA)
    jvm = Jvm(spark)
    nothing = jvm.type("java.util.Optional").empty()
    options = {"path": table.location}
    info = jvm.type("connector.write.LogicalWriteInfoImpl")(
        "query", spark.range(1)._jdf.schema(), jvm.text_map(options), nothing, nothing
    )
    row = spark.range(1)._jdf.queryExecution().executedPlan().executeCollect()[0]
    tasks = jvm.type("connector.write.PhysicalWriteInfoImpl")(1)
    batch = writes.python_write(jvm, info, options, overwrites=False).toBatch()
    writer = batch.createBatchWriterFactory(tasks).createWriter(0, 0)
    writer.write(row)
    messages = jvm.array("connector.write.WriterCommitMessage", [writer.commit()])
    with pytest.raises(PySparkException, match="1 of 1 tasks did not get their rows"):
        batch.commit(messages)
    assert table.refresh().id == 0
