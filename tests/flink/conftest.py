"""Fixtures of tests with Flink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flink.environment import FlinkProcess, flink_process, with_connector


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkProcess]:
    """A process of Flink with the connector, for tests that neither kill it nor set it up."""
    with flink_process(tmp_path_factory.mktemp("flink"), with_connector()) as process:
        yield process


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """The path of a warehouse of this test."""
    return str(tmp_path / "warehouse")
