"""Many processes work on one table, on a disk or on S3; the history they make is serializable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.tables.crowd import PROCESSES, Place, work
from tests.kit.tables.s3_servers import BUCKET, moto
from tools.ceph.cluster import Cluster

STEPS = 5
"""Operations of each process in the short form, which takes as much work on a busy machine."""
FEW_PROCESSES, FEW_STEPS = 4, 4
"""The same on S3, where a request to moto costs much more than one to a disk."""
SOAK_SECONDS = float(os.environ.get("FERMION_CROWD_SECONDS", 600))
"""The environment may shorten the long form."""
EVERYTHING = {"append", "delete", "update", "compact", "expire", "add_column", "read"}


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
def ceph_server(ceph_cluster: Cluster) -> Place:
    return f"s3://{BUCKET}/crowd", ceph_cluster.options()


@pytest.mark.long
def test_sixteen_processes_make_a_serializable_history(
    disk: Place, project_environment: dict[str, str]
) -> None:
    """Appends, deletes, updates, compactions, schema changes, expiry, reads: some of each."""
    commits, done = work(disk, project_environment, steps=STEPS)
    assert commits > PROCESSES
    assert {"append", "compact", "read"} <= set(done)


@pytest.mark.long
def test_processes_make_a_serializable_history_on_s3(
    moto_server: Place, project_environment: dict[str, str]
) -> None:
    """Fewer, over HTTP, on a server that is made for tests."""
    commits, done = work(moto_server, project_environment, FEW_PROCESSES, steps=FEW_STEPS)
    assert commits > 0
    assert "append" in done


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", ["disk", "moto_server", "ceph_server"])
def test_sixteen_processes_make_a_serializable_history_for_ten_minutes(
    place: str, request: pytest.FixtureRequest, project_environment: dict[str, str]
) -> None:
    commits, done = work(request.getfixturevalue(place), project_environment, seconds=SOAK_SECONDS)
    counts = {"commits": commits, **dict(sorted(done.items()))}
    where = {"disk": "disk", "moto_server": "moto", "ceph_server": "Ceph"}[place]
    print("soak:", json.dumps({f"{name} on {where}": count for name, count in counts.items()}))
    assert set(done) >= EVERYTHING or SOAK_SECONDS < 600
