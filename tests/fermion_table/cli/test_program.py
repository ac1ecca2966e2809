"""The whole command line: help for every option, storage options, completion, queries."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
import fermion_table.cli
from fermion.cli import main
from fermion.cli.program import _commands, _parser
from fermion_table import Table
from fermion_table.cli.program import COMMANDS

NOT_ABOUT_STORAGE = {"completion"}


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command without commands of its own, with the words that lead to it."""
    nested = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not nested:
        yield path, parser
    for each in nested:
        for name, child in each.choices.items():
            yield from commands(child, f"{path} {name}".strip())


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Any:
    def runs(*arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        assert main([str(each) for each in arguments]) == status
        captured = capsys.readouterr()
        return captured.out + captured.err

    return runs


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A directory with a table and a file."""
    rows = pa.table({"id": [1, 2, 3], "kind": ["a", "b", "b"]})
    Table.create(tmp_path / "events", rows, durability="fast")
    fermion.write_table(rows, tmp_path / "more.fermion")
    return tmp_path


def test_every_option_has_help_and_every_command_takes_storage_options():
    """Of all packages, by the program's own parser."""
    found = dict(commands(_parser(_commands(None)[0])))
    assert {"inspect", "query", "table repair", "catalog repair"} <= found.keys()
    silent = [
        f"{path} {action.dest}"
        for path, parser in found.items()
        for action in parser._actions
        if not action.help
    ]
    assert silent == []
    without = {
        path for path, parser in found.items() if "--storage-option" not in parser.format_help()
    }
    assert without == NOT_ABOUT_STORAGE


def test_storage_options_reach_the_storage_as_text_or_json(ran, made, monkeypatch):
    """What `Table.open` and `fermion.open` are given; wrong ones are wrong usage."""
    given: list[Any] = []
    real = Table.open

    def opened(path: Any, *, storage_options: Any = None, **named: Any) -> Table:
        given.append(storage_options)
        return real(path, **named)

    monkeypatch.setattr(Table, "open", opened)
    options = ["--storage-option", "key=5=6", "--storage-option", 'client:={"a": [true]}']
    ran("table", "log", made / "events", *options)
    assert given == [{"key": "5=6", "client": {"a": [True]}}]
    assert "expected KEY=TEXT" in ran(
        "table", "log", made / "events", "--storage-option", "key", status=2
    )
    assert "expected JSON" in ran(
        "head", made / "more.fermion", "--storage-option", "key:={", status=2
    )
    monkeypatch.setattr("fermion.cli.head.open_file", lambda path, **named: opened_file(named))

    def opened_file(named: Any) -> Any:
        given.append(named["storage_options"])
        return fermion.open(made / "more.fermion")

    ran("head", made / "more.fermion", "--storage-option", "key=1")
    ran("head", made / "more.fermion")
    assert given[1:] == [{"key": "1"}, None]


def test_a_query_reads_tables_and_files_by_name(ran, made):
    """Names are given, or those of the files; both sides of a join are pushed down."""
    sql = "SELECT kind, max(o.id) AS last FROM events JOIN other o USING (id, kind) GROUP BY 1"
    sources = [made / "events", f"other={made / 'more.fermion'}"]
    answer = ran("query", f"{sql} ORDER BY 1", *sources, "--json")
    assert json.loads(answer) == [{"kind": "a", "last": 1}, {"kind": "b", "last": 3}]
    counted = ran("query", "SELECT count(*) AS n FROM more WHERE kind = 'b'", made / "more.fermion")
    assert counted.split() == ["n", "2"]
    assert json.loads(
        ran("query", "SELECT count(*) AS n FROM more", made / "more.fermion", "--json")
    ) == [{"n": 3}]
    assert "there may be more rows" in ran("query", "FROM events", made / "events", "-n", 2)
    assert ran("query", "SELEC 1", status=2).startswith("fermion: query: Parser Error")
    assert "no table" in ran("query", "FROM t", made / "t", status=1).lower()


def test_a_query_that_names_a_word_of_sql_says_how_to_quote_it(ran, tmp_path):
    Table.create(tmp_path / "t", {"at": [1, 5], "order": [2, 3], "id": [1, 2]})
    for query in ("SELECT at, order FROM t", 'SELECT max(at), "order" FROM t', "SELECT at FROM t"):
        told = ran("query", query, tmp_path / "t", status=2)
        assert 'go in double quotes: write "at"' in told.replace("\n", " ")
        assert ('"order"' in told.partition("write")[2]) == ("at, order" in query)
    assert "double quotes" not in ran("query", "SELECT id id id FROM t", tmp_path / "t", status=2)
    assert "5" in ran("query", 'SELECT max("at") FROM t', tmp_path / "t")


def test_a_query_writes_no_file_and_reads_none_that_is_not_named(ran, made, tmp_path):
    target = tmp_path / "out.csv"
    pa_csv = made / "rows.csv"
    pa_csv.write_text("a\n1\n")
    for statement in (
        f"COPY (SELECT 1 AS a) TO '{target}'",
        f"FROM read_csv('{pa_csv}')",
        f"ATTACH '{target}'",
        "SET enable_external_access = true",
    ):
        assert "fermion: query:" in ran("query", statement, made / "events", status=2)
    assert not target.exists()


def test_a_closed_standard_output_is_no_traceback(made):
    command = f"{sys.executable} -c 'from fermion.cli import main; import sys; sys.exit(main())'"
    done = subprocess.run(
        ["sh", "-c", f"{command} inspect {made / 'more.fermion'} >&-"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "fermion: standard output is closed\n"
    assert done.returncode == 1


def test_bash_completes_commands_options_and_values(ran, tmp_path):
    """With bash itself; what follows are names of files, which bash completes."""
    script = tmp_path / "completion"
    script.write_text(ran("completion", "bash"))
    assert "bashcompinit" in ran("completion", "zsh").splitlines()[0]

    def completed(*words: str) -> list[str]:
        program = (
            f"source {script}; COMP_WORDS=(fermion {' '.join(map(repr, words))}); "
            f"COMP_CWORD={len(words)}; _fermion; echo ${{COMPREPLY[@]}}"
        )
        done = subprocess.run(
            ["bash", "-c", program], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.split()

    assert completed("in") == ["inspect"]
    assert completed("table", "re") == ["restore", "remove-orphans", "repair"]
    assert completed("table", "scan", "some/table", "--c") == ["--column", "--count"]
    assert completed("convert", "a", "b", "--profile", "com") == ["compact"]
    assert completed("table", "scan", "some/ta") == []
    assert completed("table", "scan", "t", "--filter", "in") == []


def test_the_script_for_fish_has_every_option_and_no_open_quote(ran):
    """One `complete` a line, of words as fish quotes them; blocks that begin also end."""
    script = ran("completion", "fish")
    word = r"(?:'(?:[^'\\]|\\['\\])*'|[\w-]+)"
    first, *lines = [line for line in script.splitlines() if line.startswith("complete")]
    assert first == "complete -c fermion -e"
    assert [line for line in lines if not re.fullmatch(rf"complete(?: {word})+", line)] == []
    starts = [line.split()[0] for line in script.splitlines()]
    opened = sum(starts.count(each) for each in ("function", "for", "switch"))
    assert opened == starts.count("end") == 3
    for command, parser in commands(_parser(_commands(None)[0])):
        own = [line for line in lines if f"\\' {command}\\'" in line]
        for action in parser._actions:
            for option in action.option_strings:
                kind = "-l" if option.startswith("--") else "-s"
                assert any(f" {kind} {option.lstrip('-')} " in line for line in own), option


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
def test_fish_completes_commands_options_and_values(ran, tmp_path):
    """With fish itself, in an empty directory; after names of options come those of files."""
    script = tmp_path / "fermion.fish"
    script.write_text(ran("completion", "fish"))

    def completed(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "-N", "-c", f"source {script}; complete -C {line!r}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return sorted(each.split("\t")[0] for each in done.stdout.splitlines())

    assert completed("fermion in") == ["inspect"]
    assert completed("fermion table re") == ["remove-orphans", "repair", "restore"]
    assert completed("fermion table scan some/table --c") == ["--column", "--count"]
    assert completed("fermion convert a b --profile com") == ["compact"]
    assert completed("fermion completion f") == ["fermion.fish", "fish"]
    assert completed("fermion table scan some/ta") == []


def test_the_commands_are_those_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    expected = "create import export import-paimon copy log show files schema scan diff tag branch"
    expected += " consumer index restore mirror compact expire remove-orphans verify repair"
    assert list(COMMANDS) == expected.split()
    assert main(["table", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"\n    {name}\s", text) for name in COMMANDS)
    assert main(["--help"]) == 0
    assert fermion_table.cli.HELP in capsys.readouterr().out


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
