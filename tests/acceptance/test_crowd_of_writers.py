"""Many processes append to one local table at once, and no commit is lost."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from fermion_table import Table

SCHEMA = pa.schema([("writer", pa.int32()), ("commit", pa.int32())])
WRITER = """
import sys
import pyarrow as pa
from fermion_table import Table

path, writer, commits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = Table.open(path)
print("ready", flush=True)
sys.stdin.readline()  # everybody starts at once
for commit in range(commits):
    table.append(
        pa.table(
            {"writer": pa.array([writer], pa.int32()), "commit": pa.array([commit], pa.int32())}
        )
    )
"""


@pytest.mark.parametrize(
    ("writers", "commits"), [(4, 5), pytest.param(16, 20, marks=pytest.mark.slow)]
)
def test_every_commit_of_every_process_is_there_once(
    table_path, project_environment, writers, commits
):
    """Separate interpreters that start together; then history, rows and the chain of hashes.

    4 write 5 commits each; in the long form 16 write 20, and `test_crowd.py` has 16 always.
    """
    Table.create(table_path, SCHEMA)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(table_path), str(writer), str(commits)],
            env=project_environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(writers)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [(process.communicate(timeout=500)[1], process.returncode) for process in processes]
    assert ends == [("", 0)] * writers

    table = Table.open(table_path)
    assert table.snapshot.id == writers * commits
    assert [snapshot.id for snapshot in table.snapshots()] == list(range(writers * commits + 1))

    rows = table.scan().to_arrow().sort_by([("writer", "ascending"), ("commit", "ascending")])
    assert rows.to_pylist() == [
        {"writer": writer, "commit": commit}
        for writer in range(writers)
        for commit in range(commits)
    ]
    assert table.verify().ok
