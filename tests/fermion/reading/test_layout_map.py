"""The map of a file: every byte and every page is in it once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.reading import layout_map as module
from fermion.reading.layout_map import layout_map
from tests.kit.files.file_anatomy import repair

ROWS = 3_000


def sample(rows: int = ROWS) -> pa.Table:
    """Columns of several shapes and encodings."""
    return pa.table(
        {
            "id": np.arange(rows),
            "name": [f"name {i % 20}" for i in range(rows)],
            "price": pa.array([None if i % 3 == 0 else i / 4 for i in range(rows)], pa.float64()),
            "s": pa.array(
                [{"x": i, "tags": ["a"] * (i % 3)} for i in range(rows)],
                pa.struct({"x": pa.int64(), "tags": pa.list_(pa.string())}),
            ),
            "nothing": pa.nulls(rows, pa.int32()),
        }
    )


def written(path: Path, table: pa.Table, **options: Any) -> dict[str, Any]:
    fermion.write_table(table, path, **options)
    with fermion.open(path) as file:
        return layout_map(file.index)


def parts_of(found: dict[str, Any]) -> dict[str, int]:
    return dict(found["parts"])


def test_every_byte_and_every_page_is_in_the_map_once(tmp_path):
    """Beside what `column` says of each column and the size of the file; padding is small."""
    path = tmp_path / "a.fermion"
    found = written(
        path,
        sample(),
        stripe_rows=1_000,
        page_bytes=4_096,
        bloom_filters=["name"],
        global_dictionaries=["name"],
    )
    with fermion.open(path) as file:
        columns = [file.column(name) for name in file.schema.names]
    parts, cells, pages = parts_of(found), found["cells"], found["pages"]
    assert sum(parts.values()) == path.stat().st_size == found["file"]["size"]
    assert parts.get("padding", 0) < 128
    chunks = [
        sum(s.chunks[stripe].length for s in column.streams if s.chunks[stripe].pages)
        for column in columns
        for stripe in range(3)
    ]
    assert cells["bytes"] == chunks
    assert parts["pages"] == sum(chunks) == sum(pages["bytes"])
    listed = [
        (page.length, page.slots)
        for column in columns
        for stripe in range(3)
        for stream in column.streams
        for page in stream.chunks[stripe].pages
    ]
    assert list(zip(pages["bytes"], pages["slots"], strict=True)) == listed
    assert pages["count"] == len(listed) == sum(cells["pages"])
    assert found["columns"]["metadata_bytes"] == [column.cmb_length for column in columns]
    assert found["columns"]["dictionary_bytes"][1] == parts["shared dictionaries"] > 0
    assert found["columns"]["bloom_bytes"][1] == parts["Bloom filters"] > 0
    assert found["stripes"] == {"first_row": [0, 1_000, 2_000], "rows": [1_000] * 3}


def test_cells_say_encodings_nulls_and_bytes_in_arrow(tmp_path):
    """Of a stripe each; what has no pages says why."""
    found = written(tmp_path / "a.fermion", sample(), stripe_rows=1_500)
    cells = found["cells"]
    assert cells["nulls"] == [0, 0, 0, 0, 500, 500, 0, 0, 1_500, 1_500]
    assert cells["arrow_bytes"][:2] == [12_000, 12_000]
    labels = [found["encodings"][each] for each in cells["encoding"]]
    assert labels[-2:] == ["all null", "all null"]
    assert "all null" not in labels[:-2]
    assert [found["types"][each] for each in found["columns"]["type"]][:2] == ["int64", "string"]
    assert found["columns"]["min"] == ["0", "name 0", "0.25", "", ""]
    assert found["columns"]["max"] == ["2999", "name 9", "749.75", "", ""]


def test_whole_trees_of_encodings_are_listed_when_pages_are_read(tmp_path):
    """The root of each is what its header says."""
    path = tmp_path / "a.fermion"
    fermion.write_table(sample(), path)
    with fermion.open(path) as file:
        roots, trees = layout_map(file.index), layout_map(file.index, pages=True)
    assert trees["cells"] | {"encoding": 0} == roots["cells"] | {"encoding": 0}
    for root, tree in zip(roots["pages"]["encoding"], trees["pages"]["encoding"], strict=True):
        assert trees["encodings"][tree].startswith(roots["encodings"][root])
    assert any("(" in each for each in trees["encodings"])


def test_neighbours_make_groups_where_there_are_more_than_a_page_shows(tmp_path, monkeypatch):
    """Sums stay the same; the groups hold all columns and stripes, and every name can be found."""
    path = tmp_path / "a.fermion"
    table = pa.table({f"c{i}": np.arange(90) % (i + 1) for i in range(23)})
    single = written(path, table, stripe_rows=10)
    monkeypatch.setattr(module, "STRIPES_MAX", 4)
    monkeypatch.setattr(module, "CELLS_MAX", 20)
    with fermion.open(path) as file:
        grouped = layout_map(file.index)
    assert grouped["groups"] == {"columns": 4, "stripes": 3}
    assert grouped["stripes"] == {"first_row": [0, 30, 60], "rows": [30, 30, 30]}
    assert parts_of(grouped) == parts_of(single)
    for name in ("bytes", "nulls", "pages", "arrow_bytes"):
        assert len(grouped["cells"][name]) == 6 * 3
        assert sum(grouped["cells"][name]) == sum(single["cells"][name])
    assert grouped["names"] == single["names"]
    assert grouped["pages"] == {"count": single["pages"]["count"]}
    monkeypatch.setattr(module, "NAMES_MAX", 10)
    with fermion.open(path) as file:
        assert layout_map(file.index)["names"] == ["c0", "c4", "c8", "c12", "c16", "c20"]


def test_pages_are_only_counted_where_they_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PAGES_MAX", 3)
    assert written(tmp_path / "a.fermion", sample())["pages"].keys() == {"count"}


@pytest.mark.parametrize(
    "table",
    [sample(0), pa.table({}), pa.table({"a": pa.nulls(5)})],
    ids=["rows", "columns", "null"],
)
def test_a_file_with_nothing_in_it_has_a_map(tmp_path, table):
    """Its bytes are metadata."""
    found = written(tmp_path / "a.fermion", table)
    assert sum(parts_of(found).values()) == found["file"]["size"]
    assert "pages" not in parts_of(found)


def test_a_damaged_file_has_a_map_or_an_error_of_ours(tmp_path):
    """Bytes of its end are changed, and checksums put right where they can be."""
    path = tmp_path / "a.fermion"
    fermion.write_table(sample(600), path, stripe_rows=300, bloom_filters=["name"])
    whole, choose, outcomes = path.read_bytes(), random.Random(1), set()
    for _ in range(60):
        data = bytearray(whole)
        data[choose.randrange(len(data) // 4, len(data))] = choose.randrange(256)
        repair(data)
        path.write_bytes(data)
        try:
            with fermion.open(path) as file:
                layout_map(file.index, pages=True)
            outcomes.add("map")
        except fermion.FermionError:
            outcomes.add("error")
    assert outcomes == {"map", "error"}


def test_batches_and_replaced_metadata_are_parts_of_the_file(tmp_path):
    """A file in batch mode, and one whose columns were changed."""
    batches, changed = tmp_path / "batches.fermion", tmp_path / "changed.fermion"
    table = pa.table({"id": np.arange(500), "v": np.arange(500) / 3})
    with fermion.Writer(batches, table.schema) as writer:
        for batch_id in range(5):
            writer.append_batch(batch_id, table.slice(batch_id * 100, 100))
    fermion.write_table(table, changed)
    fermion.add_columns(changed, {"w": np.arange(500) * 7})
    fermion.drop_columns(changed, ["v"])
    for path, part in ((batches, "batches"), (changed, "padding and replaced metadata")):
        with fermion.open(path) as file:
            parts = parts_of(layout_map(file.index))
        assert sum(parts.values()) == path.stat().st_size
        assert parts[part] > 100
    assert parts_of(written(tmp_path / "c.fermion", table)).get("batches") is None


def test_positions_in_batches_are_part_of_the_batches(tmp_path):
    """Of a file whose positions take hundreds of bytes, which are no padding."""
    path = tmp_path / "batches.fermion"
    table = pa.table({"id": np.arange(500)})
    positions = np.sort(np.random.default_rng(1).choice(2**31 - 1, 500, replace=False))
    with fermion.Writer(path, table.schema) as writer:
        writer.append_batch(7, table, positions=positions)
    with fermion.open(path) as file:
        parts = parts_of(layout_map(file.index))
    assert parts["batches"] > 1_000
    assert parts.get("padding", 0) < 100
