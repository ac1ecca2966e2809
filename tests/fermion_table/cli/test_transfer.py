"""`fermion table create`, `import` and `export`."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import fermion
from fermion import variant
from fermion.cli import main
from fermion.engine import InputFiles
from fermion_table import Table
from fermion_table.cli.imported_files import ImportedFiles
from fermion_table.table import staged

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "kind": ["a", "", None]})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Any:
    """Runs ``fermion table COMMAND ...`` beside `r.parquet`; gives what it prints."""
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(ROWS, "r.parquet")

    def runs(*arguments: str, fails: bool = False) -> str:
        capsys.readouterr()
        assert (main(["table", *arguments]) != 0) == fails
        captured = capsys.readouterr()
        return captured.out + captured.err

    return runs


def test_a_table_is_made_from_files_and_takes_more(run: Any) -> None:
    said = run("create", "t", "r.parquet", "--partition-by", "kind", "--sort-by", "id")
    assert said == "snapshot 1: the table stores 3 rows, 1 new file\n"
    pyarrow.csv.write_csv(ROWS, "more.csv")
    assert json.loads(run("import", "t", "*.csv", "-m", "more", "--json")) == {
        "snapshot_id": 2,
        "rows": 6,
        "files": 1,
        "changed": [],
    }
    table = Table.open("t")
    assert table.snapshot.message == "more"
    assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 1, 2, 2, 3, 3]
    Path("new.jsonl").write_text('{"id": 4, "price": 1.5}\n')
    assert "price: double: not in the table" in run("import", "t", "new.jsonl", fails=True)
    run("import", "t", "new.jsonl", "--add-columns")
    assert Table.open("t").scan(filter="price > 1").count() == 1


def test_a_table_with_a_primary_key_is_upserted(run: Any) -> None:
    properties = ("--property", "target_file_size=1MiB", "--property", "my.note=a=b")
    run("create", "t", "r.parquet", "--primary-key", "id", *properties)
    pyarrow.parquet.write_table(pa.table({"id": [3, 4], "kind": ["c", "d"]}), "u.parquet")
    run("import", "t", "u.parquet")
    assert Table.open("t").scan().to_arrow().sort_by("id")["kind"].to_pylist() == [
        *("a", "", "c", "d"),
    ]
    assert Table.open("t").properties["my.note"] == "a=b"
    assert "expected NAME=VALUE" in run("create", "u", "r.parquet", "--property", "x.y", fails=True)


@pytest.mark.parametrize(
    "name", ["o.parquet", "o.csv", "o.csv.gz", "o.tsv", "o.jsonl", "o.json.gz"]
)
def test_rows_go_out_and_come_back_in(run: Any, name: str) -> None:
    run("create", "t", "r.parquet")
    said = run("export", "t", name, "--filter", "id > 1", "--column", "kind", "--column", "id")
    assert said == f"{name}: 2 rows\n"
    run("create", "u", name)
    assert Table.open("u").scan().to_arrow().to_pylist() == [
        {"kind": "", "id": 2},
        {"kind": None, "id": 3},
    ]
    assert sorted(os.listdir()) == sorted(["r.parquet", "t", "u", name])


def test_earlier_versions_go_out(run: Any) -> None:
    run("create", "t", "r.parquet")
    run("import", "t", "r.parquet", "--again")
    shown = run("export", "t", "o.parquet", "--version", "1", "--json")
    assert json.loads(shown) == {"path": "o.parquet", "rows": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "t", "r.parquet"), "exists"),
        (("create", "u", "nope.csv"), "nope.csv: expected a file"),
        (("import", "t", "nope.csv"), "nope.csv: expected a file"),
        (("import", "nope", "r.parquet"), "nope"),
        (("export", "t", "r.parquet"), "r.parquet: expected a new file, found one that exists"),
        (("export", "t", "o.xls"), r"expected a suffix of .parquet.*found .xls"),
        (("export", "t", "o.csv", "--filter", "nope = 1"), "no column 'nope'"),
        (("export", "t", "no/o.csv"), "no/"),
    ],
)
def test_what_can_not_be_done_changes_nothing(run: Any, arguments: Any, message: str) -> None:
    run("create", "t", "r.parquet")
    before = sorted(os.listdir())
    said = run(*arguments, fails=True)
    assert re.search(message, said)
    assert sorted(os.listdir()) == before
    assert Table.open("t").snapshot.id == 1


def test_an_export_that_fails_halfway_leaves_no_file(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = variant.from_json(["1", '"none"'])
    table = Table.create("t", pa.table({"id": [1, 2], "event": events}))
    assert table.scan().count() == 2
    query = "--column", "id", "--filter", "variant_get(event, '$', 'int') > 0"
    assert "found none" in run("export", "t", "o.csv", *query, fails=True)
    said = run("export", "t", "o.csv", fails=True)
    assert re.search("'event' of type .*: CSV has no such values; choose .*--column", said)
    assert sorted(os.listdir()) == ["r.parquet", "t"]


def test_json_lines_have_variants_as_json(run: Any) -> None:
    texts = ['{"a":[1.5,"x"]}', None, '"2"']
    Table.create("t", pa.table({"event": variant.from_json(texts)}))
    run("export", "t", "o.jsonl")
    with open("o.jsonl") as file:
        assert [json.loads(line)["event"] for line in file] == [{"a": [1.5, "x"]}, None, "2"]
    assert json.loads(run("scan", "t", "--json"))[0] == {"event": {"a": [1.5, "x"]}}


def write(path: str, *ids: int) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "kind": ["x"] * len(ids)})
    pyarrow.parquet.write_table(rows, path)


def ids() -> list[int]:
    return sorted(Table.open("t").to_arrow()["id"].to_pylist())


def test_a_second_import_takes_new_files_alone(run: Any) -> None:
    """Relative and absolute names of a file are one; what `create` read is remembered, too."""
    write("in/1.parquet", 1)
    run("create", "t", "in")
    write("in/2.parquet", 2, 3)
    assert "3 rows, 1 new file" in run("import", "t", "in")
    before = Table.open("t").snapshot.id
    assert "3 rows, 0 new files" in run("import", "t", os.path.abspath("in/*.parquet"))
    assert Table.open("t").snapshot.id == before
    Table.open("t").append({"id": [9], "kind": ["by hand"]})
    write("in/4.parquet", 4)
    run("import", "t", "./in/")
    assert ids() == [1, 2, 3, 4, 9]
    run("import", "t", "in/4.parquet", "--again")
    assert ids() == [1, 2, 3, 4, 4, 9]
    assert "0 new files" in run("import", "t", "in")


def test_a_file_that_has_changed_under_its_name_is_left_out_and_told(run: Any) -> None:
    write("in/1.parquet", 1)
    run("create", "t", "in")
    write("in/1.parquet", 1, 7, 8)
    write("in/2.parquet", 2)
    said = run("import", "t", "in", fails=True)
    assert "2 rows, 1 new file" in said
    assert f"{os.path.abspath('in/1.parquet')}: has changed since it was imported" in said
    assert ids() == [1, 2]
    told = json.loads(run("import", "t", "in", "--json", fails=True))
    assert (told["files"], told["changed"]) == (0, [os.path.abspath("in/1.parquet")])
    run("import", "t", "in/1.parquet", "--again")
    assert ids() == [1, 1, 2, 7, 8]
    assert "0 new files" in run("import", "t", "in")


def test_an_import_that_fails_remembers_nothing(run: Any) -> None:
    """Rows and what is remembered are one commit: a file of other columns stops both."""
    run("create", "t", "r.parquet")
    write("in/1.parquet", 4)
    pyarrow.parquet.write_table(pa.table({"id": ["text"]}), "in/2.parquet")
    run("import", "t", "in", fails=True)
    assert ids() == [1, 2, 3]
    write("in/2.parquet", 5)
    assert "2 new files" in run("import", "t", "in")
    assert ids() == [1, 2, 3, 4, 5]


def test_imports_at_once_append_the_same_files_once(run: Any, monkeypatch: Any) -> None:
    """The second import has looked at the history before the first one committed."""
    run("create", "t", "r.parquet")
    write("in/1.parquet", 4)
    stale = Table.open("t")
    run("import", "t", "in")
    monkeypatch.setattr("fermion_table.cli.transfer.open_table", lambda arguments: stale)
    run("import", "t", "in")
    assert ids() == [1, 2, 3, 4]
    write("in/2.parquet", 5)
    older = Table.open("t", version=1)
    monkeypatch.setattr("fermion_table.cli.transfer.open_table", lambda arguments: Table.open("t"))
    assert ImportedFiles.of(older).is_new(os.path.abspath("in/1.parquet"))
    run("import", "t", "in/2.parquet")
    assert not ImportedFiles.of(Table.open("t")).is_new(os.path.abspath("in/1.parquet"))


def test_imports_at_once_whose_files_overlap_append_each_file_once(
    run: Any, monkeypatch: Any
) -> None:
    """Another import reads one of the files after this one has looked, or as it writes."""
    run("create", "t", "r.parquet")
    write("in/1.parquet", 4)
    write("in/2.parquet", 5)
    stale = Table.open("t")
    run("import", "t", "in/1.parquet")
    with monkeypatch.context() as patched:
        patched.setattr("fermion_table.cli.transfer.open_table", lambda arguments: stale)
        assert "1 new file" in run("import", "t", "in")
    assert ids() == [1, 2, 3, 4, 5]
    write("in/3.parquet", 6)
    write("in/4.parquet", 7)
    reader = InputFiles.reader

    def another_first(self: InputFiles, files: list[str] | None = None) -> pa.RecordBatchReader:
        monkeypatch.setattr(InputFiles, "reader", reader)
        Table.open("t").append({"id": [8], "kind": ["by hand"]})
        run("import", "t", "in/3.parquet")
        return reader(self, files)

    monkeypatch.setattr(InputFiles, "reader", another_first)
    assert "1 new file" in run("import", "t", "in")
    assert ids() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "0 new files" in run("import", "t", "in")
    write("in/5.parquet", 9)
    monkeypatch.setattr(InputFiles, "reader", another_first)
    run("import", "t", "in/5.parquet", "--again")
    assert ids() == [1, 2, 3, 4, 5, 6, 7, 8, 8, 9]
    assert "0 new files" in run("import", "t", "in")


def test_a_table_that_is_made_from_files_does_not_read_those_that_an_import_has_read(
    run: Any, monkeypatch: Any
) -> None:
    """A new table is visible a moment before its first rows."""
    created = staged.create_defined

    def and_imports(*arguments: Any, **options: Any) -> Any:
        snapshot = created(*arguments, **options)
        run("import", "t", "r.parquet")
        return snapshot

    monkeypatch.setattr(staged, "create_defined", and_imports)
    assert "another import has read" in run("create", "t", "r.parquet", fails=True)
    assert ids() == [1, 2, 3]


@pytest.mark.long
def test_processes_that_import_the_same_folder_append_each_file_once(run: Any) -> None:
    """Each has another part of the files, some of which all have."""
    run("create", "t", "r.parquet")
    for number in range(12):
        write(f"in/{number:02}.parquet", 10 + number)
    patterns = ("in", "in/0*.parquet", "in/1*.parquet", "in/*[13579].parquet")
    commands = [
        [sys.executable, "-m", "fermion", "table", "import", "t", each] for each in patterns
    ]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert ids() == [1, 2, 3, *range(10, 22)]


def test_imports_that_have_expired_are_not_repeated(run: Any) -> None:
    write("in/1.parquet", 4)
    run("create", "t", "in")
    table = Table.open("t")
    for _ in range(3):
        table.append({"id": [9], "kind": ["x"]})
    table.expire_snapshots(retain_last=1, older_than=datetime.timedelta(0))
    assert "which files were imported is not known" in run("import", "t", "in", fails=True)
    assert ids() == [4, 9, 9, 9]
    run("import", "t", "in", "--again")
    assert "0 new files" in run("import", "t", "in")


def test_files_of_a_storage_are_imported(run: Any) -> None:
    """Through fsspec: a table is made of, and takes, files by their URLs, once."""
    memory = fsspec.filesystem("memory")
    with memory.open("/landing/day=1/a.csv", "wb") as file:
        file.write(b"id,kind\n1,x\n")
    run("create", "t", "memory://landing")
    with memory.open("/landing/day=2/b.csv", "wb") as file:
        file.write(b"id,kind\n2,y\n")
    assert "1 new file" in run("import", "t", "memory://landing")
    assert "0 new files" in run("import", "t", "memory://landing/*/*.csv")
    assert Table.open("t").to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "kind": "x", "day": 1},
        {"id": 2, "kind": "y", "day": 2},
    ]
    Table.open("t").append("memory://landing/day=1")
    assert ids() == [1, 1, 2]
    assert "expected a file, a directory" in run("import", "t", "memory://none/*.csv", fails=True)
    assert "Protocol not known" in run("import", "t", "nosuch://x/y.csv", fails=True)


@pytest.mark.parametrize("is_nested", [False, True])
def test_bug_an_export_of_variant_columns_ended_the_process(run: Any, is_nested: bool) -> None:
    """In a process of its own, which a crash would end."""
    event = variant.from_json(['{"a":1}', None])
    column = pa.StructArray.from_arrays([event], names=["x"]) if is_nested else event
    Table.create("events", pa.table({"id": [1, 2], "event": column}))
    program = "import sys; from fermion.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "table", "export", "events", "e.parquet"]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert sorted(path.name for path in Path().glob("*e.parquet*")) == ["e.parquet"]
    found = fermion.read_table(fermion.from_parquet("e.parquet", "e.fermion").path)["event"]
    if is_nested:
        values = found.combine_chunks().field("x")
        found = pa.ExtensionArray.from_storage(event.type, values.cast(event.type.storage_type))
    assert variant.to_json(found).to_pylist() == ['{"a":1}', None]
