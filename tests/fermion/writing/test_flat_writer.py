"""Small flat columns written many at once: the same bytes, bounds and values as one by one."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import kernels
from fermion.columns.types import column_node
from fermion.layout import ChunkFlag
from fermion.options import COLUMNS_PER_TASK, WriteOptions
from fermion.writing import file as file_writer
from fermion.writing.column import ColumnPlan, EncodedColumn, encode_column
from fermion.writing.flat import FlatWriter
from tests.fermion.independent_reader import File

ROWS = 2_000


def arrays(rows: int = ROWS) -> dict[str, pa.Array]:
    """Columns that the kernel takes."""
    rng = np.random.default_rng(5)
    words = np.array([f"value {n}" for n in range(150)])
    nulls = rng.random(rows) < 0.05
    more = rng.random(rows) < 0.2
    names = words[rng.integers(0, len(words), rows)]
    money = np.round(rng.normal(50, 10, rows), 2)
    return {
        "int16": pa.array(rng.integers(-9_000, 9_000, rows).astype(np.int16)),
        "uint16": pa.array(rng.integers(0, 9_000, rows).astype(np.uint16)),
        "int32": pa.array(rng.integers(-(10**6), 10**6, rows).astype(np.int32), mask=nulls),
        "uint32": pa.array(rng.integers(0, 10**7, rows).astype(np.uint32)),
        "int64": pa.array(rng.integers(-(10**12), 10**12, rows)),
        "nulls": pa.array(rng.integers(0, 10**5, rows), mask=more),
        "date": pa.array(rng.integers(0, 20_000, rows).astype(np.int32)).cast(pa.date32()),
        "time": pa.array(rng.integers(0, 10**15, rows)).cast(pa.timestamp("us")),
        "float": pa.array(money.astype(np.float32), mask=nulls),
        "double": pa.array(money),
        "double nulls": pa.array(money, mask=more),
        "string": pa.array(names, mask=nulls),
        "binary": pa.array([name.encode() for name in names], pa.binary()),
        "large": pa.array(names, pa.large_string(), mask=more),
        "constant": pa.array([7] * rows, mask=nulls),
        "zeros": pa.array(np.zeros(rows, np.float32)),
        "short": pa.array(rng.choice(np.array(["a", "", "bcd", "e"]), rows)),
    }


def plan_of(name: str, array: pa.Array, options: WriteOptions) -> ColumnPlan:
    return ColumnPlan.of(column_node(pa.field(name, array.type)), options)


def both(name: str, array: pa.Array) -> tuple[EncodedColumn | None, EncodedColumn]:
    """What the kernel and what the way around make of a column."""
    options = WriteOptions()
    plan = plan_of(name, array, options)
    column = pa.chunked_array([array])
    (short,) = FlatWriter([plan], options).encode([column], [0])
    return short, encode_column(plan, column, None)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("name", arrays())
def test_columns_are_written_to_the_same_bytes_as_one_by_one(name: str, offset: int) -> None:
    """Records, bounds and, as both choose the same encodings here, pages, bit by bit."""
    array = arrays(ROWS + offset)[name].slice(offset)
    short, usual = both(name, array)
    assert short is not None
    assert short.statistics == usual.statistics
    assert short.all_null == usual.all_null
    validity, data = short.streams
    assert validity == usual.streams[0]
    if data.record.flags & ChunkFlag.DENSE_NO_NULL_SLOTS:  # from fewer nulls on than elsewhere
        assert name in ("nulls", "large", "double nulls")
        assert data.record.length < usual.streams[1].record.length
    else:
        assert data == usual.streams[1]


def few_rows() -> dict[str, pa.Array]:
    """Columns that the kernel takes only if they have few rows."""
    rng = np.random.default_rng(5)
    rows = 100
    reals = rng.normal(size=rows)
    mask = rng.random(rows) < 0.05
    return {
        "double": pa.array(reals),
        "float": pa.array(reals.astype(np.float32), mask=mask),
        "very few": pa.array(reals[:7]),
        "nan": pa.array(np.where(rng.random(rows) < 0.2, np.nan, reals)),
        "nan and nulls": pa.array(np.where(rng.random(rows) < 0.2, np.nan, reals), mask=mask),
        "infinite": pa.array(np.where(reals > 1, np.inf, reals)),
        "signed zeros": pa.array(np.where(reals > 0, -0.0, 0.0)),
        "compressible": pa.array(np.where(rng.random(rows) < 0.8, 0.0, reals)),
        "not a number once": pa.array([np.nan, 1 / 3]),
    }


@pytest.mark.parametrize("name", few_rows())
def test_few_rows_of_any_floats_are_written_to_the_same_bytes_as_one_by_one(name: str) -> None:
    short, usual = both(name, few_rows()[name])
    assert short is not None
    assert short.statistics == usual.statistics
    assert short.streams == usual.streams


def test_few_floats_that_are_left() -> None:
    """Nothing but NaN, and decimals but for a few."""
    decimals = np.random.default_rng(5).permutation(100) / 4
    for values in ([np.nan] * 9, np.where(decimals == 3, 1 / 3, decimals)):
        short, _ = both("left", pa.array(values))
        assert short is None


@pytest.mark.parametrize("rows", [1, 2, 31, 100, 1024, 1025, 5000])
def test_tables_of_any_length_come_back(rows: int) -> None:
    table = pa.table(arrays(rows))
    sink = io.BytesIO()
    fermion.write_table(table, sink)
    assert fermion.open(sink.getvalue()).read().equals(table)
    file = File(sink.getvalue())
    for ordinal, name in enumerate(table.column_names):
        values = table[name].to_pylist()
        assert len(file.column(ordinal)) == len(values)


LEFT = {
    "runs": pa.array(np.repeat(np.arange(ROWS // 50), 50)),
    "sorted": pa.array(np.cumsum(np.random.default_rng(1).integers(0, 9, ROWS))),
    "multiples": pa.array(np.random.default_rng(1).integers(0, 10**6, ROWS) * 1000),
    "skewed": pa.array(np.random.default_rng(1).geometric(0.001, ROWS) ** 2),
    "few": pa.array(np.random.default_rng(1).choice([1, 10**9, 5 * 10**12], ROWS)),
    "repeated": pa.array(np.tile(np.random.default_rng(1).integers(0, 10**9, 20), ROWS // 20)),
    "real": pa.array(np.random.default_rng(1).random(ROWS)),
    "nan": pa.array(np.where(np.arange(ROWS) == 9, np.nan, np.arange(ROWS) % 977 / 100)),
    "negative zero": pa.array(np.where(np.arange(ROWS) == 9, -0.0, np.arange(ROWS) % 977 / 100)),
    "all null": pa.array([None] * ROWS, pa.int32()),
    "distinct": pa.array([f"value {n * 7919 % ROWS}" for n in range(ROWS)]),
    "cycle": pa.array([f"value {n % 9}" for n in range(ROWS)]),
    "bool": pa.array([n % 7 == 0 for n in range(ROWS)]),
    "unsigned": pa.array(np.random.default_rng(1).integers(0, 10**12, ROWS).astype(np.uint64)),
    "long": pa.array(np.random.default_rng(1).integers(0, 10**12, 20_000)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_another_encoding_may_suit_better_is_left(name: str) -> None:
    short, _ = both(name, LEFT[name])
    assert short is None


def test_hidden_bytes_of_null_strings_do_not_get_into_a_file() -> None:
    seen = pa.array(["ab", "cd", "ef", "gh"] * 500)
    valid = np.packbits(np.arange(ROWS) % 5 != 0, bitorder="little")
    buffers = [pa.py_buffer(valid), *seen.buffers()[1:]]
    array = pa.Array.from_buffers(pa.string(), ROWS, buffers)
    short, usual = both("hidden", array)
    assert short is None
    assert usual.streams[1].record.null_count == 400


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "compact"},
        {"profile": "fast"},
        {"codec": "lz4"},
        {"checksum": "crc32"},
        {"align": 64},
        {"encodings": {"int64": "plain"}},
        {"bloom_filters": ["int64"]},
        {"page_bloom_filters": ["int64"]},
        {"summaries": ["int64"]},
        {"sorted_by": ["int64"]},
        {"edition": "core-2026"},
        {"global_dictionaries": ["int64"]},
        {"statistics": False},
    ],
)
def test_what_is_asked_of_a_column_is_heeded(options: dict[str, object]) -> None:
    array = arrays()["int64"]
    chosen = WriteOptions(**options)  # type: ignore[arg-type]
    plan = plan_of("int64", array, chosen)
    assert not FlatWriter([plan], chosen).has_columns


def test_arrays_that_are_not_well_formed_are_refused_in_words() -> None:
    ends = np.full(ROWS + 1, 9, np.int32)
    ends[5] = 99
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"some bytes")]
    array = pa.Array.from_buffers(pa.string(), ROWS, buffers)
    with pytest.raises(fermion.InvalidArgumentError, match="not a well-formed Arrow array"):
        fermion.write_table(pa.table({"a": array}), io.BytesIO())


def test_a_wide_stripe_takes_a_call_for_dozens_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the kernel for 32 columns, and none of the columns goes the way around."""
    calls: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: object) -> object:
            calls[name] += 1
            return real(*arguments)

        monkeypatch.setattr(owner, name, counted)

    count(kernels, "encode_flat")
    count(file_writer, "encode_column")
    columns = arrays()
    table = pa.table({f"{name} {n}": columns[name] for n in range(100) for name in columns})
    sink = io.BytesIO()
    fermion.write_table(table, sink)
    assert calls["encode_flat"] == -(-table.num_columns // COLUMNS_PER_TASK)
    assert calls["encode_column"] == 0
    assert fermion.open(sink.getvalue()).read().equals(table)


def test_an_error_of_the_codec_is_raised() -> None:
    def fail(_: memoryview) -> bytes:
        raise ZeroDivisionError

    array = arrays()["large"].drop_null().slice(0, 1000)
    with pytest.raises(ZeroDivisionError):
        kernels.encode_flat(
            [b""],
            [array.buffers()[1]],
            [array.buffers()[2]],
            np.zeros(1, np.int64),
            b"s",
            np.array([8]),
            1000,
            0.3,
            0.92,
            0,
            1,
            4096,
            0.95,
            512,
            4,
            4,
            16,
            0.875,
            fail,
        )


def test_buffers_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="do not hold 100 values from slot 1"):
        kernels.encode_flat(
            [b""], [bytes(800)], [b""], np.ones(1, np.int64), b"i", np.array([8]), 100, 0.3, 0.92,
            4096, 1024, 4096, 0.95, 512, 4, 4, 16, 0.875, bytes,
        )  # fmt: skip


@pytest.mark.parametrize("place", range(3))
def test_counts_that_are_divided_by_are_at_least_one(place: int) -> None:
    """Runs, slots an entry and sampled values, each 0 in turn."""
    counts = [0 if each == place else 4 for each in range(3)]
    with pytest.raises(ValueError, match="expected 1 or more"):
        kernels.encode_flat(
            [b""], [bytes(800)], [b""], np.zeros(1, np.int64), b"i", np.array([8]), 100, 0.3, 0.92,
            4096, 1024, 4096, 0.95, 512, *counts, 0.875, bytes,
        )  # fmt: skip
