"""Many processes work on one table on a local disk; the history they make is serializable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from crowd import SCHEMA, check_history

from fermion_table import Table

PROCESSES = 16


def work(path: Path, seconds: float, environment: dict[str, str]) -> tuple[int, Counter[str]]:
    """Let all processes work, and check what they made: commits, and what was done how often."""
    Table.create(path, SCHEMA)
    program = Path(__file__).with_name("crowd.py")
    running = [
        subprocess.Popen(
            [sys.executable, str(program), str(path), str(number), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(PROCESSES)
    ]
    acknowledged: dict[str, int] = {}
    done: Counter[str] = Counter()
    for process in running:
        output, errors = process.communicate(timeout=seconds + 300)
        assert process.returncode == 0, errors
        told = json.loads(output)
        acknowledged.update(told["acknowledged"])
        done.update(told["done"])
    commits = check_history(path, acknowledged)
    table = Table.open(path)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    report = table.verify(data=True)
    assert report.ok, report
    return commits, done


def test_sixteen_processes_make_a_serializable_history(
    tmp_path: Path, project_environment: dict[str, str]
) -> None:
    """Five seconds of appends, deletes, updates, compactions, schema changes, expiry and reads."""
    commits, done = work(tmp_path / "table", 5, project_environment)
    assert commits > 0  # a busy machine leaves little of five seconds
    assert "append" in done


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sixteen_processes_make_a_serializable_history_for_ten_minutes(
    tmp_path: Path, project_environment: dict[str, str]
) -> None:
    seconds = float(os.environ.get("FERMION_CROWD_SECONDS", 600))
    commits, done = work(tmp_path / "table", seconds, project_environment)
    operations = ", ".join(f"{count:,} {name}" for name, count in sorted(done.items()))
    print(f"soak: {commits:,} commits in {seconds:g} s by {PROCESSES} processes: {operations}")
    assert {"append", "delete", "update", "compact", "expire", "add_column", "read"} <= set(done)
