"""`fermion convert`: to Parquet and from it, by the names of the files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion.cli import main
from fermion.layout import EDITIONS
from fermion.writing import file as file_writer
from tests.kit.command_line import complaint, output, printed_json

ROWS = 3_000


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
