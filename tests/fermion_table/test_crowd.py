"""Many processes work on one table, on a disk or on S3; the history they make is serializable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from crowd import SCHEMA, check_history
from s3_servers import BUCKET, NotStartedError, ceph, missing_of_ceph, moto

from fermion_table import Table

PROCESSES = 16
SECONDS = 45
SECONDS_ON_S3 = 15
SOAK_SECONDS = float(os.environ.get("FERMION_CROWD_SECONDS", 600))
"""The environment may shorten the long form."""
EVERYTHING = {"append", "delete", "update", "compact", "expire", "add_column", "read"}

Place = tuple[str, dict[str, Any]]
"""Where a table goes: path or URL, and storage options."""


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return str(tmp_path / "table"), {}


@pytest.fixture
def moto_server(tmp_path: Path) -> Iterator[Place]:
    pytest.importorskip("s3fs", reason="the extra s3 brings s3fs")
    pytest.importorskip("moto.server", reason="the group dev brings moto")
    with moto(tmp_path) as options:
        yield f"s3://{BUCKET}/table", options


@pytest.fixture
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("s3fs", reason="the extra s3 brings s3fs")
    if missing_of_ceph():
        pytest.skip(missing_of_ceph())
    with ExitStack() as running:
        directory = tmp_path_factory.mktemp("ceph")  # a short path: sockets lie in it
        try:
            options = running.enter_context(ceph(directory))
        except NotStartedError as error:
            pytest.skip(f"a server that is not ours: {error}")
        yield f"s3://{BUCKET}/table", options


def work(place: Place, seconds: float, environment: dict[str, str]) -> tuple[int, Counter[str]]:
    """Let all processes work, and check what they made: commits, and what was done how often."""
    path, options = place
    table = Table.create(path, SCHEMA, storage_options=options or None)
    program = Path(__file__).with_name("crowd.py")
    running = [
        subprocess.Popen(
            [sys.executable, str(program), path, str(number), str(seconds), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(PROCESSES)
    ]
    acknowledged: dict[str, int] = {}
    unknown: set[str] = set()
    done: Counter[str] = Counter()
    for process in running:
        output, errors = process.communicate(timeout=seconds + 300)
        assert process.returncode == 0, errors
        told = json.loads(output)
        acknowledged.update(told["acknowledged"])
        unknown.update(told["unknown"])
        done.update(told["done"])
    table.refresh()
    commits = check_history(table, acknowledged, unknown)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    report = table.verify(data=True)
    assert report.ok, report
    return commits, done


def test_sixteen_processes_make_a_serializable_history(
    disk: Place, project_environment: dict[str, str]
) -> None:
    """Most of a minute of appends, deletes, updates, compactions, schema changes, expiry, reads."""
    commits, done = work(disk, SECONDS, project_environment)
    assert commits > PROCESSES
    assert {"append", "compact", "read"} <= set(done)


@pytest.mark.parametrize("server", ["moto_server", "ceph_server"])
def test_sixteen_processes_make_a_serializable_history_on_s3(
    server: str, request: pytest.FixtureRequest, project_environment: dict[str, str]
) -> None:
    """A quarter of a minute, over HTTP; with Ceph, which is no mock, where it is installed."""
    commits, done = work(request.getfixturevalue(server), SECONDS_ON_S3, project_environment)
    assert commits > 0  # a busy machine leaves little of the time
    assert "append" in done


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", ["disk", "moto_server", "ceph_server"])
def test_sixteen_processes_make_a_serializable_history_for_ten_minutes(
    place: str, request: pytest.FixtureRequest, project_environment: dict[str, str]
) -> None:
    commits, done = work(request.getfixturevalue(place), SOAK_SECONDS, project_environment)
    counts = {"commits": commits, **dict(sorted(done.items()))}
    where = {"disk": "disk", "moto_server": "moto", "ceph_server": "Ceph"}[place]
    print("soak:", json.dumps({f"{name} on {where}": count for name, count in counts.items()}))
    assert set(done) >= EVERYTHING or SOAK_SECONDS < 600
