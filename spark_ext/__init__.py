"""Fermion tables in PySpark: reading, appending, compacting, and the format for Spark SQL."""

from spark_ext.catalog import install_catalog
from spark_ext.datasource.datasource import register
from spark_ext.maintenance.compaction import compact
from spark_ext.maintenance.conversion import from_parquet, to_parquet
from spark_ext.maintenance.expiry import expire, remove_orphans
from spark_ext.reading import read_table
from spark_ext.session import configure
from spark_ext.writing.saving import write
from spark_ext.writing.writer import append, overwrite

__all__ = [
    "append",
    "compact",
    "configure",
    "expire",
    "from_parquet",
    "install_catalog",
    "overwrite",
    "read_table",
    "register",
    "remove_orphans",
    "to_parquet",
    "write",
]
