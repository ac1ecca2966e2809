"""Small flat columns written many at once: the same bytes, bounds and values as one by one."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import kernels
from fermion.layout import ChunkFlag
from fermion.options import WriteOptions
from fermion.writing import file as file_writer
from fermion.writing import flat
from fermion.writing.column import ColumnPlans, encode_column
from fermion.writing.flat import COLUMNS_PER_CALL, FORM, POLICY, FlatWriter
from fermion.writing.log import FileLog, WrittenColumn, flat_column
from tests.kit.files.identities import one_identity
from tests.kit.files.independent_reader import File

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


def both(
    name: str, array: pa.Array, options: WriteOptions | None = None
) -> tuple[WrittenColumn | None, WrittenColumn, bytes, bytes]:
    """What the kernel and what the way around make of a column, and their pages."""
    options = options or WriteOptions()
    table = pa.table({name: array})
    plans = ColumnPlans(table.schema, options)
    writer, usual = FlatWriter(plans, options), encode_column(plans[0], table.column(0), None)
    columns = writer.columns(table)
    pages, place = b"", 0
    for stream in usual.streams:
        stream.record.offset = place if stream.pages else 0
        place += sum(map(len, stream.pages))
        pages += b"".join(stream.pages)
    expected = WrittenColumn(
        [stream.record for stream in usual.streams], usual.statistics, usual.all_null
    )
    if columns is None:
        return None, expected, b"", pages
    found = writer.encode(columns, np.zeros(1, np.int64))
    if not found.chunks.any():
        return None, expected, b"", pages
    return flat_column(plans[0], found.chunks[0], len(array)), expected, bytes(found.pages), pages


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("name", arrays())
def test_columns_are_written_to_the_same_bytes_as_one_by_one(name: str, offset: int) -> None:
    """Records, bounds and, as both choose the same encodings here, pages, bit by bit."""
    array = arrays(ROWS + offset)[name].slice(offset)
    short, usual, pages, usual_pages = both(name, array)
    assert short is not None
    assert short.statistics == usual.statistics
    assert short.all_null == usual.all_null
    validity, data = short.records
    assert validity == usual.records[0]
    if data.flags & ChunkFlag.DENSE_NO_NULL_SLOTS:  # from fewer nulls on than elsewhere
        assert name in ("nulls", "large", "double nulls")
        assert data.length < usual.records[1].length
    else:
        assert data == usual.records[1]
        assert pages == usual_pages


def few_rows() -> dict[str, pa.Array]:
    """Columns that the kernel takes only if they have few rows."""
    rng = np.random.default_rng(5)
    rows = 100
    reals = rng.normal(size=rows)
    mask = rng.random(rows) < 0.05
    decimals = rng.permutation(rows) / 4
    words = np.array([f"word {n}" for n in range(rows)])
    hexes = [rng.bytes(16).hex() for _ in range(rows)]
    return {
        "double": pa.array(reals),
        "float": pa.array(reals.astype(np.float32), mask=mask),
        "very few": pa.array(reals[:7]),
        "nan": pa.array(np.where(rng.random(rows) < 0.2, np.nan, reals)),
        "nan and nulls": pa.array(np.where(rng.random(rows) < 0.2, np.nan, reals), mask=mask),
        "infinite": pa.array(np.where(reals > 1, np.inf, reals)),
        "signed zeros": pa.array(np.where(reals > 0, -0.0, 0.0)),
        "compressible": pa.array(np.where(rng.random(rows) < 0.8, 0.0, reals)),
        "not a number once": pa.array([0.1, np.nan, 1 / 3]),
        "all null": pa.nulls(rows, pa.float64()),
        "bool": pa.array(reals > 0.5, mask=mask),
        "true": pa.array([True] * rows),
        "true or null": pa.array([True] * rows, mask=mask),
        "half": pa.array(reals.astype(np.float16), mask=mask),
        "half nan": pa.array(np.where(reals > 0, np.nan, reals).astype(np.float16)),
        "half constant": pa.array(np.full(rows, 0.5, np.float16)),
        "int8": pa.array((reals * 40).astype(np.int8), mask=mask),
        "uint8": pa.array((np.abs(reals) * 60).astype(np.uint8)),
        "uint64": pa.array(rng.integers(2**63, 2**63 + 10**6, rows, np.uint64), mask=mask),
        "uint64 constant": pa.array(np.full(rows, 2**64 - 1, np.uint64)),
        "many bytes": pa.array(rng.integers(0, 3, 3_000).astype(np.int8)),
        "many bits": pa.array(rng.random(9_000) < 0.2),
        "decimals but one": pa.array(np.where(decimals == 3, 1 / 3, decimals)),
        "few words": pa.array(rng.choice(words[:5], rows), mask=mask),
        "some words": pa.array(rng.choice(words[:45], rows), pa.large_string()),
        "words": pa.array(words, mask=mask),
        "long words": pa.array(hexes),
        "many nulls": pa.array(words, mask=rng.random(rows) < 0.5),
        "very few words": pa.array(words[:9]),
        "very few long words": pa.array(hexes[:20]),
        "empty words": pa.array(["", ""]),
        "one word": pa.array(["word"] * 19 + [None]),
        "one empty": pa.array([""] * 99 + ["a"]),
        "dense bits": pa.array(reals > 0, mask=rng.random(rows) < 0.5),
        "dense bytes": pa.array((reals * 40).astype(np.int8), mask=rng.random(rows) < 0.5),
    }


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("name", few_rows())
def test_few_rows_of_any_numbers_are_written_to_the_same_bytes_as_one_by_one(
    name: str, offset: int
) -> None:
    short, usual, pages, usual_pages = both(name, few_rows()[name].slice(offset))
    assert short == usual
    assert pages == usual_pages


def test_floats_that_are_all_nan_are_left() -> None:
    short, *_ = both("left", pa.array([np.nan] * 9))
    assert short is None


def stripes() -> list[pa.Table]:
    """Three stripes of every kind of column; some are null, or left, in one and not in another."""
    few = {name: array for name, array in few_rows().items() if len(array) == 100}
    real = few["double"]
    columns = {
        **{
            f"{name} once null": [a[:9], a[9:18], pa.nulls(9, a.type)]
            for name, a in arrays().items()
        },
        **{name: [array[:9], array[9:18], array[18:27]] for name, array in few.items()},
        "all null": [pa.nulls(9, pa.int32())] * 3,
        "left once": [real[:9], pa.array([np.nan] * 9), pa.nulls(9, pa.float64())],
        "list": [pa.array([[1]] * 9), pa.nulls(9, pa.list_(pa.int64())), pa.array([[2, 3]] * 9)],
    }
    return [pa.table({name: each[at] for name, each in columns.items()}) for at in range(3)]


@pytest.mark.parametrize("options", [{}, {"column_index": False}])
def test_column_metadata_blocks_are_the_same_bytes_as_one_by_one(options, monkeypatch) -> None:
    """A file of stripes by the kernels, and with records of single columns instead."""

    def written() -> bytes:
        sink = io.BytesIO()
        tables = stripes()
        with fermion.Writer(
            sink, tables[0].schema, options=WriteOptions(stripe_rows=9, **options)
        ) as writer:
            for table in tables:
                writer.write(table)
        return sink.getvalue()

    with one_identity():
        short = written()
        real = FileLog.others
        monkeypatch.setattr(
            FileLog, "others", lambda log: sorted({*real(log), *range(len(log._plans))})
        )
        monkeypatch.setattr(
            kernels,
            "build_flat_blocks",
            lambda chunks, _: (bytearray(), np.zeros(chunks.shape[1], np.int64)),
        )
        usual = written()
    assert short == usual
    expected = pa.concat_tables(stripes())
    assert repr(fermion.open(short).read().to_pylist()) == repr(expected.to_pylist())  # NaN


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


def searched() -> dict[str, pa.Array]:
    """Columns of which another encoding than the usual ones is the smallest."""
    rng = np.random.default_rng(1)
    mask = rng.random(ROWS) < 0.05
    decimals = np.arange(ROWS) % 977 / 100
    real = rng.random(ROWS)
    degrees = np.round(rng.normal(-74, 0.05, ROWS), 6)
    degrees[rng.random(ROWS) < 0.2] += 1e-14  # after a calculation
    ids = rng.integers(0, 10**12, ROWS)
    words = np.array([f"value {n}" for n in range(ROWS)])
    text = pa.array(words[rng.permutation(ROWS)])
    return {
        "runs": pa.array(np.repeat(np.arange(ROWS // 50), 50)),
        "runs of floats": pa.array(np.repeat(real[: ROWS // 50], 50)),
        "sorted": pa.array(np.cumsum(rng.integers(0, 9, ROWS))),
        "regular": pa.array(np.arange(ROWS) * 1000 + 17 * 10**11),
        "multiples": pa.array(rng.integers(0, 10**6, ROWS) * 1000, mask=mask),
        "skewed": pa.array(rng.geometric(0.001, ROWS) ** 2),
        "few": pa.array(rng.choice([1, 10**9, 5 * 10**12], ROWS)),
        "few floats": pa.array(rng.choice(real[:100], ROWS), mask=mask),
        "ratios": pa.array(rng.integers(0, 50, ROWS) / rng.integers(1, 50, ROWS)),
        "degrees": pa.array(degrees),
        "real": pa.array(real),
        "real nulls": pa.array(real, mask=mask),
        "real, many nulls": pa.array(real, mask=rng.random(ROWS) < 0.5),
        "short real": pa.array(real.astype(np.float32)),
        "real nan": pa.array(np.where(mask, np.nan, real)),
        "walk": pa.array(np.round(np.cumsum(rng.normal(size=ROWS)), 2)),
        "nan": pa.array(np.where(np.arange(ROWS) == 9, np.nan, decimals)),
        "negative zero": pa.array(np.where(np.arange(ROWS) == 9, -0.0, decimals)),
        "byte": pa.array(np.arange(5_000).astype(np.int8)),
        "unsigned byte": pa.array(rng.integers(0, 9, 5_000).astype(np.uint8)),
        "unsigned": pa.array(ids.astype(np.uint64)),
        "any integers": pa.array(rng.integers(-(2**63), 2**63 - 1, ROWS)),
        "distinct": text.slice(0, 500),
        "cycle": pa.array(words[np.arange(ROWS) % 9]),
        "one": pa.array(["the same"] * ROWS, mask=mask),
        "decimal": pa.array(ids).cast(pa.decimal128(20, 0)),
        "decimal nulls": pa.array(ids, mask=mask).cast(pa.decimal128(20, 0)),
        "wide decimal": pa.array(ids[:1000] - 10**11).cast(pa.decimal256(40, 2)),
        "decimals alike": pa.array([12] * ROWS, mask=mask).cast(pa.decimal128(30, 2)),
    }


SMALLER = ("few floats", "nan", "unsigned byte", "any integers")


@pytest.mark.parametrize("name", searched())
def test_columns_that_need_a_search_are_no_larger_than_one_by_one(name: str) -> None:
    """Bounds and records are the same, the bytes mostly, too; and they are read as they were."""
    array = searched()[name].slice(1)
    short, usual, pages, usual_pages = both(name, array)
    assert short is not None
    assert short.statistics == usual.statistics
    assert short.records[0] == usual.records[0]
    if array.null_count < 0.1 * len(array) and name not in SMALLER:
        assert pages == usual_pages
    assert len(pages) <= len(usual_pages)
    table = pa.table({name: array})
    sink = io.BytesIO()
    fermion.write_table(table, sink)
    with fermion.open(sink.getvalue()) as file:
        assert repr(file.read().to_pylist()) == repr(table.to_pylist())  # NaN
        assert repr(file.read(rows=(9, 40)).to_pylist()) == repr(table[9:40].to_pylist())
        some = [3, 7, 450]
        assert repr(file.take(some).to_pylist()) == repr(table.take(some).to_pylist())
    assert repr(File(sink.getvalue()).column(0).to_pylist()) == repr(array.to_pylist())


@pytest.mark.parametrize("profile", ["compact", "fast"])
def test_other_profiles_are_no_larger_than_one_by_one(profile: Literal["compact", "fast"]) -> None:
    """All columns together; each needs at most three words more, and is read as it was."""
    options = WriteOptions(profile=profile)
    shorts, usuals, left = 0, 0, []
    for name, array in (arrays() | few_rows() | searched()).items():
        short, usual, pages, usual_pages = both(name, array, options)
        if short is None:
            left.append(name)
            continue
        assert short.statistics == usual.statistics
        shorts, usuals = shorts + len(pages), usuals + len(usual_pages)
        assert len(pages) <= len(usual_pages) + 24
        sink = io.BytesIO()
        fermion.write_table(pa.table({name: array}), sink, options=options)
        assert repr(fermion.open(sink.getvalue()).read()[name].to_pylist()) == repr(
            array.to_pylist()
        )  # NaN
    assert shorts < usuals
    # Their bounds are stored in full, as they have more bytes than chunks of other strings.
    assert left == ([] if profile == "compact" else ["distinct"])


def test_a_profile_without_codecs_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for pcodec nor for zstd, whatever they would save."""

    def refuse(*_: object, **__: object) -> bytes:
        raise AssertionError("a codec is asked")

    for codec in ("compress", "_entropy_coded"):
        monkeypatch.setattr(flat, codec, refuse)
    for name, array in (arrays() | few_rows() | searched()).items():
        fermion.write_table(pa.table({name: array}), io.BytesIO(), profile="fast")
    with pytest.raises(AssertionError, match="a codec is asked"):
        fermion.write_table(pa.table({"real": searched()["real"]}), io.BytesIO())


LEFT = {
    "long strings": pa.array([f"{n:05d}" * 9 for n in range(ROWS)]),
    "bool": pa.array([n % 7 == 0 for n in range(40_000)]),
    "half": pa.array(np.arange(4_000).astype(np.float16)),
    "long": pa.array(np.random.default_rng(1).integers(0, 10**12, 20_000)),
    "too wide": pa.array([Decimal(2**64), Decimal(0)], pa.decimal128(38, 0)),
    "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
    "list": pa.array([[1]]),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_columns_are_left(name: str) -> None:
    short, *_ = both(name, LEFT[name])
    assert short is None


def test_hidden_bytes_of_null_strings_do_not_get_into_a_file() -> None:
    seen = pa.array(["ab", "cd", "ef", "gh"] * 500)
    valid = np.packbits(np.arange(ROWS) % 5 != 0, bitorder="little")
    buffers = [pa.py_buffer(valid), *seen.buffers()[1:]]
    array = pa.Array.from_buffers(pa.string(), ROWS, buffers)
    short, usual, *_ = both("hidden", array)
    assert short is None
    assert usual.records[1].null_count == 400


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "random"},
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
    schema = pa.schema([("int64", array.type)])
    assert not FlatWriter(ColumnPlans(schema, chosen), chosen).has_columns


def test_arrays_that_are_not_well_formed_are_refused_in_words() -> None:
    ends = np.full(ROWS + 1, 9, np.int32)
    ends[5] = 99
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"some bytes")]
    array = pa.Array.from_buffers(pa.string(), ROWS, buffers)
    with pytest.raises(fermion.InvalidArgumentError, match="not a well-formed Arrow array"):
        fermion.write_table(pa.table({"a": array}), io.BytesIO())


def test_a_wide_stripe_takes_a_call_for_a_thousand_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the kernel for 1,024 columns, and none of them goes the way around."""
    calls: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: object) -> object:
            calls[name] += 1
            return real(*arguments)

        monkeypatch.setattr(owner, name, counted)

    count(kernels, "encode_flat")
    count(file_writer, "encode_column")
    columns = arrays() | {
        name: array
        for name, array in searched().items()
        if len(array) == ROWS and "nan" not in name
    }
    table = pa.table({f"{name} {n}": columns[name] for n in range(40) for name in columns})
    sink = io.BytesIO()
    fermion.write_table(table, sink)
    assert calls["encode_flat"] == -(-table.num_columns // COLUMNS_PER_CALL)
    assert calls["encode_column"] == 0
    assert fermion.open(sink.getvalue()).read().equals(table)


def encoded(
    table: pa.Table,
    form: tuple[bytes, int],
    *,
    limits: Mapping[str, int] | None = None,
    zip: Callable[[memoryview], bytes] = bytes,
    entropy: Callable[[memoryview, str, int], bytes] = lambda *_: b"",
    ordinal: int = 0,
) -> tuple[bytearray, np.ndarray]:
    """One column by the kernel, with a search for encodings however few bytes it has."""
    (batch,) = table.to_batches()
    forms = np.array([(ordinal, ord(form[0]), form[1], True, 65536)], FORM)
    policy = FlatWriter(ColumnPlans(table.schema, WriteOptions()), WriteOptions()).policy.copy()
    for name, value in {"search_bytes_min": 0, **(limits or {})}.items():
        policy[name] = value
    return kernels.encode_flat(batch.__arrow_c_array__()[1], forms, policy, zip, entropy)


def test_an_error_of_the_codec_is_raised() -> None:
    def fail(_: memoryview) -> bytes:
        raise ZeroDivisionError

    table = pa.table({"large": arrays()["large"].drop_null().slice(0, 1000)})
    with pytest.raises(ZeroDivisionError):
        encoded(table, (b"s", 8), zip=fail)
    table = pa.table({"real": searched()["real"]})
    with pytest.raises(ZeroDivisionError):
        encoded(table, (b"f", 8), entropy=lambda *_: 1 // 0)


@pytest.mark.parametrize("answer", [b"", bytes(16_000), bytes(10**6), None, bytearray(9)])
def test_what_the_entropy_coder_gives_is_taken_only_if_it_is_smaller(answer: object) -> None:
    """Nothing, as many bytes as the numbers, far more, and what are no bytes."""
    pages, chunks = encoded(
        pa.table({"real": searched()["real"]}), (b"f", 8), entropy=lambda *_: answer
    )
    assert chunks[0, 1] == len(pages) == 16_000 + 24
    asked: list[object] = []

    def half(data: memoryview, letter: str, width: int) -> bytes:
        asked.append((len(data), letter, width))
        return bytes(8_000)

    pages, _ = encoded(pa.table({"real": searched()["real"]}), (b"f", 8), entropy=half)
    assert len(pages) == 8_000 + 24
    assert asked == [(16_000, "f", 8)]


def test_columns_that_are_not_what_they_are_said_to_be_are_refused() -> None:
    table = pa.table({"a": ["b"], "c": [[1]]})
    with pytest.raises(ValueError, match="3 buffers cannot be those of i8"):
        encoded(table, (b"i", 8))
    with pytest.raises(ValueError, match="2 buffers cannot be those of i8"):
        encoded(table, (b"i", 8), ordinal=1)
    with pytest.raises(ValueError, match="column 2 of 2"):
        encoded(table, (b"i", 8), ordinal=2)
    for form in ((b"V", 3), (b"f", 1), (b"s", 1), (b"i", 3), (b"d", 8), (b"i", 16)):
        with pytest.raises(ValueError, match="are not known"):
            encoded(table, form)


@pytest.mark.parametrize("name", ["run_slots_min", "entry_slots_min", "sample_values"])
def test_counts_that_are_divided_by_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        encoded(pa.table({"a": range(100)}), (b"i", 8), limits={name: 0})


def test_a_policy_of_another_form_is_refused() -> None:
    """The kernel reads the fields that Python writes: none is left out, or of another type."""
    (batch,) = pa.table({"a": range(100)}).to_batches()
    forms = np.zeros(1, FORM)
    for policy in (
        np.zeros(1, POLICY.descr[:-1]),
        np.zeros(1, [*POLICY.descr[:-1], (POLICY.names[-1], "f8")]),
        np.zeros(2, POLICY),
    ):
        with pytest.raises(ValueError, match=r"policy|mismatch"):
            kernels.encode_flat(batch.__arrow_c_array__()[1], forms, policy, bytes, bytes)
