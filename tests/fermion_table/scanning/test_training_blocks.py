"""Training from tables of every kind: each live row once an epoch, from one snapshot."""

import json
import pickle
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import Table, VersionNotFound


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
