"""Training from tables of every kind: each live row once an epoch, from one snapshot."""

import gc
import json
import os
import pickle
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import ChecksumError, ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, VersionNotFound
from fermion_table.scanning import training_blocks
from fermion_table.scanning.training_blocks import ScanBlocks


def epoch_of(scan, number=0, columns=("id", "x"), **options):
    reader = scan.training(**{"batch_rows": 64, **options})
    arrow = [batch.to_arrow().select(columns) for batch in reader.epoch(number)]
    return pa.Table.from_batches(arrow).sort_by("id")


def rows_of(scan, columns=("id", "x")):
    return scan.to_arrow().select(columns).sort_by("id").replace_schema_metadata(None)


def check(scan, **options):
    assert epoch_of(scan, **options).replace_schema_metadata(None).equals(rows_of(scan))


def append_table(path, tmp_path=None):
    table = Table.create(path, {"id": np.arange(1_000), "x": np.arange(1_000.0)})
    table.append({"id": np.arange(1_000, 1_500), "x": np.zeros(500)})
    return table


def test_an_append_table(tmp_path):
    check(append_table(tmp_path / "t").scan())


def test_deleted_rows_do_not_come(tmp_path):
    table = append_table(tmp_path / "t")
    table.delete("id % 7 = 0")
    scan = table.scan()
    check(scan)
    reader = scan.training(batch_rows=64)
    assert [len(batch) for batch in reader][:-1] == [64] * (len(reader) - 1)  # all are full
    check(table.scan(filter="id % 2 = 0"))


def test_columns_that_were_added_later(tmp_path):
    table = append_table(tmp_path / "t")
    table.add_columns_with({"y": "x * 2"})
    scan = table.scan(columns=["id", "y"])
    assert (
        epoch_of(scan, columns=("id", "y"))["y"].to_pylist()
        == rows_of(scan, ("id", "y"))["y"].to_pylist()
    )


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_a_keyed_table_with_rows_to_merge(tmp_path, engine):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64())])
    properties = {"merge-engine": engine, "fields.x.aggregate-function": "sum"}
    if engine != "aggregation":
        del properties["fields.x.aggregate-function"]
    table = Table.create(tmp_path / "t", schema, primary_key=["id"], properties=properties)
    for start in range(0, 500, 100):
        ids = np.arange(start, start + 300)
        table.upsert({"id": ids, "x": np.full(300, float(start))})
    scan = table.scan()
    check(scan)
    check(table.scan(filter="x > 100"))
    assert scan.training(batch_rows=64).count() == 700
    table.compact(full=True)
    check(table.scan())


def test_a_partitioned_table_and_a_branch(tmp_path):
    table = Table.create(
        tmp_path / "t",
        {"id": np.arange(100), "x": np.arange(100) % 3 * 1.0},
        partition_by=["x"],
    )
    table.branches.create("other")
    other = Table.open(tmp_path / "t", branch="other")
    other.append({"id": np.arange(100, 200), "x": np.zeros(100)})
    check(table.scan())
    check(other.scan())


def test_an_epoch_is_of_its_snapshot_when_the_table_moves_on(tmp_path):
    table = append_table(tmp_path / "t")
    reader = table.scan(columns=["id"]).training(batch_rows=100)
    epoch = reader.epoch(0)
    seen = [next(epoch)["id"] for _ in range(3)]
    state = json.loads(json.dumps(reader.state_dict()))
    table.append({"id": np.arange(5_000, 5_100), "x": np.zeros(100)})
    again = table.scan(columns=["id"], version=state["plan"]["snapshot"]).training(batch_rows=100)
    again.load_state_dict(state)
    rest = [batch["id"] for batch in again]
    assert sorted(np.concatenate([*seen, *rest])) == list(range(1_500))
    assert np.array_equal(np.concatenate(rest), np.concatenate([batch["id"] for batch in epoch]))
    newest = table.scan(columns=["id"]).training(batch_rows=100)
    with pytest.raises(InvalidArgumentError, match="snapshot was 2 and is 3"):
        newest.load_state_dict(state)


def test_a_snapshot_that_expired_is_said(tmp_path):
    table = append_table(tmp_path / "t")
    scan = table.scan()
    table.compact()
    table.expire_snapshots(retain_last=1, older_than="0s")
    with pytest.raises(VersionNotFound, match="snapshot 2"):
        list(scan.training(batch_rows=64))


def test_whole_batch_ids_across_files(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema({"id": pa.int64(), "x": pa.float64()}))
    for number in (1, 2, 3, 2, 1):
        rows = {"id": np.arange(10) + 100 * number, "x": np.zeros(10)}
        table.append_batch(number, rows)
    table.delete("id = 101")
    for world_size in (1, 2):
        batches = [
            batch["id"]
            for rank in range(world_size)
            for batch in table.scan().training(
                batch_rows=20 // world_size, shuffle="batches", rank=rank, world_size=world_size
            )
        ]
        sizes = sorted(len(batch) for batch in batches if len(batch))
        assert sizes in ([10, 18, 20], [10, 18 + 20], [10 + 18, 20], [18, 10 + 20], [10, 18, 20])
        assert sum(sizes) == 48


def test_rows_without_batches_can_not_come_by_batch(tmp_path):
    table = append_table(tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match=r"was not written in batches"):
        table.scan().training(batch_rows=10, shuffle="batches")


def test_a_limit_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="limit"):
        append_table(tmp_path / "t").scan(limit=10).training(batch_rows=10)


def test_an_empty_table_has_no_step(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema({"id": pa.int64(), "x": pa.float64()}))
    for shuffle in ("rows", None):
        reader = table.scan().training(batch_rows=10, shuffle=shuffle)
        assert len(reader) == 0 == len(list(reader))


def test_ten_columns_of_many_cost_ten(tmp_path):
    columns = {f"f{number}": np.random.default_rng(number).random(2_000) for number in range(200)}
    table = Table.create(tmp_path / "t", columns)
    few = table.scan(columns=["f3", "f77"])
    few_reader = few.training(batch_rows=100)
    list(few_reader)
    all_reader = table.scan().training(batch_rows=100)
    list(all_reader)
    assert 20 * few_reader.stats().bytes_read < all_reader.stats().bytes_read


def test_a_pickled_reader_reads_the_same(tmp_path):
    reader = append_table(tmp_path / "t").scan().training(batch_rows=100)
    copy = pickle.loads(pickle.dumps(reader))
    assert [b["id"].tolist() for b in reader.epoch(1)] == [b["id"].tolist() for b in copy.epoch(1)]


@pytest.mark.parametrize(
    ("rows", "filter", "held"), [(100, None, 0), (100, "id >= 0", 1), (20_000, None, 1)]
)
def test_files_of_one_block_are_not_held_open(tmp_path, rows, filter, held):
    """They are read once an epoch; with a filter twice, one time after the other."""
    table = Table.create(tmp_path / "t", {"id": np.arange(rows)})
    source = ScanBlocks(table.scan(filter=filter))
    assert source.slots.tolist() == [rows]
    assert source.read(0, 0, rows).batch["id"].to_numpy().tolist() == list(range(rows))
    assert source._reader.held[0]._size == held
    assert source.bytes_read()


def test_bytes_of_files_that_stay_open_are_counted_once(tmp_path):
    """Also the requests of those that a filter reads, however many blocks a file has."""
    rows = 200_000
    x = np.random.default_rng(0).random(rows)
    table = Table.create(tmp_path / "t", {"id": np.arange(rows), "x": x})
    plain = table.scan(columns=["x"])
    plain.to_arrow()
    for scan in (table.scan(columns=["x"]), table.scan(columns=["x"], filter="x >= 0")):
        reader = scan.training(batch_rows=1_000)
        assert sum(len(batch) for batch in reader) == rows
        assert scan.io_stats["files"] == 1
        blocks = -(-rows // 16_384)
        assert reader.stats().bytes_read < 2 * blocks * plain.io_stats["bytes_requested"]
        assert reader.stats().bytes_read == scan.io_stats["bytes_requested"]


def damage_first_page(table, column):
    """Flip a bit in the first page of a column of the first file: path, rows and offset."""
    path = Path(table.location) / table.inspect.files()["path"][0].as_py()
    with fermion.open(path) as file:
        page = file.column(column).streams[-1].chunks[0].pages[0]
        rows = file.num_rows
    content = bytearray(path.read_bytes())
    content[page.offset + 24] ^= 1
    path.write_bytes(content)
    return path, rows, page.offset


def test_a_damaged_page_of_a_table_is_left_out_where_that_is_asked_for(tmp_path):
    table = append_table(tmp_path / "t")
    path, rows, offset = damage_first_page(table, "id")
    with pytest.raises(ChecksumError, match=rf"{path.name}: page at offset {offset}.*'id'"):
        list(table.scan().training(batch_rows=64))
    reader = table.scan().training(batch_rows=64, on_damage="skip")
    assert sum(len(batch) for batch in reader) == 1_500 - rows
    assert reader.stats().rows_skipped == rows


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_batch_id_with_a_damaged_row_is_left_out_as_a_whole(tmp_path, world_size):
    """Also its rows in files that are not damaged, and of each rank; other ids come as before."""
    random = np.random.default_rng(0).random
    table = Table.create(tmp_path / "t", pa.schema({"id": pa.int64(), "x": pa.float64()}))
    for ids in (range(5), range(3, 9), [1, 8]):  # 1, 3 and 4 lie in the first file and in another
        table.append_batches((id, {"id": np.full(40, id), "x": random(40)}) for id in ids)

    def steps_of(columns, **options):
        readers = [
            table.scan(columns=columns).training(
                batch_rows=90, shuffle="batches", rank=rank, world_size=world_size, **options
            )
            for rank in range(world_size)
        ]
        return [[batch["id"].tolist() for batch in reader] for reader in readers], readers

    whole, _ = steps_of(["id"])
    damage_first_page(table, "x")
    steps, readers = steps_of(["id", "x"], on_damage="skip")
    damaged = set(range(5))
    kept = [[[id for id in step if id not in damaged] for step in rank] for rank in whole]
    assert steps == kept
    assert sum(reader.stats().rows_skipped for reader in readers) == 8 * 40
    assert sum(reader.stats().blocks_skipped for reader in readers) == 8


def test_a_forked_worker_that_ends_takes_no_merged_rows_from_its_parent(tmp_path):
    """The sections that were merged before the fork, and those after it, are still to be read."""
    table = Table.create(tmp_path / "t", pa.schema({"id": pa.int64()}), primary_key=["id"])
    for start in (0, 10, 2_000, 2_010):
        table.upsert({"id": np.arange(start, start + 20)})
    source = training_blocks.ScanBlocks(table.scan())
    parts = range(len(source.slots))
    assert len(parts) == 2
    seen = source.read(0, 0, 40).batch["id"].to_pylist()
    child = os.fork()
    if not child:
        try:
            del source
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    seen += source.read(1, 0, 40).batch["id"].to_pylist()
    assert sorted(seen) == [*range(30), *range(2_000, 2_030)]


def keyed_table(path):
    table = Table.create(path, pa.schema({"id": pa.int64(), "x": pa.float64()}), primary_key=["id"])
    for start in (0, 100, 50):
        table.upsert({"id": np.arange(start, start + 200), "x": np.full(200, start * 1.0)})
    table.delete_keys([7, 250])
    return table


def deleted_table(path):
    table = append_table(path)
    table.delete("id % 3 = 0")
    return table


@pytest.mark.parametrize("make", [append_table, deleted_table, keyed_table])
def test_rows_are_read_by_their_positions(tmp_path, make):
    table = make(tmp_path / "t")
    shown = table.to_arrow()
    last = shown.num_rows - 1
    for positions in ([last, 0, 5, 5, 3], [], range(last + 1), np.array([2], np.uint8)):
        wanted = np.array(positions, np.int64)
        assert table.rows_at(positions) == shown.take(wanted)
    assert table.rows_at(pa.array([1, 0]), columns=["x"])["x"] == shown["x"].take([1, 0])
    assert table.rows_at([3, 3, 1], columns=[]).num_rows == 3
    assert pickle.loads(pickle.dumps(table)).rows_at([4]) == shown.slice(4, 1)
    for wrong in (-1, last + 1, 1 << 62):
        with pytest.raises(InvalidArgumentError, match=f"from 0 to {last + 1:,}, exclusive"):
            table.rows_at([0, wrong])
    for wrong in (5, "12", [1.5], [True], [None], None):
        with pytest.raises((TypeError, InvalidArgumentError), match="positions"):
            table.rows_at(wrong)
    with pytest.raises(ColumnNotFoundError):
        table.rows_at([1], columns=["z"])


def test_positions_are_those_of_the_snapshot_that_the_object_sees(tmp_path):
    table = append_table(tmp_path / "t")
    pinned = Table.open(tmp_path / "t")
    before = pinned.rows_at([0, 1_499])
    table.delete("id < 10")
    assert table.rows_at([0])["id"].to_pylist() == [10]
    assert pinned.rows_at([0, 1_499]) == before
    pinned.refresh()
    assert pinned.rows_at([0])["id"].to_pylist() == [10]
    assert Table.create(tmp_path / "e", table.schema.to_arrow()).rows_at([]).num_rows == 0


def test_rows_at_positions_cost_their_pages_alone(tmp_path, monkeypatch):
    """Files are opened once, and a call asks for the pages of its rows alone."""
    properties = {"file.profile": "random"}
    table = Table.create(tmp_path / "t", pa.schema({"x": pa.float64()}), properties=properties)
    values = np.random.default_rng(0).random(250_000)
    table.append({"x": values[:200_000]})
    table.append({"x": values[200_000:]})
    scans = []
    make = training_blocks.PositionReader
    monkeypatch.setattr(
        training_blocks, "PositionReader", lambda scan: scans.append(scan) or make(scan)
    )
    assert table.rows_at([3])["x"].to_pylist() == [values[3]]
    (scan,) = scans
    before = scan.io_stats
    assert before["files"] == 1
    for position in (4, 90_000, 199_999):
        assert table.rows_at([position])["x"].to_pylist() == [values[position]]
        now = scan.io_stats
        assert (now["files"], now["requests"] - before["requests"]) == (1, 1)
        assert now["bytes_requested"] - before["bytes_requested"] <= 65_536 * 8 + 64  # a page
        before = now
    table.rows_at([5, 230_000])
    assert scan.io_stats["files"] == 2
    assert len(scans) == 1


def test_positions_are_refused_when_their_snapshot_has_expired(tmp_path):
    table = append_table(tmp_path / "t")
    old = Table.open(tmp_path / "t", version=table.snapshot.id)
    table.compact()
    table.expire_snapshots(retain_last=1, older_than="0s")
    with pytest.raises(VersionNotFound, match="snapshot 2"):
        old.rows_at([0])


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 80)),
        st.tuples(st.just("delete"), st.integers(2, 9)),
        st.tuples(st.just("update"), st.integers(2, 9)),
        st.tuples(st.just("compact"), st.just(0)),
    ),
    min_size=1,
    max_size=6,
)


@given(
    operations=OPERATIONS,
    lanes=st.integers(1, 9),
    step_rows=st.sampled_from([12, 60]),
    filter=st.sampled_from([None, "x > 20"]),
    stopped=st.integers(0, 8),
)
def test_random_histories(tmp_path_factory, operations, lanes, step_rows, filter, stopped):
    table = Table.create(tmp_path_factory.mktemp("t") / "t", {"id": [0], "x": [0.0]})
    count = 1
    for kind, number in operations:
        if kind == "append":
            ids = np.arange(count, count + number)
            table.append({"id": ids, "x": ids * 1.0})
            count += number
        elif kind == "delete":
            table.delete(f"id % {number} = 1")
        elif kind == "update":
            table.update(f"id % {number} = 0", {"x": "x + 1"})
        else:
            table.compact()
    scan = table.scan(filter=filter)
    options = {"lanes": lanes, "window_rows": 50, "seed": 9}
    expected = rows_of(scan)["id"].to_pylist()
    steps = None
    for world_size in (1, 3):
        readers = [
            scan.training(
                batch_rows=step_rows // world_size, rank=rank, world_size=world_size, **options
            )
            for rank in range(world_size)
        ]
        by_rank = [[batch["id"].tolist() for batch in reader] for reader in readers]
        union = [list(chain(*step)) for step in zip(*by_rank, strict=True)]
        assert steps is None or union == steps
        steps = union
    assert sorted(chain(*steps)) == expected
    reader = scan.training(batch_rows=step_rows, **options)
    epoch = reader.epoch(0)
    seen = [batch["id"].tolist() for batch in islice(epoch, stopped)]
    if 0 < len(seen) < len(steps):
        other = scan.training(batch_rows=step_rows // 2, rank=0, world_size=2, **options)
        other.load_state_dict(reader.state_dict())
        second = scan.training(batch_rows=step_rows // 2, rank=1, world_size=2, **options)
        second.load_state_dict(reader.state_dict())
        rest = [batch["id"].tolist() for each in (other, second) for batch in each]
        assert sorted(chain(*seen, *rest)) == expected
