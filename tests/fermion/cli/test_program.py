"""The command line: what it prints, in which words, how much of it, and with which status."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion.cli import main
from fermion.cli.console import Console
from tests.kit.command_line import complaint, output, printed_json

COMMANDS = ["inspect", "schema", "head", "stats", "verify"]


@pytest.mark.parametrize("command", ["inspect", "schema", "stats", "head"])
def test_thousands_of_columns_do_not_flood_the_screen(command, capsys, wide):
    lines = output(capsys, command, wide).splitlines()
    assert len(lines) < 120
    assert max(map(len, lines)) <= 140
    assert "... and" in lines[-1]
    assert "more" in lines[-1]
    assert len(output(capsys, command, wide, "--all")) > 8 * 2_000


@pytest.mark.parametrize(("command", "key"), [("inspect", "columns"), ("stats", "columns")])
def test_json_has_all_columns(command, key, capsys, wide):
    assert len(printed_json(capsys, command, wide)[key]) == 2_000


WRONG_USAGES = [
    ([], "required: COMMAND"),
    (["look"], "invalid choice: 'look'"),
    (["inspect"], "required: FILE"),
    (["head", "x.fermion", "-n", "many"], "invalid int value: 'many'"),
    (["schema", "x.fermion", "--unknown"], "--unknown"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_USAGES)
def test_wrong_usage_is_status_two_and_one_line(arguments, message, capsys):
    assert message in complaint(capsys, *arguments, status=2)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_one_line_that_names_it(command, capsys, tmp_path):
    missing = tmp_path / "missing.fermion"
    line = complaint(capsys, command, missing, status=1)
    assert line == f"fermion: {missing}: No such file or directory"


@pytest.mark.parametrize("command", ["inspect", "schema", "head", "stats"])
def test_a_file_of_another_kind_is_one_line_that_names_it(command, capsys, tmp_path):
    path = tmp_path / "x.fermion"
    path.write_bytes(b"PAR1" * 100)
    line = complaint(capsys, command, path, status=1)
    assert str(path) in line
    assert "expected magic" in line


@pytest.mark.parametrize("command", ["inspect", "head", "stats"])
def test_an_unknown_column_is_wrong_usage_that_names_the_closest(command, capsys, sample):
    line = complaint(capsys, command, sample, "--column", "prise", status=2)
    assert "'prise'; closest matches: 'price'" in line


def test_an_error_that_nobody_thought_of_is_one_line_too(capsys, sample, monkeypatch):
    """With a variable set, the traceback comes instead."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("fermion.cli.schema.open_file", fail)
    line = complaint(capsys, "schema", sample, status=1)
    assert line.startswith("fermion: RuntimeError: first second (FERMION_TRACEBACK=1 ")
    monkeypatch.setenv("FERMION_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main(["schema", str(sample)])


def test_an_interruption_has_its_own_status(sample, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fermion.cli.schema.open_file", interrupt)
    assert main(["schema", str(sample)]) == 130


def test_version_and_help_end_with_status_zero(capsys):
    assert output(capsys, "--version") == f"fermion {fermion.__version__}\n"
    text = output(capsys, "--help")
    assert all(f"    {command} " in text for command in [*COMMANDS, "convert"])
    assert "--profile" in output(capsys, "convert", "--help")


def test_names_and_values_cannot_drive_the_terminal(capsys, tmp_path):
    """Escape sequences, line ends and carriage returns of a file come out as escapes."""
    evil = "\x1b[2J\r\nx\u202e"
    path = tmp_path / "x.fermion"
    schema = pa.schema([(evil, pa.string())], metadata={evil: evil})
    fermion.write_table(pa.table([pa.array([evil])], schema=schema), path)
    for command in COMMANDS:
        text = output(capsys, command, path)
        assert not set("\x1b\r\u202e") & set(text)
    assert "\\x1b[2J\\r\\nx\\u202e" in output(capsys, "head", path)


def test_output_that_cannot_say_a_letter_escapes_it(sample, tmp_path, monkeypatch):
    path = tmp_path / "x.fermion"
    fermion.write_table(pa.table({"größe": ["日本"]}), path)
    for command, expected in (("head", "\\u65e5\\u672c"), ("schema", "gr\\xf6\\xdfe")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([command, str(path)]) == 0
        assert expected in stream.buffer.getvalue().decode()
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["head", str(path), "--json"]) == 0
    assert json.loads(stream.buffer.getvalue()) == [{"größe": "日本"}]


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("with_rich", [True, False])
def test_progress_is_shown_on_a_terminal_only(with_rich, capsys, sample, tmp_path, monkeypatch):
    if not with_rich:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    output(capsys, "convert", sample, tmp_path / "x.parquet")  # its errors have to be empty
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["convert", str(sample), str(tmp_path / "x.parquet")]) == 0
    assert "converting" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


class Greeting:
    """A command of another package."""

    HELP = "greet somebody"

    def configure(self, parser: Any) -> None:
        parser.add_argument("name")

    def run(self, arguments: Any, console: Console) -> int:
        console.print(f"hello {arguments.name}")
        return 0


def test_another_package_adds_a_command_by_an_entry_point(capsys, monkeypatch):
    """One that cannot be loaded says so when it is called, and disturbs no other."""
    loaded: list[str] = []

    class Fake(EntryPoint):
        def load(self) -> Any:
            loaded.append(self.name)
            if self.name == "broken":
                raise ImportError("no such thing")
            return Greeting()

    points = [Fake(name, "somewhere:command", "fermion.commands") for name in ("greet", "broken")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    assert output(capsys, "greet", "you") == "hello you\n"
    assert "greet somebody" in output(capsys, "--help")
    line = complaint(capsys, "broken", "--anything", status=1)
    assert "broken: somewhere:command cannot be loaded: ImportError('no such thing')" in line
    loaded.clear()
    complaint(capsys, "schema", "missing", status=1)
    assert loaded == []


def test_a_reader_that_stops_early_is_no_error(wide, project_environment):
    """The program runs as a process of its own; its output goes into a pipe closed at once."""
    command = [sys.executable, "-m", "fermion", "inspect", str(wide), "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project_environment
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() in (0, 1)
    assert errors == b""
