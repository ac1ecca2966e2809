"""`fermion table files`: the data files of a snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from fermion_table import Table


def test_files_prints_the_data_files(run: Any, json_of: Any, table: Table) -> None:
    paths = table.inspect.files()["path"].to_pylist()
    text = run("files")
    assert all(path in text for path in paths)
    assert [row["path"] for row in json_of("files")] == paths
    assert json_of("files")[0]["statistics"]["id"]["min"] == 1
    assert run("files", "--version", 0) == "no files\n"


def test_many_files_are_cut(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermion_table.cli.files.FILES_SHOWN", 2)
    assert "... and 3 more files (--all shows them)" in run("files")
    assert "more files" not in run("files", "--all")
