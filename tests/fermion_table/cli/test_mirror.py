"""`fermion table mirror`: publishes, makes, lists and forgets mirrors; watches."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import deltalake
import pytest

from fermion.cli import main
from fermion_table import Table
from fermion_table.cli import mirror


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", {"id": [1, 2]}, durability="fast")


def run(*arguments: str) -> int:
    return main(["table", "mirror", *arguments])


def test_a_mirror_is_made_published_listed_and_forgotten(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "d")
    assert run(table.location, "--list") == 0
    assert run(table.location, "--create", "delta", place, "--name", "lake", "--history") == 0
    assert run(table.location) == 0
    table.append({"id": [3]})
    assert run(table.location, "--name", "lake") == 0
    assert run(table.location, "--list") == 0
    assert run(table.location, "--drop", "--name", "lake") == 0
    assert capsys.readouterr().out.splitlines() == [
        "no mirrors",
        "lake: shows snapshot 2, 3 snapshots published, 1 file added, 0 files removed",
        "lake: shows snapshot 2 already",
        "lake: shows snapshot 3, 1 snapshot published, 1 file added, 0 files removed",
        f"lake: delta at {place}",
        "no mirrors",
    ]
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == 3


def test_json_has_what_python_returns(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.mirrors.create("delta", tmp_path / "d")
    assert run(table.location, "--json") == 0
    published = json.loads(capsys.readouterr().out)
    assert run(table.location, "--list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert published[0]["snapshots"] == [2]
    assert listed[0]["kind"] == "delta"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--drop"], "--drop: expected --name"),
        (["--history"], "are for --create"),
        (["--create", "delta", "x", "--option", "catalog"], "expected NAME=VALUE"),
        (["--create", "detla", "x"], "did you mean 'delta'"),
        (["--create", "delta", "x", "--watch", "often"], "--watch='often'"),
        (["--name", "other"], "no mirror 'other'"),
    ],
)
def test_wrong_usage_says_what_is_expected(
    table: Table, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(table.location, *arguments) == 2
    assert message in capsys.readouterr().err
    assert table.mirrors.list() == []


def test_a_watch_publishes_what_comes_and_a_mirror_that_fails_stops_no_other(
    table: Table,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each round a row is appended; after the third comes the signal."""
    table.mirrors.create("delta", tmp_path / "bad", name="bad")
    table.mirrors.create("delta", tmp_path / "good", name="good")
    table.mirrors.publish()
    deltalake.write_deltalake(tmp_path / "bad", table.to_arrow(), mode="append")
    rounds = []
    once = mirror._round

    def counted_round(*given: Any) -> bool:
        is_ok = once(*given)
        rounds.append(is_ok)
        if len(rounds) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        table.append({"id": [len(rounds)]})
        return is_ok

    monkeypatch.setattr(mirror, "_round", counted_round)
    assert run(table.location, "--watch", "0s") == 1
    assert rounds == [False, False, False]
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("bad: failed: delta mirror") for line in lines) == 3
    assert [line.split(",")[0] for line in lines if line.startswith("good")] == [
        "good: shows snapshot 4",
        "good: shows snapshot 5",
    ]
