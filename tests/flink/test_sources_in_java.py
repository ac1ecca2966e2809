"""Bugs of streams that depend on a moment: `SourceClaims.java` calls the classes of the connector.

No cluster runs: a proxy stands for the coordinator's context, and plans are given as JSON.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.flink.environment import connector, python_of_flink

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SOURCE = Path(__file__).with_name("SourceClaims.java")


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the compiled claims, the connector and Flink are."""
    classes = tmp_path_factory.mktemp("classes")
    flink = python_of_flink().parent.parent.glob("lib/python*/site-packages/pyflink/lib/*.jar")
    found = ":".join(map(str, (classes, connector(), *flink)))
    subprocess.run(["javac", "-d", classes, "-cp", found, SOURCE], check=True)
    return found


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param("overlapping polls", id="two overlapping polls plan one interval once"),
        pytest.param("changes wait", id="changes wait for the first rows and a checkpoint"),
        pytest.param("order after a restore", id="a restored stream keeps the order of splits"),
        pytest.param("order of splits given back", id="splits given back keep their order"),
        pytest.param("order within a reader", id="a reader reads splits in their order"),
        pytest.param("batch that is emitted", id="a batch that is emitted is not overwritten"),
    ],
)
def test_sources_in_java(class_path, claim):
    options = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-XX:TieredStopAtLevel=1"]
    done = subprocess.run(
        ["java", *options, "-cp", class_path, "org.fermion.flink.SourceClaims", claim],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["holds"], done.stderr
