"""Which rows of overlapping runs a scan shows, of all rows and of some, and what is read for it."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion_table import Table
from fermion_table.merging import primary_key
from fermion_table.planning.split import FileSplit
from fermion_table.trees.section_reader import SectionSplit
from fermion_table.trees.visible_rows import visible_rows
from tests.kit.tables.tree_rows import put

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
KEYS = 24
RUN = st.dictionaries(st.integers(0, KEYS - 1), st.sampled_from(["+I", "-D"]), min_size=1)


def table_of(path: str, runs: list[dict[int, str]], partition_by: list[str] | None) -> Table:
    """Return a table of runs from the oldest, which has two files, to the newest."""
    table = Table.create(
        path, SCHEMA, primary_key=["p", "k"], partition_by=partition_by, durability="fast"
    )
    for number, run in enumerate(runs):
        rows = [{"p": "a", "k": k, "v": number, "_kind": kind} for k, kind in sorted(run.items())]
        low, high = ([row for row in rows if (row["k"] < 9) == is_low] for is_low in (True, False))
        for part in (rows,) if number else (low, high):
            put(table, part, level=0 if number else 5)
    return table


def stored(split: FileSplit) -> list[tuple[int, int, int]]:
    """Return the key, the kind and the number of each row of a split."""
    rows = fermion.read_table(split.location)
    kinds = rows["_row_kind"].to_pylist() if "_row_kind" in rows.column_names else [0] * len(rows)
    listed = list(zip(rows["k"].to_pylist(), kinds, range(len(rows)), strict=True))
    return listed[slice(*split.row_bounds)]


@given(
    st.lists(RUN, min_size=2, max_size=4),
    st.sampled_from([None, (3, 20)]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=8)
def test_a_row_is_shown_unless_a_newer_run_has_its_key(runs, bounds, in_part, is_partitioned):
    """Compared with all rows of the files; parts of files stand for files with deleted rows."""
    runs[0] = dict.fromkeys({0, KEYS - 1, *runs[0]}, "+I")
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(f"{folder}/t", runs, ["p"] if is_partitioned else None)
        scan = table.scan(filter=f"k >= {bounds[0]} AND k < {bounds[1]}" if bounds else None)
        low, high = bounds or (0, KEYS)
        for split in scan.plan().splits:
            if not isinstance(split, SectionSplit):
                continue
            found = [
                [file.part(1, file.rows) if in_part and file.rows > 1 else file for file in run]
                for run in split.runs
            ]
            expected: dict[str, list[int]] = {}
            seen: set[int] = set()
            for run in found:
                rows = [
                    (file, *row) for file in run for row in stored(file) if low <= row[0] < high
                ]
                for file, key, kind, place in rows:
                    if key not in seen and kind == 0:
                        expected.setdefault(file.location, []).append(place)
                seen.update(key for _, key, _, _ in rows)
            shown = visible_rows(found, scan.reader)
            assert {file.location: rows.to_indices().tolist() for file, rows in shown} == expected


def test_keys_of_a_partition_are_compared_without_its_columns(tmp_path, monkeypatch):
    """The rest of such a key is a number here: no key is made a byte string to read the rows."""
    runs = [{1: "+I", 5: "+I", 9: "+I"}, {1: "-D", 5: "+I"}]
    table = table_of(f"{tmp_path}/t", runs, ["p"])
    monkeypatch.delattr(primary_key, "encode_keys")
    rows = table.scan(columns=["k", "v"]).to_arrow().sort_by("k")
    assert rows.to_pydict() == {"k": [5, 9], "v": [1, 0]}
    monkeypatch.undo()
    table.upsert(pa.table({"p": ["b", "a"], "k": [5, 5], "v": [7, 8]}))
    assert table.compact(full=True)
    assert [(row["p"], row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist()] == [
        ("a", 5, 8),
        ("a", 9, 0),
        ("b", 5, 7),
    ]
    bounds = {(entry.min_key[-16:], entry.partition) for entry in table.scan().entries[0]}
    assert len(bounds) == 2
    assert table.lookup([("a", 5), ("b", 5), ("a", 1)])["v"].to_pylist() == [8, 7]


@pytest.mark.parametrize("name", ["_row_id", "_file", "_row_id_"])
@pytest.mark.parametrize("place", [0, 1], ids=["key", "sequence"])
def test_columns_may_have_the_names_that_reading_runs_gives_to_places_of_rows(
    table_path, name, place
):
    """Keys and sequences are read beside the number of each row and of its file."""
    names = ["k", "s", "v"]
    names[place] = name
    schema = pa.schema([(each, pa.int64()) for each in names])
    properties = {"sequence.field": names[1], "deletion-vectors.enabled": "true"}
    table = Table.create(table_path, schema, primary_key=names[:1], properties=properties)
    for rows in ([(1, 5, 1), (2, 5, 2)], [(1, 4, 3), (2, 6, 4), (3, 1, 5)]):
        table.upsert(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
        shown = sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())
        table.compact()
        assert sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == shown
    assert shown == [(1, 5, 1), (2, 6, 4), (3, 1, 5)]
