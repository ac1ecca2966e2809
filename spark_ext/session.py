"""Spark sessions: settings for the exchange of Arrow data, Java, and the workers' interpreter."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import DataFrame, SparkSession

from fermion.errors import InvalidArgumentError
from spark_ext.errors import JavaNotFound, UnsupportedBySpark

BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_BYTES_DEFAULT = 64 * 1024 * 1024
BATCH_BYTES_UNLIMITED = 2**31 - 1

BATCH_ROWS = 16_384
"""Rows of a batch that Spark passes to Python, unless columns are many or all of fixed width."""
BATCH_ROWS_FIXED_WIDTH = 65_536
BATCH_ROWS_MIN = 64
VARIABLE_WIDTH_GUESS = 64
"""Assumed bytes of a string or list, to choose the number of rows of a batch."""

JAVA_OPTIONS_SETTINGS = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")
UNCHECKED_VECTORS = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)

WORKER_INTERPRETER = "PYSPARK_PYTHON"
_DEFAULT_INTERPRETER = "python3"

# How many `settings` blocks have changed a setting of a session, and its value before the first.
_HELD: dict[tuple[SparkSession, str], tuple[int, str | None]] = {}
_HOLDING = threading.Lock()


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set the options of a session that is to be started: see `spark_ext.configure`.

    Raises JavaNotFound: A session cannot start on this machine.
    Raises InvalidArgumentError: Not a builder.
    """
    if not hasattr(builder, "config"):
        raise InvalidArgumentError(
            f"configure: builder: expected SparkSession.builder, found {builder!r:.80}"
        )
    check_java()
    if WORKER_INTERPRETER not in os.environ and not is_submitted():
        os.environ[WORKER_INTERPRETER] = sys.executable
    builder.config(BATCH_ROWS_SETTING, BATCH_ROWS)
    builder.config(BATCH_BYTES_SETTING, BATCH_BYTES_UNLIMITED)
    for name in JAVA_OPTIONS_SETTINGS:
        given = getattr(builder, "_options", {}).get(name, "")
        if UNCHECKED_VECTORS not in given:
            builder.config(name, f"{given} {UNCHECKED_VECTORS}".strip())
    return builder


def check_java() -> None:
    """Check that there is a Java runtime to start Spark with.

    Nothing is checked under ``spark-submit`` or for a remote session, where Spark runs already.

    Raises JavaNotFound: Neither ``JAVA_HOME`` nor the path has a Java runtime.
    """
    if is_submitted() or "SPARK_REMOTE" in os.environ:
        return
    home = os.environ.get("JAVA_HOME")
    if home:
        if shutil.which("java", path=str(Path(home) / "bin")):
            return
        raise JavaNotFound(f"JAVA_HOME is {home}, but there is no bin/java in it; Spark needs Java")
    if not shutil.which("java"):
        raise JavaNotFound(
            "Spark needs a Java runtime (17 or later), and there is no java on the path; "
            "install one or set JAVA_HOME"
        )


def classic(spark: SparkSession, what: str) -> SparkSession:
    """Check that a session has its driver in this process, and prepare it for tasks in Python.

    If nothing chooses an interpreter for the workers of this machine, they get the driver's.

    Raises InvalidArgumentError: Not a session, or a stopped one.
    Raises UnsupportedBySpark: The session is a Spark Connect client.
    """
    if not hasattr(spark, "sparkContext") and not is_connect(spark):
        raise InvalidArgumentError(f"{what}: spark: expected a SparkSession, found {spark!r:.80}")
    if is_connect(spark):
        raise UnsupportedBySpark(
            f"{what} needs a classic Spark session, this one is a Spark Connect client; "
            'read and write with format("fermion") there'
        )
    context = spark.sparkContext
    if context._jsc is None:  # type: ignore[attr-defined]
        raise InvalidArgumentError(f"{what}: spark: the session was stopped; start another")
    unset = WORKER_INTERPRETER not in os.environ and context.pythonExec == _DEFAULT_INTERPRETER
    if unset and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
    return spark


def classic_frame(df: DataFrame, what: str) -> SparkSession:
    """The session of a data frame, checked and prepared as `classic` does.

    Raises InvalidArgumentError, UnsupportedBySpark.
    """
    if not isinstance(df, DataFrame):
        raise InvalidArgumentError(
            f"{what}: df: expected a Spark DataFrame, found {type(df).__module__}."
            f"{type(df).__qualname__}; spark.createDataFrame makes one"
        )
    return classic(df.sparkSession, what)


def is_connect(spark: object) -> bool:
    """Whether a session is a Spark Connect client."""
    return "connect" in type(spark).__module__.split(".")


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, Any]) -> Iterator[None]:
    """Set some of a session's settings for the jobs of a block.

    Blocks of several threads may overlap: the last one to end restores the old values.
    """
    for name, value in values.items():
        with _HOLDING:
            count, before = _HELD.get((spark, name), (0, spark.conf.get(name, None)))
            _HELD[spark, name] = (count + 1, before)
            spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            with _HOLDING:
                count, before = _HELD.pop((spark, name))
                if count > 1:
                    _HELD[spark, name] = (count - 1, before)
                elif before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, before)


def batch_settings(spark: SparkSession, schema: pa.Schema) -> dict[str, Any]:
    """The settings with which Spark passes rows of a schema to Python.

    A lower number of rows that the session has is kept, and so is a limit in bytes that is not
    Spark's default.
    """
    rows = min(batch_rows(schema), int(spark.conf.get(BATCH_ROWS_SETTING) or BATCH_ROWS))
    chosen: dict[str, Any] = {BATCH_ROWS_SETTING: rows}
    if (spark.conf.get(BATCH_BYTES_SETTING) or "").rstrip("b") == str(BATCH_BYTES_DEFAULT):
        chosen[BATCH_BYTES_SETTING] = BATCH_BYTES_UNLIMITED
    return chosen


def batch_rows(schema: pa.Schema) -> int:
    """The number of rows of a schema in a batch of at most about 64 MiB."""
    width = sum(_width(field.type) for field in schema)
    fixed = all(_is_fixed_width(field.type) for field in schema)
    rows_max = BATCH_ROWS_FIXED_WIDTH if fixed else BATCH_ROWS
    return max(BATCH_ROWS_MIN, min(rows_max, BATCH_BYTES_DEFAULT // max(width, 1)))


def _is_fixed_width(dtype: pa.DataType) -> bool:
    return pat.is_primitive(dtype) or pat.is_decimal(dtype)


def _width(dtype: pa.DataType) -> int:
    if _is_fixed_width(dtype):
        return max(1, dtype.bit_width // 8)
    if pat.is_struct(dtype):
        return sum(_width(child.type) for child in dtype)
    return VARIABLE_WIDTH_GUESS


def is_submitted() -> bool:
    """Whether ``spark-submit`` runs this program: Spark runs then, with its settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
