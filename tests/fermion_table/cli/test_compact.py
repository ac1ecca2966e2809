"""`fermion table compact`: small files, and runs of keyed tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from fermion.cli import main
from fermion_table import Table


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_compact_rewrites_small_files(run: Any, json_of: Any, table: Table) -> None:
    assert run("compact", "--dry-run").startswith("would rewrite 5 files (")
    assert json_of("compact", "--filter", "kind = 'a'", "--target-size", "1MB")["files_after"] == 1
    assert run("compact").startswith("rewrote 2 files (")
    assert run("compact") == "nothing to do\n"
    assert ids(Table.open(table.location)) == [1, 2, 3, 20, 30]


def test_compact_merges_the_runs_of_a_table_with_a_primary_key(tmp_path: Path, capsys: Any) -> None:
    path = str(tmp_path / "keyed")
    keyed = Table.create(path, pa.schema([("k", pa.int64())]), primary_key="k")
    for n in (0, 0, 10):
        keyed.upsert({"k": [n, n + 1]})

    def printed(*words: str) -> str:
        assert main(["table", "compact", path, *words]) == 0
        return capsys.readouterr().out

    assert printed() == "nothing to do\n"
    planned = printed("--full", "--dry-run", "--target-size", "1")
    assert planned.startswith("would rewrite 2 files (")
    assert planned.endswith("would move 1 file to another level without rewriting\n")
    done = printed("--full", "--target-size", "1")
    assert done.startswith("rewrote 2 files (")
    assert done.endswith("moved 1 file to another level without rewriting\n")
    assert printed("--full") == "nothing to do\n"
