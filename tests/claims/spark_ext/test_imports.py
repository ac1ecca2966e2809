"""What Spark's Python workers load before they do anything: there are many, and they are short."""

from __future__ import annotations

from tests.kit.processes import modules_after


def test_a_worker_that_loads_the_package_loads_no_pandas():
    """In a process of its own; pyarrow.dataset would bring it, and takes longer than the rest."""
    loaded = modules_after("import pyspark.worker, spark_ext.datasource, spark_ext.writing")
    assert not {"pandas", "pyarrow.dataset"} & loaded
