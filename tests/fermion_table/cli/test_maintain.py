"""`fermion maintain`: a table, every table of a warehouse, again and again until SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.cli import main
from fermion_table import Catalog, Table
from tests.kit.documents import PROJECT

ID = pa.schema([("id", pa.int64())])


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Two tables of three small files each."""
    catalog = Catalog.open(tmp_path / "warehouse")
    for name in ("db.a", "db.b"):
        table = catalog.create_table(name, ID)
        for number in range(3):
            table.append({"id": [number]})
    return tmp_path / "warehouse"


def test_a_warehouse_has_every_table_maintained_and_a_broken_one_stops_no_other(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = max((warehouse / "db/a/snapshot").glob("*.json"))
    newest.write_text("{")
    assert main(["maintain", str(warehouse)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("db.a: open: failed: ") for line in lines)
    assert any(line.startswith("db.b: compact: rewrote 3 files") for line in lines)
    assert Table.open(warehouse / "db/b").snapshot.totals.files == 1


def test_one_table_by_json_with_a_policy_and_as_a_dry_run(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(warehouse / "db/a")
    given = ["maintain", path, "--json", "--dry-run", "--policy", "expire=false"]
    assert main(given) == 0
    steps = json.loads(capsys.readouterr().out)
    assert [(step["name"], step["outcome"]) for step in steps] == [
        ("compact", "done"),
        ("expire", "off"),
        ("remove_orphans", "done"),
    ]
    assert steps[0]["table"] == path
    assert steps[0]["figures"]["files_before"] == 3
    assert Table.open(path).snapshot.id == 3


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 1, "neither a table nor a warehouse"),
        (["--policy", "compact"], 2, "expected NAME=VALUE"),
        (["--policy", "compcat=true"], 2, "did you mean 'compact'"),
        (["--watch", "soon"], 2, "--watch='soon'"),
    ],
)
def test_wrong_usage_says_what_is_expected(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    assert main(["maintain", str(tmp_path / "absent"), *arguments]) == status
    assert message in capsys.readouterr().err


def test_sigterm_ends_a_watch_between_steps_with_status_0(warehouse: Path) -> None:
    """It waits for an hour after its first round; the signal ends the wait."""
    program = (
        "from tests.kit.declared_commands import declared_commands\n"
        "import importlib.metadata\n"
        "importlib.metadata.entry_points = declared_commands\n"
        "from fermion.cli import main\n"
        "raise SystemExit(main())\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, "maintain", str(warehouse / "db/a"), "--watch", "1h"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=PROJECT,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "remove_orphans" in line:
            break
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_signal_during_a_step_lets_the_step_end_and_takes_no_other(
    warehouse: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process signals itself while it compacts the first table."""
    from fermion_table.table import maintaining

    compact = maintaining.compact

    def signalled(*given: Any, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return compact(*given, **named)

    monkeypatch.setattr(maintaining, "compact", signalled)
    before = signal.getsignal(signal.SIGTERM)
    assert threading.current_thread() is threading.main_thread()
    assert main(["maintain", str(warehouse), "--watch"]) == 0
    assert capsys.readouterr().out.startswith("db.a: compact: rewrote ")
    assert Table.open(warehouse / "db/a").snapshot.totals.files == 1
    assert Table.open(warehouse / "db/b").snapshot.totals.files == 3
    assert signal.getsignal(signal.SIGTERM) == before
