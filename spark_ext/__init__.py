"""Fermion tables in PySpark: reading, appending, compacting, and the format for Spark SQL."""

from spark_ext.session import configure

__all__ = ["configure"]
