"""Fermion tables in Apache Flink: the Python side of a connector whose Java side is a jar.

- `python -m flink_ext.jar` says where the jar is. Flink SQL then has catalogs of type ``fermion``.
- `python -m flink_ext.worker` answers the requests of one task of the connector. Nobody starts it
  by hand: `flink_ext.daemon` forks it.
"""

from flink_ext.jar import jar_path

__all__ = ["jar_path"]

__dir__ = __all__.copy
