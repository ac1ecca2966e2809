"""The settings of a session that is to be started, with the catalogs that it has from then on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from fermion.arguments import mapping
from fermion.errors import InvalidArgumentError
from spark_ext import session
from spark_ext.catalog.install import install_catalog
from spark_ext.options import absolute, chosen_access

Catalogs = Mapping[str, "str | os.PathLike[str] | Mapping[str, Any]"]
_ARGUMENTS = ("warehouse", "storage_options", "access")


def configure(
    builder: SparkSession.Builder, *, catalogs: Catalogs | None = None
) -> SparkSession.Builder:
    """Set the options that the exchange of Arrow data needs, and the catalogs of the session.

    - Batches between Spark and Python have 16,384 rows and no limit in bytes: with Spark's limit in
      bytes it measures every column after every row, which doubles the cost of passing rows. Set
      `spark.sql.execution.arrow.maxRecordsPerBatch` lower for rows of 100 KB and more.
    - The JVM's Arrow does not check every access to a vector: this saves a fifth of the cost of
      receiving rows. It adds to the options `spark.driver.defaultJavaOptions` and
      `spark.executor.defaultJavaOptions`, which do not change a JVM that runs already.
    - On one machine, workers run the interpreter of the driver (`PYSPARK_PYTHON`), unless the
      environment names another.

    Settings made after this call override these.

    Parameters
    ----------
    builder
        ``SparkSession.builder``, with or without settings.
    catalogs
        Warehouses by the catalog's name: paths, or mappings with the arguments ``warehouse``,
        ``storage_options`` and ``access`` of `install_catalog`. No setting of Spark can name a
        catalog written in Python, so ``getOrCreate()`` of this builder installs them in the session
        that it returns, once.

    Returns
    -------
    pyspark.sql.SparkSession.Builder
        The same builder.

    Raises
    ------
    JavaNotFound
        A session cannot start on this machine.
    TypeError, InvalidArgumentError
        Not a builder, or wrong catalogs. ``getOrCreate()`` raises `UnsupportedBySpark` where
        `install_catalog` does; the session runs then.
    """
    chosen = _chosen(catalogs)
    session.configure(builder)
    if chosen:
        builder.getOrCreate = _Installing(builder.getOrCreate, chosen)  # type: ignore[method-assign]
    return builder


class _Installing:
    """``getOrCreate`` of a builder, which installs catalogs too."""

    def __init__(
        self, create: Callable[[], SparkSession], catalogs: dict[str, dict[str, Any]]
    ) -> None:
        self._create = create
        self._catalogs = catalogs
        self._installed_in: SparkSession | None = None

    def __call__(self) -> SparkSession:
        spark = self._create()
        if spark is not self._installed_in:
            for name, arguments in self._catalogs.items():
                install_catalog(spark, name, **arguments)
            self._installed_in = spark
        return spark


def _chosen(catalogs: Catalogs | None) -> dict[str, dict[str, Any]]:
    """The arguments of `install_catalog` by name, checked."""
    mapping(catalogs, "catalogs")
    chosen = {}
    for name, given in (catalogs or {}).items():
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"catalogs: expected names as keys, found {name!r:.80}")
        arguments: dict[str, Any] = {"warehouse": given}
        if isinstance(given, Mapping):
            arguments = dict(given)
        unknown = sorted(map(str, set(arguments) - set(_ARGUMENTS)))
        if unknown or "warehouse" not in arguments:
            raise InvalidArgumentError(
                f"catalogs[{name!r}]: expected a path, or a mapping with warehouse and perhaps "
                f"storage_options and access; found {unknown or 'no warehouse'}"
            )
        absolute(arguments["warehouse"], f"catalogs[{name!r}]: warehouse")
        mapping(arguments.get("storage_options"), f"catalogs[{name!r}]: storage_options")
        chosen_access(arguments.get("access"))
        chosen[name] = arguments
    return chosen
