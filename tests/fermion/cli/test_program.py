"""The command line: what it prints, in which words, how much of it, and with which status."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion.cli import main
from fermion.cli.console import Console
from fermion.layout import EDITIONS
from fermion.writing import file as file_writer

ROWS = 3_000
COMMANDS = ["inspect", "schema", "head", "stats", "verify"]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "sample.fermion"
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "id": numbers,
            "price": pa.array([None if i % 3 == 0 else i / 4 for i in range(ROWS)]),
            "name": pa.array([f"name {i % 20}" for i in range(ROWS)]),
            "s": pa.array([{"x": i, "tags": ["a"] * (i % 3)} for i in range(ROWS)]),
            "nothing": pa.nulls(ROWS, pa.int32()),
        }
    ).replace_schema_metadata({"origin": "here"})
    fields = [
        table.schema.field(0).with_metadata({"PARQUET:field_id": "7"}),
        *list(table.schema)[1:],
    ]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    options = fermion.WriteOptions(stripe_rows=2_000, page_bytes=4_096, bloom_filters=["name"])
    entries = {"note": "n" * 300}
    with fermion.Writer(path, schema, options=options, key_value_metadata=entries) as writer:
        writer.write(table.cast(schema))
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "wide.fermion"
    fermion.write_table({f"c{i}": [i] for i in range(2_000)}, path)
    return path


@pytest.fixture
def damaged(sample: Path, tmp_path: Path) -> Path:
    """The sample with one byte of its first page changed."""
    data = bytearray(sample.read_bytes())
    data[40] ^= 1
    path = tmp_path / "damaged.fermion"
    path.write_bytes(data)
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    """What a command prints; it has to end with this status and complain of nothing."""
    assert main([str(each) for each in arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> Any:
    return json.loads(output(capsys, *arguments, "--json", status=status))


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object, status: int) -> str:
    """The one line on standard error with which a command fails."""
    assert main([str(each) for each in arguments]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("fermion")
    return line


def test_inspect_draws_the_file_as_a_tree(capsys, sample):
    lines = output(capsys, "inspect", sample).splitlines()
    assert lines[0].startswith(f"{sample}: 3,000 rows, 5 columns, 2 stripes, ")
    assert lines[1].startswith("  version 1.1, crc32c checksums, created by fermion ")
    assert lines[2].startswith("  data ")
    assert lines[3] == "stripes"
    assert lines[4].startswith("  0: 2,000 rows from row 0, ")
    assert lines[5].startswith("  1: 1,000 rows from row 2,000, ")
    columns = [line.strip().partition(":")[0] for line in lines[7:] if line[2] != " "]
    assert columns == ["id", "price", "name", "s", "nothing"]
    by_name = dict(zip(columns, (line for line in lines[7:] if line[2] != " "), strict=True))
    assert by_name["price"].endswith("1,000 nulls")
    assert "times smaller than in Arrow" in by_name["id"]
    assert by_name["nothing"] == "  nothing: int32, 0 bytes, 3,000 nulls, no metadata block"
    streams = [line.strip().partition(":")[0] for line in lines[7:] if line[:5] == "    " + line[4]]
    assert {"validity", "data", "x data", "tags offsets", "tags.item data"} <= set(streams)


def test_inspect_of_one_column_with_pages_shows_their_trees(capsys, sample):
    text = output(capsys, "inspect", sample, "--column", "name", "--pages")
    with fermion.open(sample) as file:
        pages = [page for chunk in file.column("name").streams[1].chunks for page in chunk.pages]
    assert text.count(" slots, ") + text.count("dictionary values, ") == len(pages)
    assert "name 1" not in text
    assert "  price" not in text
    assert all(f"at {page.offset:,}, " in text for page in pages)


@pytest.mark.parametrize(
    ("positions", "said"),
    [(None, "1.1, crc32c checksums, batch mode, "), ([0, 4], "1.2, crc32c checksums, batch mode ")],
)
def test_inspect_says_whether_rows_of_batches_have_stored_positions(
    capsys, tmp_path, positions, said
):
    path = tmp_path / "batches.fermion"
    with fermion.Writer(path, pa.schema([("a", pa.int64())])) as writer:
        writer.append_batch(7, {"a": [1, 2]}, positions=positions)
    text = output(capsys, "inspect", path)
    assert f"\n  version {said}" in text
    assert ("batch mode with positions, created by" in text) == (positions is not None)


def test_inspect_says_what_rows_are_sorted_by(capsys, tmp_path):
    path = tmp_path / "sorted.fermion"
    keys = [fermion.SortKey("b", descending=True, nulls_first=True), "a"]
    fermion.write_table(pa.table({"a": [1, 2], "b": [None, 3]}), path, sorted_by=keys)
    assert "\n  sorted by b descending, nulls first, a\n" in output(capsys, "inspect", path)
    assert printed_json(capsys, "inspect", path)["sort_order"] == [
        {"name": "b", "descending": True, "nulls_first": True},
        {"name": "a", "descending": False, "nulls_first": False},
    ]


def test_inspect_says_whether_columns_were_changed(capsys, tmp_path):
    path = tmp_path / "changed.fermion"
    fermion.write_table(pa.table({"a": [1, 2], "b": [None, 3]}), path)
    assert "columns changed" not in output(capsys, "inspect", path)
    fermion.drop_columns(path, ["a"])
    assert ", columns changed, created by" in output(capsys, "inspect", path)


def test_inspect_says_the_same_in_json(capsys, sample):
    found = printed_json(capsys, "inspect", sample, "--pages")
    assert found["size"] == sample.stat().st_size
    assert found["settings"]["batch"] is False
    assert [stripe["rows"] for stripe in found["stripes"]] == [2_000, 1_000]
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["price"]["null_count"] == 1_000
    assert columns["id"]["type"] == "int64"
    stream = columns["id"]["streams"][1]
    assert (stream["path"], stream["type"]) == (["id"], "data")
    pages = [page for chunk in stream["chunks"] for page in chunk["pages"]]
    assert sum(page["slots"] for page in pages) == ROWS
    assert sum(page["length"] for page in pages) == stream["stored_bytes"]


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


def test_inspect_shows_as_many_as_asked(capsys, wide):
    lines = output(capsys, "inspect", wide, "--top", 3).splitlines()
    assert sum(line.startswith("  c") for line in lines) == 3
    assert lines[-1].startswith("  ... and 1,997 more")
    assert printed_json(capsys, "inspect", wide, "--top", 3)["columns_left_out"] == 1_997


def test_head_of_a_wide_file_reads_only_what_it_shows(capsys, wide, monkeypatch):
    """Thirty of two thousand columns, at most."""
    read: list[Any] = []
    original = fermion.FermionFile.read

    def spy(self: fermion.FermionFile, columns: Any = None, **options: Any) -> pa.Table:
        read.append(columns)
        return original(self, columns, **options)

    monkeypatch.setattr(fermion.FermionFile, "read", spy)
    output(capsys, "head", wide)
    assert len(read[0]) <= 30


def test_schema_shows_names_types_ids_and_metadata(capsys, sample):
    lines = output(capsys, "schema", sample).splitlines()
    assert lines[:3] == ["id: int64, field id 7", "price: double", "name: string"]
    assert lines[5:7] == ["schema metadata:", "  origin: here"]
    assert lines[8] == f"  note: {'n' * 97}..."
    found = printed_json(capsys, "schema", sample)
    assert [column["name"] for column in found["columns"]] == [
        "id",
        "price",
        "name",
        "s",
        "nothing",
    ]
    assert found["columns"][0]["field_id"] == 7
    assert [child["name"] for child in found["columns"][3]["children"]] == ["x", "tags"]
    assert found["metadata"] == {"origin": "here"}
    assert found["key_value_metadata"] == {"note": "n" * 300}


def test_head_shows_the_first_rows(capsys, sample):
    lines = output(capsys, "head", sample, "-n", 2, "--column", "id", "--column", "s").splitlines()
    assert lines == [
        "id  s",
        " 0  {x: 0, tags: []}",
        " 1  {x: 1, tags: [a]}",
        "... and 2,998 more rows",
    ]
    rows = printed_json(capsys, "head", sample, "-n", 2)
    assert rows[1] == {
        "id": 1,
        "price": 0.25,
        "name": "name 1",
        "s": {"x": 1, "tags": ["a"]},
        "nothing": None,
    }


def test_head_of_more_rows_than_there_are_shows_all(capsys, sample):
    assert len(printed_json(capsys, "head", sample, "-n", 10**9, "--column", "id")) == ROWS
    assert printed_json(capsys, "head", sample, "-n", 0) == []
    assert printed_json(capsys, "head", sample, "-n", -5) == []


def test_columns_with_one_name_all_appear(capsys, tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    fermion.write_table(table, tmp_path / "x.fermion")
    assert printed_json(capsys, "head", tmp_path / "x.fermion") == [{"a": 1, "a#1": 2}]
    assert output(capsys, "head", tmp_path / "x.fermion").splitlines() == ["a  a", "1  2"]


def test_stats_shows_bounds_and_counts_without_reading_values(capsys, sample):
    lines = output(capsys, "stats", sample).splitlines()
    cells = {line.split()[0]: line.split() for line in lines[2:]}
    assert cells["id"] == ["id", "int64", "0", "0", "2999"]
    assert cells["price"] == ["price", "double", "1,000", "0.25", "749.75"]
    assert cells["name"][-2:] == ["bloom", "filter"]
    assert cells["s.tags.item"][:3] == ["s.tags.item", "string", "0"]
    assert cells["nothing"] == ["nothing", "int32", "3,000", "-", "-"]
    leaves = printed_json(capsys, "stats", sample, "--column", "price")["columns"]
    assert [(leaf["path"], leaf["min"], leaf["min_exact"]) for leaf in leaves] == [
        (["price"], 0.25, True)
    ]


def test_verify_is_silent_about_nothing(capsys, sample, damaged):
    assert ": OK: 5 columns, " in output(capsys, "verify", sample)
    text = output(capsys, "verify", damaged, status=1)
    assert text.splitlines()[0] == f"{damaged}: 1 problem"
    assert "column 'id'" in text or "checksum" in text
    found = printed_json(capsys, "verify", damaged, status=1)
    assert (found["ok"], len(found["problems"])) == (False, 1)


def test_verify_of_what_is_no_fermion_file_is_a_problem_found(capsys, tmp_path):
    path = tmp_path / "x.fermion"
    path.write_bytes(b"something else" * 100)
    text = output(capsys, "verify", path, status=1)
    assert "expected magic" in text


def test_convert_takes_checksum_edition_and_reading_back(capsys, sample, tmp_path, monkeypatch):
    """`inspect` tells the checksum; the pages, what encodings they have."""
    parquet, target, asked = tmp_path / "x.parquet", tmp_path / "y.fermion", []
    verified = file_writer.verify_written
    monkeypatch.setattr(
        file_writer, "verify_written", lambda source: (asked.append(source.name), verified(source))
    )
    output(capsys, "convert", sample, parquet)
    options = ("--checksum", "xxh3", "--edition", "core-2026", "--read-back")
    output(capsys, "convert", parquet, target, *options)
    assert asked == [str(target)]
    assert "xxh3 checksums" in output(capsys, "inspect", target)
    core = {each.name.lower() for each in EDITIONS["core-2026"]}
    with fermion.open(target) as file:
        assert file.verify().ok
        assert {each for name in file.schema.names for each in file.column(name).encodings} <= core


@pytest.mark.parametrize("suffix", [".parquet", ".PARQ", ".pq"])
def test_convert_goes_both_ways_by_suffix(suffix, capsys, sample, tmp_path):
    parquet, back = tmp_path / f"x{suffix}", tmp_path / "y.fermion"
    text = output(capsys, "convert", sample, parquet, "--compression", "zstd")
    assert text.startswith(f"{parquet}: 3,000 rows, 5 columns, 1 row group, ")
    found = printed_json(
        capsys, "convert", parquet, back, "--profile", "compact", "--stripe-rows", 1_000
    )
    assert found["size"] == back.stat().st_size
    assert (found["num_rows"], found["num_stripes"]) == (ROWS, 3)
    assert pq.ParquetFile(parquet).metadata.row_group(0).column(0).compression == "ZSTD"
    assert fermion.read_table(back).equals(fermion.read_table(sample))


def test_what_parquet_lacks_is_a_warning_on_one_line(capsys, tmp_path):
    fermion.write_table(pa.table({"t": pa.array([1], pa.time32("s"))}), tmp_path / "x.fermion")
    assert main(["convert", str(tmp_path / "x.fermion"), str(tmp_path / "x.parquet")]) == 0
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("fermion: warning: ")
    assert "'t' (time32[s]) as time32[ms]" in line


WRONG_CONVERSIONS = [
    (["a.parquet", "b.parquet"], "found two"),
    (["a.fermion", "b.fermion"], "found none"),
    (["a.parquet", "b.fermion", "--compression", "zstd"], "--compression is for writing Parquet"),
    (["a.fermion", "b.parquet", "--profile", "fast"], "--profile is for writing Fermion"),
    (["a.fermion", "b.parquet", "--read-back"], "--read-back is for writing Fermion"),
    (["a.parquet", "b.fermion", "--edition", "1999"], "invalid choice: '1999'"),
    (["a.parquet", "b.fermion", "--stripe-rows", "0"], "stripe_rows=0"),
    (["a.parquet", "b.fermion", "--stripe-bytes", "much"], "'much' is not a size"),
    (["a.parquet", "b.fermion", "--profile", "best"], "invalid choice: 'best'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_CONVERSIONS)
def test_a_conversion_that_makes_no_sense_is_wrong_usage(arguments, message, capsys):
    assert message in complaint(capsys, "convert", *arguments, status=2)


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
