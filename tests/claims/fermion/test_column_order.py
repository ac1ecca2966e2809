"""The order of columns' data in the file, where it is not that of the schema."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import InvalidArgumentError, WriteOptions
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.files.independent_reader import File
from tests.kit.strategies import tables


def stored(table: pa.Table, **options) -> bytes:
    target = io.BytesIO()
    fermion.write_table(table, target, options=WriteOptions(**options))
    return target.getvalue()


def test_columns_that_lie_together_take_one_request():
    """Five of 60 columns, far apart in the schema; two stripes; as many bytes are asked for."""
    random = np.random.default_rng(5)
    table = pa.table({f"c{each}": random.random(4_000) for each in range(60)})
    wanted = ["c50", "c3", "c41", "c18", "c29"]
    options = {"stripe_rows": 2_000, "profile": "fast"}
    cost = {}
    for order in ([], wanted):
        data = stored(table, column_order=order, **options)
        with fermion.open(data, options=fermion.ReadOptions(coalesce_gap_bytes=0)) as file:
            list(file.index.blocks(file.index.find(name) for name in wanted))
            before = file.io_stats.requests, file.io_stats.bytes_requested
            assert_logically_equal(file.read(wanted), table.select(wanted))
            after = file.io_stats.requests, file.io_stats.bytes_requested
        cost[bool(order)] = after[0] - before[0], after[1] - before[1]
    assert cost[False][0] == 2 * len(wanted)
    assert cost[True] == (2, cost[False][1])


@given(data=st.data(), table=tables().filter(lambda table: message_can_hold(table.schema)))
def test_any_order_of_columns_reads_the_same(data, table):
    """With whatever columns named first, by the reader and by the specification alone."""
    names = [name for name in table.column_names if table.column_names.count(name) == 1]
    order = data.draw(st.permutations(names))[: data.draw(st.integers(0, len(names)))]
    written = stored(table, column_order=order, stripe_rows=7)
    assert_logically_equal(fermion.read_table(written), table)
    with fermion.open(written) as file:
        assert file.schema.names == table.column_names
        assert file.verify().ok


def test_data_come_in_the_order_named():
    """Offsets of the chunks of each stripe, those of both streams of a column included."""
    table = pa.table({name: pa.array([1, None, 3] * 20) for name in "abcde"})
    data = stored(table, column_order=["d", "b"], stripe_rows=30)
    with fermion.open(data) as file:
        blocks = dict(zip("abcde", file.index.blocks(range(5)), strict=True))
        chunks = [
            blocks[name].chunk(stream, stripe).offset
            for stripe in range(2)
            for name in "dbace"
            for stream in range(2)
        ]
    assert chunks == sorted(chunks)
    for ordinal in range(5):
        assert_logically_equal(File(data).column(ordinal), table.column(ordinal))


def test_columns_of_batches_may_be_ordered_too():
    """In batch mode ids still find their rows."""
    target = io.BytesIO()
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    with fermion.Writer(target, schema, options=WriteOptions(column_order=["b"])) as writer:
        for batch in range(3):
            writer.append_batch(batch, pa.table({"a": [batch], "b": [f"x{batch}"]}, schema=schema))
    with fermion.open(target.getvalue()) as file:
        assert file.read_batch(1).to_pylist() == [{"a": 1, "b": "x1"}]
        assert file.verify().ok


@pytest.mark.parametrize(
    ("order", "expected"),
    [(["x"], "column_order names column 'x', which the schema lacks"), (["a", "a"], "'a' twice")],
)
def test_an_order_that_cannot_be_is_refused(order, expected):
    """A column that is not there, and one named twice."""
    with pytest.raises(InvalidArgumentError, match=expected):
        stored(pa.table({"a": [1], "b": [2]}), column_order=order)
