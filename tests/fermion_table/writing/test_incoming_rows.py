"""Partitions: which rows go together, what directories are called, and what a filter prunes."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion_table import Table
from fermion_table.schema.value_codec import has_plain_json
from fermion_table.writing.incoming_rows import PartitionColumn, split_batch
from tests.kit.strategies import random_array, scalar_types

VALUES = {
    "string": (pa.string(), ["a", "", None, "a/b", "k=v", "Größe 日本", "..", "%41", "~", "a"]),
    "int": (pa.int32(), [1, None, -1, 1]),
    "float": (pa.float64(), [0.0, -0.0, math.nan, None, 1.5, math.inf, math.nan]),
    "bool": (pa.bool_(), [True, False, None, True]),
    "date": (pa.date32(), [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, 1, None, 0]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "binary": (pa.binary(), [b"", b"\x00\xff", None, b"/"]),
    "view": (pa.string_view(), ["x", None, "y" * 20, "x"]),
}


@given(
    st.lists(scalar_types().filter(has_plain_json), min_size=1, max_size=3),
    st.integers(0, 2**32),
    st.integers(0, 40),
)
def test_every_row_goes_to_the_partition_of_its_values_and_order_is_kept(types, seed, rows):
    """Against a dict of lists, keyed by the values' JSON."""
    rng = np.random.default_rng(seed)
    arrays = [random_array(rng, dtype, rows) for dtype in types]
    arrays.append(pa.array(range(rows)))
    names = [str(place) for place in range(len(arrays))]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    columns = [PartitionColumn(names[place], place) for place in range(len(types))]
    found = [
        (part.values, rows.column(names[-1]).to_pylist())
        for part, rows in split_batch(batch, columns)
    ]
    model: dict[tuple, list[int]] = {}
    for row in range(rows):
        ((part, _),) = split_batch(batch.slice(row, 1), columns)
        model.setdefault(part.values, []).append(row)
    assert found == list(model.items())


@pytest.mark.parametrize("name", VALUES)
def test_rows_come_back_from_partitions_and_filters_open_only_theirs(table_path, name):
    dtype, values = VALUES[name]
    data = pa.table({"k": pa.array(values, dtype), "v": range(len(values))})
    table = Table.create(table_path, data.schema, partition_by="k")
    table.append(data)
    distinct = len({repr(value).replace("-0.0", "0.0") for value in values})
    assert table.snapshot.totals.files == distinct
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["v"])
    assert repr(found) == repr(data.to_pylist())
    nulls = table.scan(filter="k is null")
    assert [split.partition for split in nulls.plan().splits] == [(None,)]
    assert nulls.count() == values.count(None)


def test_directories_say_the_values_and_never_leave_the_table(table_path):
    dtype, values = VALUES["string"]
    table = Table.create(table_path, pa.schema([("a b", dtype)]), partition_by="a b")
    table.append(pa.table({"a b": pa.array(values, dtype)}))
    names = sorted(path.name for path in (table_path / "data").iterdir())
    assert all(name.startswith("a%20b=") for name in names)
    texts = {unquote(name.removeprefix("a%20b=")) for name in names}
    assert texts == {v if v is not None else "__HIVE_DEFAULT_PARTITION__" for v in values}
    assert not any("/" in name or name.endswith(("=..", "=.")) for name in names)


def test_partition_values_prune_exactly_even_where_bounds_hold_only_a_prefix(table_path):
    """Bounds keep 8 bytes of a string; these share more."""
    names = [f"country/{name}" for name in ("Chad", "Chile", "China")]
    table = Table.create(table_path, pa.schema([("c", pa.string())]), partition_by=["c"])
    table.append(pa.table({"c": names}))
    scan = table.scan(filter="c = 'country/Chile'")
    assert len(scan.plan().splits) == 1
    assert scan.to_arrow().to_pydict() == {"c": ["country/Chile"]}
    assert "partitions: 1 of 3 files  (partitioned by c)" in scan.explain()


def test_many_partitions_are_written_with_few_open_files(table_path, monkeypatch):
    monkeypatch.setattr("fermion_table.writing.data_writer.OPEN_FILES_MAX", 4)
    table = Table.create(
        table_path, pa.schema([("k", pa.int32()), ("v", pa.int32())]), partition_by="k"
    )
    data = pa.table({"k": [i % 9 for i in range(90)], "v": range(90)})
    with table.writer() as writer:
        for batch in data.to_batches(max_chunksize=30):
            writer.write(batch)
            assert len(writer._open) <= 4
        table.commit(writer.prepare_commit())
    found = table.scan().to_arrow()
    assert found.sort_by("v").to_pydict()["v"] == list(range(90))
    for split in table.scan().plan().splits:
        values = table.scan(filter=f"k = {split.partition[0]}").to_arrow().column("v").to_pylist()
        assert values == sorted(values)


def test_partition_column_widens_while_its_values_stay(table_path):
    table = Table.create(
        table_path, pa.schema([("k", pa.int16()), ("v", pa.int8())]), partition_by="k"
    )
    table.append({"k": [1, 2], "v": [1, 2]})
    table.alter_column("k", type=pa.int64())
    table.append({"k": [2**40, 2], "v": [3, 4]})
    scan = table.scan(filter=f"k in (2, {2**40})")
    assert sorted(scan.to_arrow().column("v").to_pylist()) == [2, 3, 4]
    assert len(scan.plan().splits) == 3


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
def test_pruning_partitions_changes_no_answer(tmp_path_factory, seed, operator):
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("partition") / "table"
    keys = pa.array([None if k == 0 else int(k) for k in rng.integers(0, 5, 30)], pa.int8())
    data = pa.table({"k": keys, "v": rng.integers(0, 5, 30)})
    table = Table.create(path, data.schema, partition_by="k", durability="fast")
    table.append(data)
    text = f"k {operator} {rng.integers(0, 5)} AND NOT (v = 2 OR k = 3)"
    expected = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}
    expected |= {">": pc.greater, ">=": pc.greater_equal}
    mask = expected[operator](data["k"], int(text.split()[2]))
    mask = pc.and_kleene(
        mask, pc.invert(pc.or_kleene(pc.equal(data["v"], 2), pc.equal(data["k"], 3)))
    )
    wanted = data.filter(mask)
    key = [("k", "ascending"), ("v", "ascending")]
    assert table.scan(filter=text).to_arrow().sort_by(key).equals(wanted.sort_by(key))
