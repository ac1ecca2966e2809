"""Tables of a warehouse as a catalog of Spark SQL, planned in Python (classic Spark only)."""

from spark_ext.catalog.configured import configure
from spark_ext.catalog.frames import read_table
from spark_ext.catalog.install import install_catalog

__all__ = ["configure", "install_catalog", "read_table"]
