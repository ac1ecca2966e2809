"""One small Spark session for all tests that need one. Other tests run where PySpark is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from py4j.clientserver import ClientServerConnection
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What has a session is marked: one that is forgotten would start a JVM among other tests."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two threads; workers and planners import this checkout."""
    from pyspark.sql import SparkSession

    import spark_ext

    paths = [str(PROJECT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    scratch = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }.items():
        builder = builder.config(name, value)
    session = spark_ext.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def jvm_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that the JVM gets from now on, but for releases of objects: these come whenever
    Python collects the garbage of earlier queries."""
    from py4j.clientserver import ClientServerConnection
    from py4j.protocol import MEMORY_COMMAND_NAME

    calls: list[str] = []
    send = ClientServerConnection.send_command

    def noted(self: ClientServerConnection, command: str, *rest: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):
            calls.append(command)
        return send(self, command, *rest)

    monkeypatch.setattr(ClientServerConnection, "send_command", noted)
    return calls
