"""Executors in processes of their own: everything works there, also where one of them is killed.

A program starts one session, tries cases of `on_cluster.uses` and `on_cluster.kills` one after the
other, and writes down what each raised.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.kit.spark.on_cluster import kills, uses
from tests.kit.spark.on_cluster.program import RESULTS
from tests.kit.spark.programs import run_program

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.skipif(sys.platform != "linux", reason="parents of processes are read in /proc"),
]


USES = [case.__name__ for case in uses.CASES]
KILLS = [case.__name__ for case in kills.CASES]
MORE_KILLS = [case.__name__ for case in kills.SLOW_CASES]


def tried(names: list[str], directory: Path, environment: dict[str, str]) -> dict[str, str | None]:
    """What each case raised."""
    program = ["-m", "tests.kit.spark.on_cluster.program", *names]
    run_program(program, directory, environment)
    return json.loads((directory / RESULTS).read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory, project_environment) -> dict[str, str | None]:
    """Of one session."""
    return tried([*USES, *KILLS], tmp_path_factory.mktemp("cluster"), project_environment)


@pytest.fixture(scope="module")
def more_results(tmp_path_factory, project_environment) -> dict[str, str | None]:
    """Of another one."""
    return tried(MORE_KILLS, tmp_path_factory.mktemp("cluster"), project_environment)


@pytest.mark.parametrize("name", USES)
def test_tasks_share_nothing_but_the_storage(results, name):
    assert results[name] is None, results[name]


@pytest.mark.parametrize("name", KILLS)
def test_rows_are_there_once_after_a_kill(results, name):
    assert results[name] is None, results[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_KILLS)
def test_other_jobs_survive_a_kill_or_fail_as_a_whole(more_results, name):
    assert more_results[name] is None, more_results[name]
