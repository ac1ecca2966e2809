"""`fermion inspect`: a file as a tree and in JSON."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fermion
from tests.kit.command_line import output, printed_json

ROWS = 3_000


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


def test_inspect_shows_as_many_as_asked(capsys, wide):
    lines = output(capsys, "inspect", wide, "--top", 3).splitlines()
    assert sum(line.startswith("  c") for line in lines) == 3
    assert lines[-1].startswith("  ... and 1,997 more")
    assert printed_json(capsys, "inspect", wide, "--top", 3)["columns_left_out"] == 1_997
