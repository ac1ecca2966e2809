"""Installs a catalog in a session, after a trial query shows that it works with this Spark."""

from __future__ import annotations

import os
import secrets
import tempfile
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from fermion.arguments import mapping
from fermion.errors import InvalidArgumentError
from fermion_table import StorageAccess, Table
from spark_ext.catalog.callbacks import Jvm
from spark_ext.catalog.sessions import catalogs_of, pass_catalogs_on
from spark_ext.catalog.takeover import check_takeover
from spark_ext.catalog.warehouse import Warehouse
from spark_ext.datasource.source import register
from spark_ext.errors import UnsupportedBySpark
from spark_ext.options import absolute, chosen_access
from spark_ext.session import classic
from spark_ext.versions import SERIES, SPARK, series_text

INSTEAD = 'read with spark_ext.read_table or format("fermion") instead'


def install_catalog(
    spark: SparkSession,
    name: str = "fermion",
    warehouse: str | os.PathLike[str] = "warehouse",
    *,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> None:
    """Use a directory of tables as a catalog of Spark SQL: ``SELECT ... FROM name.db.table``.

    Columns, filters, limits and aggregates are pushed down automatically.
    ``VERSION AS OF`` and ``TIMESTAMP AS OF`` read older snapshots. CREATE TABLE (AS SELECT),
    INSERT, INSERT OVERWRITE, UPDATE, DELETE, MERGE and ALTER TABLE change tables. Namespaces are
    directories. Sessions that come from this one, by ``spark.newSession()`` or in ``foreachBatch``,
    have its catalogs.

    Experimental: it plans through interfaces of Spark that are not public for Python. The JVM calls
    this process, on the loopback interface and with a secret that only the two know. A trial query
    runs first, and a trial UPDATE: if that alone fails, UPDATE and MERGE are refused, and DELETE
    with a condition that no filter can express.

    Parameters
    ----------
    spark
        A classic session.
    name
        The catalog's name in SQL; an earlier catalog of this name is replaced.
    warehouse
        The directory.
    storage_options
        For fsspec.
    access
        How the storage of the catalog's tables is used: see `fermion_table.StorageAccess`.

    Raises
    ------
    InvalidArgumentError
        A stopped session, a wrong name or path, or `access` of another type.
    TypeError
        `storage_options` is not a mapping.
    UnsupportedBySpark
        A Spark Connect client, another series of Spark, or the trial query failed.
    """
    classic(spark, "install_catalog")
    if not SPARK.is_known:
        known = ", ".join(map(series_text, SERIES))
        raise UnsupportedBySpark(
            f"install_catalog is made for Spark {known}, this is {SPARK.text}; {INSTEAD}"
        )
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"install_catalog: name: expected text, found {name!r:.80}")
    root = absolute(warehouse, "install_catalog: warehouse")
    mapping(storage_options, "storage_options")
    access = chosen_access(access)
    register(spark)
    jvm = Jvm(spark)
    try:
        listen(spark)
        _try_out(spark, jvm)
    except Exception as error:
        raise UnsupportedBySpark(
            f"install_catalog does not work with this Spark ({SPARK.text}): {error}; {INSTEAD}"
        ) from error
    catalogs_of(spark).put(name, Warehouse(jvm, name, root, storage_options, access))
    pass_catalogs_on()


def listen(spark: SparkSession) -> None:
    """Let only this JVM call this process: Py4J alone would accept every connection.

    The JVM keeps the secret in a field that Spark leaves empty, and that Py4J has no setter for.
    """
    gateway: Any = spark.sparkContext._gateway
    # Without this Spark could not tell a missing table from a failure.
    gateway.python_parameters.propagate_java_exceptions = True
    known = gateway.python_parameters.auth_token
    secret = known or secrets.token_hex(32)
    gateway.python_parameters.auth_token = secret
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    field = client.getClass().getSuperclass().getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, secret)


def _try_out(spark: SparkSession, jvm: Jvm) -> None:
    """Run queries with known results that need all interfaces of planning.

    Raises RuntimeError: A result is wrong.
    """
    name = "fermion_trial"
    with tempfile.TemporaryDirectory() as directory:
        table = Table.create(f"{directory}/t", pa.schema([("a", pa.int64()), ("b", pa.string())]))
        table.append({"a": [1, 2, 3], "b": ["x", "y", "z"]})
        catalogs_of(spark).put(name, Warehouse(jvm, name, directory, None))
        try:
            rows = spark.sql(f"SELECT b FROM {name}.t WHERE a >= 2 ORDER BY a").collect()
            count = spark.sql(f"SELECT count(*) FROM {name}.t").collect()[0][0]
            old = spark.sql(f"SELECT * FROM {name}.t VERSION AS OF 0").collect()
            jvm.row_level_refusal = _row_level_refusal(spark, jvm, name, table)
        finally:
            catalogs_of(spark).remove(name)
    if ([row[0] for row in rows], count, old) != (["y", "z"], 3, []):
        raise RuntimeError(f"the trial query returned {rows}, {count} and {old}")


def _row_level_refusal(spark: SparkSession, jvm: Jvm, name: str, table: Table) -> str | None:
    """Why statements can't change rows with this Spark; None: a trial statement could."""
    try:
        check_takeover(jvm)
        spark.sql(f"UPDATE {name}.t SET b = upper(b) WHERE a % 2 = 0")
    except Exception as error:  # noqa: BLE001 (whatever it is, only these statements are refused)
        java = getattr(error, "java_exception", None)
        return (f"{type(error).__name__}: {error}" if java is None else java.toString()).split(
            "\n"
        )[0]
    table.refresh()
    values = sorted(table.scan().to_arrow()["b"].to_pylist())
    return None if values == ["Y", "x", "z"] else f"a trial statement left {values}"
