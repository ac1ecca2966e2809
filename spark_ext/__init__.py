"""Fermion tables in PySpark: reading, appending, compacting, and the format for Spark SQL."""

from spark_ext.compaction import compact
from spark_ext.conversion import from_parquet, to_parquet
from spark_ext.datasource import register
from spark_ext.reading import read_table
from spark_ext.session import configure
from spark_ext.writing import append, overwrite, write

__all__ = [
    "append",
    "compact",
    "configure",
    "from_parquet",
    "overwrite",
    "read_table",
    "register",
    "to_parquet",
    "write",
]
