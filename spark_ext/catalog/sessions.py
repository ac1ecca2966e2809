"""The catalogs that a session has, and how sessions that come from it get them.

A setting of Spark can only name a catalog that is a class of the JVM. One that is written in Python
lies in a map of the session, which Spark does not copy. So the methods of PySpark by which a
program gets another session copy it: `SparkSession.newSession`, and `foreachBatch`, where the frame
of each micro-batch belongs to a session that Spark has cloned when the stream began.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.udf import _wrap_function

from spark_ext.datasource.source import FORMAT, FermionDataSource, add_format
from spark_ext.versions import REPLACES_FORMATS

_CONVERTERS = "scala.jdk.javaapi.CollectionConverters"
_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"


def catalogs_of(spark: SparkSession) -> Any:
    """The map from names to catalogs that a session keeps: the JVM's."""
    manager = spark._jsparkSession.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return field.get(manager)


def add_format_alone(spark: SparkSession) -> None:
    """Add the format to a session, if it has none of this name.

    To register it, or not to, lets Spark start a process of Python that looks for all formats.
    """
    if not REPLACES_FORMATS:
        return
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    with contextlib.suppress(Py4JError):  # then Spark looks for it
        field = manager.getClass().getDeclaredField("runtimeDataSourceBuilders")
        field.setAccessible(True)
        jvm: Any = spark.sparkContext._jvm
        source = getattr(jvm, _SOURCE)(_wrap_function(spark.sparkContext, FermionDataSource))
        field.get(manager).putIfAbsent(FORMAT, source)


@functools.cache
def pass_catalogs_on() -> None:
    """Let sessions that come from another one have its catalogs, from now on in this process."""
    new_session, for_each_batch = SparkSession.newSession, DataStreamWriter.foreachBatch

    @functools.wraps(new_session)
    def with_catalogs(self: SparkSession) -> SparkSession:
        made = new_session(self)
        if _copy(self, made):
            add_format(made)
        return made

    @functools.wraps(for_each_batch)
    def with_catalogs_of_the_stream(
        self: DataStreamWriter, func: Callable[[DataFrame, int], None]
    ) -> DataStreamWriter:
        def batch_function(df: DataFrame, batch_id: int) -> None:
            _copy(self._spark, df.sparkSession)
            func(df, batch_id)

        return for_each_batch(self, batch_function)

    SparkSession.newSession = with_catalogs  # type: ignore[method-assign]
    DataStreamWriter.foreachBatch = with_catalogs_of_the_stream  # type: ignore[method-assign]


def _copy(origin: SparkSession, spark: SparkSession) -> bool:
    """Give a session the catalogs of another one that it has no catalogs of the names of.

    Only those that are Python objects: Spark itself loads the others, by their settings. Returns
    whether there are such catalogs.
    """
    jvm: Any = spark.sparkContext._jvm
    theirs, own = catalogs_of(origin), catalogs_of(spark)
    is_proxy = jvm.java.lang.reflect.Proxy.isProxyClass
    as_java = getattr(jvm, _CONVERTERS).asJava
    copied = False
    for name in as_java(theirs).keySet().toArray():
        catalog = theirs.apply(name)
        if is_proxy(catalog.getClass()):
            copied = True
            if not own.contains(name):
                own.put(name, catalog)
    return copied
