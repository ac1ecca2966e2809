"""Examples, pages for users and the README's code that use Spark, in the tests' own session.

A JVM for each would take most of the time of these tests. As programs of their own, as a user
starts them, they run in tests/test_examples.py and tests/test_readme.py.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.documents import BLOCKS, name_of, pages_for_users, uses_spark
from tests.kit.examples import EXAMPLES, NEEDED, SHARING_A_SESSION, require
from tests.kit.page_runner import run_page
from tests.kit.spark.versions import LATER

pytestmark = pytest.mark.spark

# All 22 queries take a minute. These have between them its kinds: sums, joins, outer joins, EXISTS,
# NOT IN, WITH, DISTINCT, and conditions of OR, LIKE and BETWEEN. The slow test runs all.
TPCH_QUERIES = (1, 4, 6, 13, 15, 16, 19, 22)
SMALL = {
    "tpch.py": ["--scale", "0.01", *(f"--query={number}" for number in TPCH_QUERIES)],
}
LONG = {"tpch.py", "spark_streams.py", "spark_changes.py", "spark_merge.py", "spark"}
SPARK_PAGES = [page for page in pages_for_users() if uses_spark(page)]
README_BLOCKS = [code for mark, code in BLOCKS if mark.strip()]


def marked(files: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """Those that take long, with their mark."""
    return [
        pytest.param(file, marks=pytest.mark.long) if name(file) in LONG else file for file in files
    ]


@pytest.fixture(scope="module")
def session(spark):
    """A new session of the tests' Spark: one, as each has Python workers of its own."""
    return spark.newSession()


@pytest.fixture
def shared(spark, session, monkeypatch, tmp_path):
    """What a program starts is the session of this module."""
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.chdir(tmp_path)
    yield session
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def run(file: Path) -> int:
    """Run a program in this process; its exit status."""
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    return 0


@pytest.mark.parametrize("name", marked(SHARING_A_SESSION, str))
def test_the_example_finds_nothing_wrong(name, shared, tmp_path, monkeypatch, capsys):
    """Each takes a directory for what it makes, and exits with 0 when all its checks hold."""
    require(NEEDED.get(name))
    arguments = [str(tmp_path / "made"), *SMALL.get(name, [])]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
    status = run(EXAMPLES / name)
    said = capsys.readouterr().out
    assert status == 0, said
    assert said
    assert "WRONG" not in said


@pytest.mark.parametrize("page", marked(SPARK_PAGES, name_of), ids=name_of)
def test_the_code_of_the_page_runs(page, shared, tmp_path, monkeypatch):
    """From top to bottom, in an empty directory; its own assertions say what should come out."""
    monkeypatch.setattr(SparkSession, "_instantiatedSession", shared.newSession())
    run_page(page, tmp_path, monkeypatch, skipped=LATER)


@pytest.mark.parametrize("code", README_BLOCKS)
def test_the_code_in_the_readme_runs(code, shared, tmp_path):
    """In an empty directory; its own assertions say what should come out."""
    file = tmp_path / "block.py"
    file.write_text(code)
    assert run(file) == 0


def test_there_are_programs_to_run():
    """The patterns that find them may break; then the tests above would check nothing."""
    assert len(SHARING_A_SESSION) >= 7
    assert len(README_BLOCKS) == 1
    assert len(SPARK_PAGES) >= 2
