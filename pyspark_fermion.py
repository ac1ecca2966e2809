"""Lets Spark find ``format("fermion")`` by itself: it looks for modules named ``pyspark_*``."""

from spark_ext.datasource.source import FermionDataSource as DefaultSource

__all__ = ["DefaultSource"]
