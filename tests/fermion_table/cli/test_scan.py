"""`fermion table scan`: rows, of wide tables as many columns as fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.cli import main
from fermion_table import Table


def test_scan_prints_rows(run: Any, json_of: Any) -> None:
    assert json_of("scan", "--filter", "id > 2 AND kind = 'a'", "--column", "id") == [{"id": 3}]
    assert json_of("scan", "--column", "tags", "-n", 1) == [{"tags": ["x"]}]
    assert len(json_of("scan", "--version", 2)) == 4
    lines = run("scan", "--filter", "id >= 20", "--column", "id", "--column", "kind").splitlines()
    assert [line.split() for line in lines] == [["id", "kind"], ["20", "b"], ["30", "b"]]
    assert run("scan", "--count") == "5 rows\n"
    assert json_of("scan", "--count", "--filter", "id = 1") == {"rows": 1}
    assert "to read: 3 files" in run("scan", "--explain", "--filter", "kind = 'a'")
    assert len(json_of("scan", "--explain")["splits"]) == 5
    assert json_of("scan", "-n", 0) == []


def test_scan_of_a_wide_table_shows_what_fits(
    table_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = Table.create(
        table_path, pa.schema([(f"column_{at}", pa.int64()) for at in range(50)]), durability="fast"
    )
    wide.append(pa.table({f"column_{at}": [at] for at in range(50)}))
    assert main(["table", "scan", wide.location]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert "more columns (--all shows them)" in lines[-1]
    assert main(["table", "scan", wide.location, "--all"]) == 0
    assert "column_49" in capsys.readouterr().out
