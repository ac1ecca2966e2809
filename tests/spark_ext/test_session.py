"""Java, the workers' interpreter and the size of batches are settled before Spark starts."""

from __future__ import annotations

import os
import sys

import pyarrow as pa
import pytest

from spark_ext import session
from spark_ext.errors import JavaNotFound, UnsupportedBySpark


class Builder:
    """Records what a session builder is told."""

    def __init__(self):
        self.told = {}

    def config(self, name, value):
        self.told[name] = value
        return self


@pytest.fixture
def no_submit(monkeypatch):
    """An environment that nothing has touched yet."""
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def test_a_missing_java_is_said_in_one_line(no_submit, monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFound) as caught:
        session.configure(Builder())
    assert "set JAVA_HOME" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_java_home_without_java_is_named(no_submit, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFound, match=str(tmp_path)):
        session.configure(Builder())


def test_workers_run_the_interpreter_of_the_driver_unless_told_otherwise(no_submit, monkeypatch):
    monkeypatch.setattr(session, "check_java", lambda: None)
    session.configure(Builder())
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "python-of-the-cluster")
    session.configure(Builder())
    assert os.environ["PYSPARK_PYTHON"] == "python-of-the-cluster"


def test_batches_are_measured_in_rows_alone(no_submit, monkeypatch):
    monkeypatch.setattr(session, "check_java", lambda: None)
    builder = Builder()
    assert session.configure(builder) is builder
    assert builder.told[session.BATCH_BYTES_SETTING] == session.BATCH_BYTES_UNLIMITED


def test_options_of_the_java_machine_are_added_to_once(no_submit, monkeypatch):
    monkeypatch.setattr(session, "check_java", lambda: None)
    driver, executor = session.JAVA_OPTIONS_SETTINGS
    builder = Builder()
    builder._options = {driver: "-Xss8m"}
    session.configure(builder)
    assert builder.told[driver] == f"-Xss8m {session.UNCHECKED_VECTORS}"
    assert builder.told[executor] == session.UNCHECKED_VECTORS
    builder._options = dict(builder.told)
    again = Builder()
    again._options = builder._options
    session.configure(again)
    assert not {driver, executor} & set(again.told)


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        (pa.schema([("a", pa.int64())]), 65_536),
        (pa.schema([("a", pa.int64()), ("s", pa.string())]), 16_384),
        (pa.schema([(f"c{i}", pa.float64()) for i in range(10_000)]), 838),
        (pa.schema([(f"c{i}", pa.string()) for i in range(100_000)]), 64),
        (pa.schema([]), 65_536),
    ],
)
def test_wider_rows_make_smaller_batches(schema, rows):
    assert session.batch_rows(schema) == rows


def test_a_spark_connect_client_is_refused_with_the_way_out():
    client = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(UnsupportedBySpark, match=r'format\("fermion"\)'):
        session.classic(client, "append")


def test_settings_of_jobs_that_overlap_end_as_they_were():
    """One begins and ends while another goes on, and the other way round; unset stays unset."""

    class Settings(dict):
        set = dict.__setitem__
        unset = dict.__delitem__

    spark = type("Session", (), {})()
    spark.conf = Settings(known="1")
    for order in ((0, 1), (1, 0)):
        jobs = [session.settings(spark, {"known": n, "new": n}) for n in (2, 3)]
        for job in jobs:
            job.__enter__()
        assert spark.conf == {"known": 3, "new": 3}
        for number in order:
            assert spark.conf["known"] == 3
            jobs[number].__exit__(None, None, None)
        assert spark.conf == {"known": "1"}
