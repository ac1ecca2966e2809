"""`iter_batches` reads a window of rows at a time, with and without a filter, locally and not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import col
from fermion.columns import slots
from fermion.columns.ranges import RowRanges
from fermion.forks import ThreadPool
from fermion.metadata import cmb
from fermion.reading import column, many_pages, row_batches
from fermion.reading.bounds import StripeBounds
from fermion.reading.many_pages import WholeRead
from fermion.reading.row_batches import STRIPE_ROWS_MIN, STRIPES_MIN, WINDOW_ROWS

ROWS = 5 * WINDOW_ROWS + 17
SMALL_ROWS, SMALL_WINDOW = 800, 64
SPAN_BYTES = 8 * 2 * WINDOW_ROWS  # two windows of a filter's column


def random_table(rows: int) -> pa.Table:
    """Flat columns with and without nulls; ``n`` is ascending."""
    generator = np.random.default_rng(1)
    values = generator.integers(0, 1 << 40, rows)
    return pa.table(
        {
            "n": np.arange(rows),
            "v": pa.array(values, mask=generator.random(rows) < 0.1),
            "w": generator.random(rows),
        }
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One stripe of several windows: on disk, and on a file system that is read by ranges."""
    found = {
        "local": tmp_path_factory.mktemp("windows") / "a.fermion",
        "remote": "memory://windows/a.fermion",
    }
    for place in found.values():
        fermion.write_table(random_table(ROWS), place)
    return found


FILTERS = {
    "none": None,
    "dense": "w > 0.1",
    "sparse": "w > 0.999",
    "settled": f"n >= {WINDOW_ROWS + 5}",
    "nothing": "w > 0.5 and n < 0",
}


def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Of each column, how many rows each call decodes from here on."""
    decoded: dict[str, list[int]] = {"n": [], "v": [], "w": []}
    read = column.read_columns

    def counting(source: Any, tasks: Any, *arguments: Any, **options: Any) -> Any:
        for task in tasks:
            decoded[task.node.name].append(task.rows)
        return read(source, tasks, *arguments, **options)

    pick = many_pages._picked

    def picking(plan: Any, *arguments: Any) -> Any:
        array = pick(plan, *arguments)
        if array is not None:  # else it is left to `read_columns`
            decoded[plan.node.name].append(len(array))
        return array

    whole = WholeRead._open

    def opening(self: WholeRead, plan: Any, *arguments: Any) -> Any:
        column = whole(self, plan, *arguments)
        if column is not None:
            start, stop = column.rows
            decoded[plan.node.name].append(stop - start)
        return column

    monkeypatch.setattr(WholeRead, "_open", opening)
    monkeypatch.setattr(column, "read_columns", counting)
    monkeypatch.setattr(many_pages, "_picked", picking)
    return decoded


@pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("place", ["local", "remote"])
def test_no_more_rows_than_a_window_are_decoded_at_once(
    places: dict[str, Any], place: str, filter: str | None, monkeypatch: pytest.MonkeyPatch
):
    """Counted where columns are decoded; the rows are those of `read`.

    A filter's columns may have more, of which the bytes are bounded.
    """
    monkeypatch.setattr(row_batches, "SPAN_BYTES", SPAN_BYTES)
    with fermion.open(places[place]) as file:
        expected = file.read(filter=filter)
        decoded = decoded_rows(monkeypatch)
        batches = list(file.iter_batches(filter=filter, batch_size=1 << 30))
    assert pa.Table.from_batches(batches, schema=expected.schema).equals(expected)
    asked = {name for name in decoded if filter is not None and name in filter.split()}
    for name, rows in decoded.items():
        bound = SPAN_BYTES // 8 if name in asked and place == "local" else WINDOW_ROWS
        assert max(rows, default=0) <= bound, name
    assert max((batch.num_rows for batch in batches), default=0) <= WINDOW_ROWS


def test_a_sparse_filter_reads_several_windows_together(
    places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """It is tested once for a span of windows; all columns are decoded once for what it finds."""
    monkeypatch.setattr(row_batches, "SPAN_BYTES", SPAN_BYTES)
    with fermion.open(places["local"]) as file:
        decoded = decoded_rows(monkeypatch)
        batches = list(file.iter_batches(filter="w > 0.999"))
    spans = -(-ROWS * 8 // SPAN_BYTES)
    assert len(decoded["w"]) == len(decoded["n"]) == len(batches) == spans
    assert sum(decoded["n"]) == sum(decoded["w"]) == sum(batch.num_rows for batch in batches)


def test_columns_of_a_dense_filter_are_decoded_once(
    places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """The filter's in spans, the others in windows; and a window's rows are not copied again."""
    copied = []
    select = slots.select_values
    monkeypatch.setattr(
        slots, "select_values", lambda *arguments: copied.append(1) or select(*arguments)
    )
    with fermion.open(places["local"]) as file:
        decoded = decoded_rows(monkeypatch)
        assert sum(batch.num_rows for batch in file.iter_batches(filter="w > 0.1"))
    assert [sum(rows) for rows in decoded.values()] == [ROWS, ROWS, ROWS]
    assert not copied


def test_a_filter_takes_no_more_memory_than_a_window_and_a_span(
    places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """The peak of what NumPy and Python allocate, and what Arrow holds, against a whole stripe."""
    monkeypatch.setattr(row_batches, "SPAN_BYTES", SPAN_BYTES)
    whole = ROWS * 3 * 8
    for place in places.values():
        with fermion.open(place, options=fermion.ReadOptions(threads=1)) as file:
            list(file.iter_batches(filter=col("w") > 0.1, rows=(0, 10)))
            before = pa.total_allocated_bytes()
            tracemalloc.start()
            batches = file.iter_batches(filter=col("w") > 0.1)
            peak = max(pa.total_allocated_bytes() - before for _ in batches)
            peak += tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        stored = 0 if file.index.source.source.is_local else file.index.footer.file_length
        assert peak - stored < whole * 2 // 3, place


@pytest.fixture(scope="module")
def large_stripe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stripe of 112 MB in Arrow, of rows of 860 bytes."""
    path = tmp_path_factory.mktemp("large") / "a.fermion"
    random, rows = np.random.default_rng(5), 130_000
    columns = {f"f{place}": random.normal(size=rows) for place in range(104)}
    texts = [f"text {n}" * (n % 9) for n in range(rows)]
    table = pa.table({"k": random.integers(0, 1000, rows), "t": texts, **columns})
    fermion.write_table(table, path, durable=False)
    with fermion.open(path) as file:
        assert file.index.footer.num_stripes == 1
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("filter", "size"),
    [
        (None, 1_024),
        ("k >= 1", 1_024),
        ("k = 3", 1_024),
        ("t like '%7%'", 1_024),
        ("k >= 1", 8_192),
    ],
)
def test_batches_take_four_of_them_and_32_mib_whatever_the_stripe(
    large_stripe: Path, filter: str | None, size: int
):
    """What NumPy, Python and Arrow hold, while the caller holds a batch and asks for the next.

    With 8,192 rows that is half of the stripe; with many more it would be all of it.
    """
    with fermion.open(large_stripe, options=fermion.ReadOptions(threads=2)) as file:
        list(file.iter_batches(filter=filter, rows=(0, 10)))
        before, largest = pa.total_allocated_bytes(), 0
        tracemalloc.start()
        held = 0
        for batch in file.iter_batches(filter=filter, batch_size=size):
            largest = max(largest, batch.nbytes)
            held = max(held, pa.total_allocated_bytes() - before)
        held += tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert held <= 4 * largest + 32 * 1024 * 1024


@pytest.mark.parametrize("filter", ["dense", "sparse", "none"])
def test_windows_of_a_remote_file_ask_for_no_byte_twice(places: dict[str, Any], filter: str):
    """Whole blocks are asked for at once: pages that lie in two windows too."""
    with fermion.open(places["remote"]) as file:
        opened = file.io_stats
        rows = sum(each.num_rows for each in file.iter_batches(filter=FILTERS[filter]))
        assert rows
        stats = file.io_stats
        stored = file.index.footer.file_length
    assert stats.bytes_used - opened.bytes_used <= stored
    assert stats.requests - opened.requests <= 5  # the filter's, those of a window, and the rest


def test_blocks_of_a_remote_file_are_bounded(
    places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Blocks of two windows: the same rows, and not much is asked for twice."""
    with fermion.open(places["remote"]) as file:
        expected = file.read(filter="w > 0.1")
        stored = file.index.footer.file_length
        monkeypatch.setattr(row_batches, "BLOCK_BYTES", stored * 2 // 5)
        before = file.io_stats.bytes_requested
        batches = list(file.iter_batches(filter="w > 0.1"))
        assert pa.Table.from_batches(batches).equals(expected)
        assert file.io_stats.bytes_requested - before <= stored * 1.3


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Stripes of many small windows and small pages, of many types; in batch mode."""
    generator = np.random.default_rng(2)
    rows = SMALL_ROWS
    table = random_table(rows)
    texts = [None if n % 11 == 0 else f"t{n % 13}" for n in range(rows)]
    lists = [None if n % 7 == 0 else list(range(n % 5)) for n in range(rows)]
    structs = [{"a": int(n), "b": {"c": f"{n % 3}"}} for n in generator.integers(0, 9, rows)]
    table = table.append_column("text", pa.array(texts))
    table = table.append_column("category", pa.array(texts).dictionary_encode())
    table = table.append_column("list", pa.array(lists, pa.list_(pa.int64())))
    table = table.append_column("deep", pa.array([[each, None, []] for each in lists]))
    table = table.append_column("struct", pa.array(structs))
    table = table.append_column("null", pa.nulls(rows, pa.int32()))
    found = {
        "local": tmp_path_factory.mktemp("nested") / "a.fermion",
        "remote": "memory://windows/nested.fermion",
    }
    options = fermion.WriteOptions(stripe_rows=500, page_rows_max=50, bloom_filters=["text"])
    for place in found.values():
        with fermion.Writer(place, table.schema, options=options) as writer:
            for number in range(0, rows, 100):
                writer.append_batch(number, table.slice(number, 100))
    return found


@pytest.mark.parametrize(
    ("place", "statistics"), [("local", True), ("local", False), ("remote", True)]
)
@pytest.mark.parametrize(
    "filter",
    [
        "text = 't3'",
        "v is null",
        "n > 70 and n < 650",
        "struct.b.c = '1' or w < 0.01",
        "n in (3, 70, 799) or text is null",
        "w >= 0",
        "batch_id > 300",
        col("list").is_null(),
    ],
    ids=str,
)
def test_windows_hold_the_rows_of_a_whole_read(
    nested: dict[str, Any],
    place: str,
    filter: Any,
    statistics: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    """Of all types, of all rows and of some, with pages that lie in two windows."""
    monkeypatch.setattr(row_batches, "WINDOW_ROWS", SMALL_WINDOW)
    some = RowRanges.from_bounds([5, 300, 490], [7, 400, 780])
    options = fermion.ReadOptions(use_statistics=statistics)
    with fermion.open(nested[place], options=options) as file:
        names: list[Any] = ["batch_id", "index_in_batch", ("struct", "b"), *file.schema.names[:-2]]
        for rows, columns in (
            (None, None),
            ((3, 711), names),
            ((3, 711), []),
            (some, names),
            (some, ["n"]),
        ):
            expected = file.read(columns, filter=filter, rows=rows)
            batches = list(file.iter_batches(columns, filter=filter, rows=rows, batch_size=50))
            assert sum(each.num_rows for each in batches) == expected.num_rows
            if expected.num_columns:
                found = pa.Table.from_batches(batches, schema=expected.schema)
                assert found.to_pydict() == expected.to_pydict()


def test_an_iterator_of_batches_checks_its_arguments_when_it_is_asked_for(nested: dict[str, Any]):
    """Before the first batch is."""
    with fermion.open(nested["local"]) as file:
        for error, arguments in (
            (fermion.ColumnNotFoundError, {"columns": ["nowhere"]}),
            (fermion.ColumnNotFoundError, {"filter": "nowhere = 1"}),
            (fermion.InvalidArgumentError, {"rows": (0, SMALL_ROWS + 1)}),
            (fermion.InvalidArgumentError, {"batch_size": 0}),
            (TypeError, {"batch_size": 1.0}),
            (TypeError, {"rows": slice(0, 2)}),
        ):
            with pytest.raises(error):  # type: ignore[arg-type]
                file.iter_batches(**arguments)  # type: ignore[arg-type]


def test_bounds_of_pages_are_not_asked_for_again_with_each_window(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    """A stripe is pruned by statistics once."""
    calls = []
    prune = StripeBounds.prune
    monkeypatch.setattr(
        StripeBounds, "prune", lambda *arguments: calls.append(1) or prune(*arguments)
    )
    with fermion.open(places["local"]) as file:
        assert list(file.iter_batches(filter="w > 0.1"))
    assert calls == [1]


def test_windows_of_values_of_one_size_are_planned_without_the_metadata_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """How many rows a window has is known from the types: no CMB becomes an object."""
    table = pa.table({f"c{at}": pa.array([1.5] * 600, pa.float32()) for at in range(40)})
    fermion.write_table(table, tmp_path / "a.fermion")
    made: list[int] = []
    init = cmb.ColumnBlock.__init__

    def counted(block: cmb.ColumnBlock, *arguments: Any, **options: Any) -> None:
        made.append(1)
        init(block, *arguments, **options)

    monkeypatch.setattr(cmb.ColumnBlock, "__init__", counted)
    with fermion.open(tmp_path / "a.fermion") as file:
        assert pa.Table.from_batches(file.iter_batches(batch_size=256)).equals(table)
    assert not made


def test_stripes_that_statistics_rule_out_start_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task for each of them loaded `concurrent.futures` and logging for the first read."""
    rows, stripes, tasks = STRIPE_ROWS_MIN, STRIPES_MIN + 1, 0
    submit = ThreadPool.submit

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal tasks
        tasks += 1
        return submit(*arguments, **options)

    monkeypatch.setattr(ThreadPool, "submit", counting)
    monkeypatch.setattr(row_batches, "CHUNKS_MIN", stripes)
    options = fermion.WriteOptions(stripe_rows=rows)
    path = tmp_path / "a.fermion"
    fermion.write_table(random_table(rows * stripes), path, options=options)
    with fermion.open(path, options=fermion.ReadOptions(threads=2)) as file:
        assert file.read(["v"], filter=f"n < {rows}").num_rows == rows
        assert tasks == 0
        assert file.read(["v"], filter="n % 1000 = 0").num_rows == -(-rows * stripes // 1000)
        assert tasks == stripes
