"""Fermion tables in PySpark: functions to read, write and maintain them, a format, a catalog.

- Set a session up: `configure`, `register`, `install_catalog`.
- Read: `read_table`, `read_changes`, `training_frame`. Write: `append`, `overwrite`, `upsert`,
  `merge`, `write`.
- Maintain: `compact`, `expire`, `remove_orphans`, `add_columns_with`, `mirror`. Convert:
  `from_parquet`, `to_parquet`.
"""

from spark_ext.catalog import configure, install_catalog, read_table
from spark_ext.conversion.from_parquet import from_parquet
from spark_ext.conversion.to_parquet import to_parquet
from spark_ext.datasource.source import register
from spark_ext.maintenance.columns import add_columns_with
from spark_ext.maintenance.compaction import compact
from spark_ext.maintenance.expiry import expire, remove_orphans
from spark_ext.maintenance.mirroring import mirror
from spark_ext.merging.builder import merge
from spark_ext.reading.changes import read_changes
from spark_ext.reading.training import training_frame
from spark_ext.writing.append import append, overwrite, upsert
from spark_ext.writing.save import write

__all__ = [
    "add_columns_with",
    "append",
    "compact",
    "configure",
    "expire",
    "from_parquet",
    "install_catalog",
    "merge",
    "mirror",
    "overwrite",
    "read_changes",
    "read_table",
    "register",
    "remove_orphans",
    "to_parquet",
    "training_frame",
    "upsert",
    "write",
]

__dir__ = __all__.copy
