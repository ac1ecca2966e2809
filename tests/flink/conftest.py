"""Fixtures of tests with Flink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flink.environment import FlinkProcess, with_connector


@pytest.fixture(scope="session")
def shared_flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[FlinkProcess]]:
    """The processes that tests with the connector have shared, the newest last."""
    processes: list[FlinkProcess] = []
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture
def flink(
    shared_flink: list[FlinkProcess], tmp_path_factory: pytest.TempPathFactory
) -> FlinkProcess:
    """A process of Flink with the connector, for tests that neither kill it nor set it up.

    The tests share one, unless a test left it dead or without an answer.
    """
    if not shared_flink or not shared_flink[-1].is_ready:
        for process in shared_flink:
            process.kill()
        shared_flink.append(FlinkProcess(tmp_path_factory.mktemp("flink"), with_connector()))
    return shared_flink[-1]


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """The path of a warehouse of this test."""
    return str(tmp_path / "warehouse")
