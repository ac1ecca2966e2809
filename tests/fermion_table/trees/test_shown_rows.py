"""Sections read in one pass: the same rows as with keys merged first, and fewer columns read."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fermion_table import Table
from fermion_table.reading.split_reader import SplitReader
from fermion_table.trees import shown_rows
from tests.kit.tables.tree_rows import put

SCHEMA = pa.schema([("t", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
TEXTS = ["", "a", "a\0", "b", "ü"]
KEYS = st.tuples(st.sampled_from(TEXTS), st.integers(0, 4))
FILTERS = (
    None,
    "v > 1",
    "k >= 1 AND k < 4",
    "k > 1 AND v < 3",
    "t = 'a' OR v = 2",
    "v > 9",
)


@st.composite
def tables(draw: st.DrawFn):
    """Draw settings, and runs from the oldest to the newest: kinds and values by key."""
    by_number = draw(st.booleans())
    engine = draw(st.sampled_from(["deduplicate", "first_row"]))
    kinds = st.sampled_from(["+I", "+I", "-D"] if engine == "deduplicate" else ["+I"])
    keys = st.integers(0, 9).map(lambda k: ("a", k)) if by_number else KEYS
    runs = draw(
        st.lists(
            st.dictionaries(keys, st.tuples(kinds, st.integers(0, 3)), min_size=1),
            min_size=2,
            max_size=4,
        )
    )
    return ["k"] if by_number else ["t", "k"], engine, runs


QUERIES = st.tuples(st.sampled_from([None, ["v"], []]), st.sampled_from(FILTERS))


THREE_RUNS = [
    {(text, k): ("+I", number) for text in texts for k in (0, 1)}
    for number, texts in enumerate((TEXTS, ["a", "a\0"], ["a", "b"]))
]


@example((["t", "k"], "deduplicate", THREE_RUNS), [(None, None), (["v"], "v < 1"), ([], "k = 1")])
@given(tables(), st.lists(QUERIES, min_size=3, max_size=3, unique_by=str))
@settings(max_examples=10)
def test_one_pass_gives_the_rows_that_merging_keys_first_gives(drawn, queries):
    """Both are compared with a dictionary, for several filters and choices of columns."""
    primary_key, engine, runs = drawn
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(
            f"{folder}/t",
            SCHEMA,
            primary_key=primary_key,
            properties={"merge_engine": engine},
            durability="fast",
        )
        model: dict[tuple, dict] = {}
        for run in runs:
            rows = [
                {"t": text, "k": k, "v": v, "_kind": kind} for (text, k), (kind, v) in run.items()
            ]
            put(table, rows)
            for row in rows:
                key = row["t"], row["k"]
                if row["_kind"] == "-D":
                    model.pop(key, None)
                elif engine == "deduplicate" or key not in model:
                    model[key] = {name: row[name] for name in SCHEMA.names}
        plain = Table.create(f"{folder}/plain", SCHEMA, durability="fast")
        plain.append(pa.Table.from_pylist(list(model.values()), SCHEMA))
        for columns, chosen in queries:
            scan = table.scan(columns=columns, filter=chosen)
            found = sorted_rows(scan.to_arrow())
            assert found == sorted_rows(plain.scan(columns=columns, filter=chosen).to_arrow())
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(shown_rows, "HELD_KEYS_BYTES", -1)
                assert sorted_rows(scan.to_arrow()) == found


def sorted_rows(rows: pa.Table) -> list:
    """Return rows in an order of their own."""
    return sorted(rows.to_pylist(), key=str) if rows.num_columns else [len(rows)]


def test_nothing_is_read_of_the_last_run_for_the_merge_alone(tmp_path, monkeypatch):
    """With a filter its keys are read of the rows that match; newer runs are asked for all keys."""
    table = Table.create(tmp_path / "t", SCHEMA, primary_key=["k"], durability="fast")
    put(table, [{"t": "old", "k": k, "v": k % 3} for k in range(90)], level=5)
    put(table, [{"t": "new", "k": k, "v": 0} for k in range(0, 90, 2)])
    read: list[tuple[int, tuple[str, ...], int]] = []
    read_file = SplitReader.read_file

    def counted(self, split, **options):
        for batch in read_file(self, split, **options):
            names = tuple(field.name for field in self.request.fields)
            read.append((split.rows, names, batch.num_rows))
            yield batch

    monkeypatch.setattr(SplitReader, "read_file", counted)
    found = table.scan(columns=["t"], filter="v = 1").to_arrow()
    assert found["t"].to_pylist() == ["old"] * 15
    assert read == [(45, ("k",), 45), (90, ("t", "k"), 30)]
    read.clear()
    assert table.scan(columns=["v"]).to_arrow().num_rows == 90
    assert read == [(45, ("v", "k"), 45), (90, ("v", "k"), 90)]
    scan = table.scan(columns=["t"], filter="v = 1")
    assert len(scan.to_arrow()) == 15
    assert scan.io_stats["files"] == 2
