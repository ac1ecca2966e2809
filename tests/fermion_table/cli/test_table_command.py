"""The command `fermion table`: what it prints, as JSON too, and its exit status."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion_table.cli
from fermion.cli import main
from fermion_table import Table
from fermion_table.cli.program import COMMANDS

SCHEMA = pa.schema({"id": pa.int64(), "kind": pa.string(), "tags": pa.list_(pa.string())})


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 3 append two rows each; 4 deletes one, 5 adds a column."""
    made = Table.create(table_path, SCHEMA, durability="fast", partition_by=["kind"])
    for day in range(1, 4):
        rows = {"id": [day, day * 10], "kind": ["a", "b"], "tags": [["x"], None]}
        made.append(pa.table(rows, schema=SCHEMA), message=f"day {day}")
    made.delete("id = 10")
    made.add_columns({"price": pa.float64()})
    return made


@pytest.fixture
def run(table: Table, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``fermion table COMMAND PATH ...``; gives what it prints."""

    def runs(command: str, *arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        given = ["table", command, table.location, *map(str, arguments)]
        assert main(given) == status
        captured = capsys.readouterr()
        assert captured.err == "" if status == 0 else True
        return captured.out + captured.err

    return runs


@pytest.fixture
def json_of(run: Any) -> Any:
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options))


def reopened(table: Table, **version: Any) -> Table:
    return Table.open(table.location, **version)


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_the_commands_are_those_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    expected = "create import export import-paimon copy log show files schema scan diff tag branch"
    expected += " consumer index restore mirror compact expire remove-orphans verify repair"
    assert list(COMMANDS) == expected.split()
    assert main(["table", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"\n    {name}\s", text) for name in COMMANDS)
    assert main(["--help"]) == 0
    assert fermion_table.cli.HELP in capsys.readouterr().out


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


def test_show_prints_a_snapshot_in_brief(run: Any, json_of: Any, table: Table) -> None:
    table.tags.create("v1", version=2, message="first")
    table.branches.create("dev", version=3)
    table.set_properties({"target_file_size": "64MB"})
    lines = run("show").splitlines()
    assert lines[0] == table.location
    assert lines[1].startswith("snapshot 6 of main: schema")
    for line in (
        "partitioned by kind",
        "4 columns, schema 2",
        "property target_file_size: 64MB",
        "branch main: snapshot 6",
        "branch dev: snapshot 3, from snapshot 3 of main",
        "tag v1: snapshot 2 (first)",
    ):
        assert line in lines
    assert any(line.startswith("5 rows in ") for line in lines)
    assert "    day 2" in run("show", "--version", "v1").splitlines()
    found = json_of("show")
    assert (found["snapshot_id"], found["rows"], found["columns"]) == (6, 5, 4)
    assert found["tags"] == {"v1": 2}
    assert found["branches"] == {"main": 6, "dev": 3}


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


def test_schema_prints_columns_and_their_history(
    run: Any, json_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("schema").splitlines() == [
        "1: id: int64",
        "2: kind: string",
        "3: tags: list<item: string>",
        "5: price: double",
    ]
    assert "price" not in run("schema", "--version", 4)
    assert run("schema", "--history").splitlines()[-1] == "    + price: double"
    found = json_of("schema")
    assert found["fields"][3] == {
        "id": 4,
        "path": ["tags", "element"],
        "type": "string",
        "nullable": True,
        "comment": None,
    }
    assert json_of("schema", "--history")[1]["changes"] == ["+ price: double"]
    monkeypatch.setattr("fermion_table.cli.schema.COLUMNS_SHOWN", 1)
    assert run("schema").splitlines() == [
        "1: id: int64",
        "... and 3 more columns (--all shows them)",
    ]


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


def test_diff_prints_what_differs(run: Any, json_of: Any) -> None:
    lines = run("diff", 3).splitlines()
    assert lines[:2] == ["snapshot 3 -> snapshot 5", "  + price: double"]
    assert "no difference" in run("diff", 4, 4)
    rows = run("diff", "main~2", "--rows").splitlines()
    assert rows[-1].split()[:2] == ["delete", "10"]
    found = json_of("diff", 3, 5, "--rows")
    assert found["schema_changes"] == ["+ price: double"]
    assert (found["rows_removed"], len(found["files_removed"])) == (1, 1)
    assert [(row["_change_type"], row["id"]) for row in found["rows"]] == [("delete", 10)]


def test_tags_are_made_listed_and_deleted(run: Any, json_of: Any, table: Table) -> None:
    assert run("tag") == "no tags\n"
    assert (
        run("tag", "v1", "--version", 2, "-m", "first", "--keep", "30d") == "tag v1: snapshot 2\n"
    )
    assert json_of("tag", "v2") == {"name": "v2", "snapshot_id": 5}
    assert run("tag").splitlines()[1].split()[:2] == ["v1", "2"]
    assert [row["name"] for row in json_of("tag")] == ["v1", "v2"]
    first = table.tags.list()[0]
    assert first.message == "first"
    assert (first.expires_ms or 0) - first.created_ms == 30 * 86_400_000
    assert run("tag", "v1", "--delete") == "deleted tag v1\n"
    assert "'v1'" in run("tag", "v1", "--delete", status=1)
    assert "expected a name" in run("tag", "--delete", status=2)
    assert "expected an age" in run("tag", "v3", "--keep", "2026-01-01", status=2)


def test_branches_are_made_published_and_deleted(run: Any, json_of: Any, table: Table) -> None:
    line = run("branch", "dev", "--version", "main~1", "-m", "try")
    assert line == "branch dev starts at snapshot 4 of main\n"
    assert run("branch").splitlines()[2].split()[:4] == ["dev", "4", "main", "4"]
    assert [row["name"] for row in json_of("branch")] == ["main", "dev"]
    assert run("branch", "dev", "--delete") == "deleted branch dev\n"
    assert json_of("branch", "dev") == {"name": "dev", "parent": "main", "left_after": 5}
    dev = reopened(table, branch="dev")
    dev.append(pa.table({"id": [7]}))
    assert run("scan", "--branch", "dev", "--count") == "6 rows\n"
    assert run("branch", "dev", "--fast-forward") == "main is at snapshot 6, the state of dev\n"
    assert 7 in ids(reopened(table))
    dev.append(pa.table({"id": [8]}))
    reopened(table).append(pa.table({"id": [9]}))
    assert run("branch", "dev", "--merge") == "main is at snapshot 8, with the commits of dev\n"
    assert {8, 9} <= set(ids(reopened(table)))
    assert "expected a name" in run("branch", "--fast-forward", status=2)
    assert "expected a name" in run("branch", "--merge", status=2)


def test_indexes_are_made_listed_rebuilt_and_dropped(run: Any, json_of: Any, table: Table) -> None:
    table.set_properties({"index.rows_min": "1"})
    assert run("index") == "no indexes\n"
    assert run("index", "id", "--kind", "bitmap").splitlines()[1].split()[:2] == ["id", "bitmap"]
    (made,) = json_of("index", "price")
    assert (made["kind"], made["files"], made["files_indexed"]) == ("btree", 5, 5)
    assert [row["name"] for row in json_of("index")] == ["id", "price"]
    assert len(json_of("index", "--rebuild", "--full")) == 2
    assert run("index", "id", "--drop") == "dropped the index of id\n"
    assert [index.name for index in reopened(table).indexes] == ["price"]
    assert "no index of 'id'" in run("index", "id", "--drop", status=2)
    for wrong in (["--drop"], ["id", "--kind", "btree", "--rebuild"], ["id", "--kind", "hash"]):
        assert "expected" in run("index", *wrong, status=2)


def test_restore_makes_an_earlier_state_the_latest(run: Any, json_of: Any, table: Table) -> None:
    assert run("restore", 2, "-m", "back") == "snapshot 6: back\n"
    assert ids(reopened(table)) == [1, 2, 10, 20]
    assert json_of("restore", 2) == {"snapshot_id": 6, "changed": False}
    assert run("restore", "main") == "nothing to do: snapshot 6 has that state\n"


def test_compact_rewrites_small_files(run: Any, json_of: Any, table: Table) -> None:
    assert run("compact", "--dry-run").startswith("would rewrite 5 files (")
    assert json_of("compact", "--filter", "kind = 'a'", "--target-size", "1MB")["files_after"] == 1
    assert run("compact").startswith("rewrote 2 files (")
    assert run("compact") == "nothing to do\n"
    assert ids(reopened(table)) == [1, 2, 3, 20, 30]


def test_expire_and_orphans_say_what_went(run: Any, json_of: Any, table: Table) -> None:
    planned = run("expire", "--older-than", "2100-01-01", "--retain-last", 1, "--dry-run")
    assert planned.startswith("would delete 4 snapshots, 1 data file")
    assert "\n  data/" in planned
    done = json_of("expire", "--older-than", "2100-01-01", "--retain-last", 1)
    assert (done["snapshots"], done["files"], done["dry_run"]) == (4, 1, False)
    assert run("expire", "--older-than", "1h") == "deleted nothing (0 bytes)\n"
    with table.writer() as writer:
        writer.write(pa.table({"id": [1]}))
        writer.prepare_commit()
    del writer  # whoever holds a writer keeps its files
    gc.collect()
    assert run("remove-orphans", "--older-than", "12h") == "would delete nothing (0 bytes)\n"
    planned = run("remove-orphans", "--older-than", "2100-01-01")
    assert planned.startswith("would delete 1 data file")
    assert planned.endswith("nothing was deleted; --yes deletes them\n")
    assert json_of("remove-orphans", "--older-than", "2100-01-01", "--yes")["files"] == 1
    assert run("remove-orphans", "--older-than", "12h", "--yes").startswith("deleted nothing")
    assert "expected an age" in run("expire", "--older-than", "soon", status=2)
    table.branches.create("dev")
    dev = reopened(table, branch="dev")
    dev.append({"id": [1]})
    dev.append({"id": [2]})
    said = run("expire", "--branch", "dev", "--older-than", "2100-01-01", "--retain-last", 1)
    assert said.startswith("deleted 1 snapshots")


def test_verify_ends_with_1_where_something_is_wrong(run: Any, json_of: Any, table: Table) -> None:
    table.tags.create("v1", version=1)
    assert run("verify").rstrip().endswith(": OK")
    assert json_of("verify", "--data")["ok"] is True
    path = table.inspect.files()["path"].to_pylist()[0]
    Path(table.location, path).unlink()
    text = run("verify", status=1)
    assert f"{path}: expected a file of " in text
    found = json_of("verify", status=1)
    assert found["ok"] is False
    assert found["problems"][0]["path"] == path


def test_what_goes_wrong_is_one_line_and_a_status(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "log", str(tmp_path / "nothing")]) == 1
    assert "no table here" in capsys.readouterr().err
    assert "latest 5" in run("scan", "--version", 99, status=1)
    assert "'nothing'" in run("scan", "--column", "nothing", status=2)
    assert run("scan", "--filter", "id >", status=2).count("\n") == 1
    assert "COMMAND" in run("nothing", status=2)
    assert main(["table"]) == 2


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


def test_a_damaged_table_is_repaired(run: Any, json_of: Any, table: Table) -> None:
    path = Path(table.location, "snapshot", f"{5:020d}.json")
    path.write_bytes(path.read_bytes()[:100])
    assert "can't be read" in run("repair", "--dry-run", status=1)
    assert json_of("repair")["actions"]
    assert run("repair") == "0 repairs done\n"
    assert reopened(table).snapshot.id == 4


def test_missing_files_are_left_out_if_that_is_asked_for(
    run: Any, json_of: Any, table: Table
) -> None:
    """The exit status is 1, as older snapshots go on naming the files."""
    for path in Path(table.location, "data").rglob("*.fermion"):
        path.unlink()
    rows = table.scan().count()
    assert f"files missing, {rows} rows lost" in run("repair", status=1)
    words = ("--leave-out-missing", "--lost-deletions", "leave-out")
    assert "leaves out" in run("repair", "--dry-run", *words, status=1)
    assert reopened(table).snapshot.id == table.snapshot.id
    told = json.loads(run("repair", "--json", *words, status=1))
    assert told["rows_lost"] == rows
    assert len(told["actions"]) == 1
    assert told["losses"]
    assert reopened(table).scan().to_arrow().num_rows == 0
