"""`fermion table log`: what happened, as text, JSON and a page; a whole page or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.cli import main
from fermion_table import Table


@pytest.fixture
def short(tmp_path: Path) -> Table:
    found = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]), durability="fast")
    found.append(pa.table({"id": [1]}))
    return found


def test_log_prints_what_happened(run: Any, json_of: Any) -> None:
    lines = run("log").splitlines()
    assert lines[0].startswith("snapshot 5  2")
    assert "    day 3" in lines
    assert "delete  " in lines[1]
    assert run("log", "-n", 1).splitlines() == lines[:1]
    assert run("log", "--version", "main~2").splitlines() == lines[lines.index("    day 3") - 1 :]
    rows = json_of("log", "-n", 2)
    assert [row["id"] for row in rows] == [5, 4]
    assert rows[1]["kind"] == "delete"


def test_the_page_is_that_of_the_table(capsys, tmp_path, short):
    """With and without a limit; at a version its trees and facts."""
    target = tmp_path / "log.html"
    assert main(["table", "log", short.location, "--html", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target}: ")
    assert target.read_text(encoding="utf-8") == short.history_html()
    assert main(["table", "log", short.location, "-n", "1", "--html", str(target)]) == 0
    assert target.read_text(encoding="utf-8") == short.history_html(limit=1)
    given = ["--version", "0", "--storage-option", "auto_mkdir:=true"]
    assert main(["table", "log", short.location, *given, "--html", str(target)]) == 0
    older = Table.open(short.location, version=0)
    assert target.read_text(encoding="utf-8") == older.history_html()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--html", "log.html", "--json"], 2, "--html and --json exclude each other"),
        (["--html", "data"], 2, "--html: expected a name that ends in .html or .htm"),
        (["--html", "log.html", "-n", "0"], 2, "limit"),
        (["--html", "log.html", "--branch", "other"], 1, "no branch 'other'"),
        (["--html", "no/such/log.html"], 1, "no/such"),
    ],
)
def test_what_can_not_be_done_is_refused(
    capsys, tmp_path, short, arguments, status, said, monkeypatch
):
    """And no page is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["table", "log", short.location, *arguments]) == status
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))


def test_no_table_is_no_page(capsys, tmp_path):
    target = tmp_path / "log.html"
    assert main(["table", "log", str(tmp_path / "none"), "--html", str(target)]) == 1
    assert "no table here" in capsys.readouterr().err
    assert not target.exists()
