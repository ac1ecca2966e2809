"""Libraries that train take rows by their own interfaces: Hugging Face, Grain, Ray Data."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.training import TrainingReader

pytestmark = pytest.mark.timeout(600)  # a process that hangs is a failure
NOT_HERE = "is not installed here: make test-recipes has it"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", {"x": np.arange(600), "name": list(map(str, range(600)))})
    table.append({"x": np.arange(600, 1_000), "name": list(map(str, range(600, 1_000)))})
    table.delete("x % 10 = 3")
    return table


def reader_of(table: Table, **options: Any) -> TrainingReader:
    scan = table.scan(filter="x < 950")
    return scan.training(**{"batch_rows": 64, "seed": 4, "lanes": 5, "window_rows": 300, **options})


@pytest.mark.parametrize(
    "options", [{}, {"last": "repeat"}, {"shuffle": None}, {"rank": 1, "world_size": 3}]
)
def test_batches_are_found_by_their_numbers(table: Table, options: dict[str, Any]) -> None:
    """In any order, also in a pickle; a sequence as Python's are."""
    reader = reader_of(table, **options)
    expected = [batch["x"].tolist() for batch in reader.epoch(2)]
    batches = reader.batches(2)
    assert len(batches) == len(expected)
    order = np.random.default_rng(0).permutation(len(expected))
    for each in (batches, pickle.loads(pickle.dumps(batches))):
        assert all(each[step]["x"].tolist() == expected[step] for step in order)
    assert [batch["x"].tolist() for batch in batches] == expected
    assert batches[-1]["x"].tolist() == expected[-1]
    assert batches[3].step == 3
    for outside in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError, match="batches"):
            batches[outside]
    with pytest.raises(TypeError, match="step"):
        batches[1.5]  # type: ignore[index]


def test_whole_batch_ids_are_found_by_their_numbers(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]))
    table.append_batches((number, {"x": np.full(number % 7 + 1, number)}) for number in range(50))
    reader = table.scan().training(batch_rows=9, shuffle="batches")
    expected = [batch["x"].tolist() for batch in reader]
    batches = reader.batches(0)
    assert [batches[step]["x"].tolist() for step in reversed(range(len(batches)))] == expected[::-1]


def test_random_access_holds_no_more_than_two_windows_of_a_lane(table: Table) -> None:
    """However far it goes to and fro."""
    batches = reader_of(table, batch_rows=10, window_rows=100, lanes=2).batches(0)
    for step in [*range(0, 80, 7), *reversed(range(80)), 5, 70, 6]:
        batches[step]
    windows = batches._steps.get()._windows  # type: ignore[attr-defined]
    assert all(len(of_lane) <= 2 for of_lane in windows.values())


def test_a_forked_process_reads_batches_of_its_parent(table: Table) -> None:
    batches = reader_of(table).batches(0)
    expected = batches[0]["x"].sum(), batches[9]["x"].sum()
    child = os.fork()
    if not child:
        found = batches[0]["x"].sum(), batches[9]["x"].sum()
        os._exit(0 if found == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_columns_are_given_to_jax_without_a_copy(table: Table) -> None:
    """By DLPack, as `jax.dlpack.from_dlpack` takes arrays."""
    batch = next(reader_of(table).epoch(0))
    given = np.from_dlpack(batch["x"])
    assert np.shares_memory(given, batch["x"])


def rows_of_datasets(table: Table, epoch: int = 0) -> Any:
    pytest.importorskip("datasets", reason=f"datasets {NOT_HERE}")
    return reader_of(table).hugging_face_dataset(epoch)


def test_hugging_face_takes_rows_and_goes_on_at_any_row(table: Table) -> None:
    """Its state is exact, also as JSON, in the middle of a batch."""
    dataset = rows_of_datasets(table)
    expected = [int(x) for batch in reader_of(table).epoch(0) for x in batch["x"]]
    assert [row["x"] for row in dataset] == expected
    assert next(iter(dataset)) == {"x": expected[0], "name": str(expected[0])}
    assert dataset.features is not None
    for stopped in (1, 64, 100, 500):
        dataset = rows_of_datasets(table)
        taken = iter(dataset)
        seen = [next(taken)["x"] for _ in range(stopped)]
        state = json.loads(json.dumps(dataset.state_dict()))
        again = rows_of_datasets(table)
        again.load_state_dict(state)
        assert seen + [row["x"] for row in again] == expected


def test_hugging_face_goes_on_without_reading_what_came_before(table: Table) -> None:
    """Batches that were given out are not made again."""
    dataset = rows_of_datasets(table)
    taken = iter(dataset)
    for _ in range(64 * 10 + 5):
        next(taken)
    reader = reader_of(table)
    made = []
    make = reader._batch
    reader._batch = lambda *given: made.append(given[3]) or make(*given)  # type: ignore
    again = reader.hugging_face_dataset()
    again.load_state_dict(dataset.state_dict())
    assert len(list(again)) == 855 - 64 * 10 - 5
    steps = len(reader)
    assert made == list(range(min(made), steps))
    assert min(made) >= 9


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_the_batches_of_hugging_face(table: Table, workers: int) -> None:
    torch = pytest.importorskip("torch", reason=f"torch {NOT_HERE}")
    dataset = rows_of_datasets(table).with_format("torch")
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, num_workers=workers)
    found = torch.cat([batch["x"] for batch in loader]).tolist()
    assert sorted(found) == sorted(x for b in reader_of(table) for x in b["x"].tolist())


def test_grain_takes_batches_and_rows(table: Table) -> None:
    """As a source of random access, with threads and with states of its own."""
    grain = pytest.importorskip("grain", reason=f"grain {NOT_HERE}")
    reader = reader_of(table)
    expected = [batch["x"].tolist() for batch in reader.epoch(0)]
    steps = grain.MapDataset.source(reader.batches(0)).map(dict)
    assert [step["x"].tolist() for step in steps.to_iter_dataset()] == expected
    shuffled = grain.MapDataset.source(reader.batches(0)).shuffle(seed=1).map(dict)
    assert sorted(step["x"].tolist() for step in shuffled.to_iter_dataset()) == sorted(expected)
    taken = iter(steps.to_iter_dataset())
    seen = [next(taken)["x"].tolist() for _ in range(5)]
    state = json.loads(json.dumps(taken.get_state()))
    again = iter(steps.to_iter_dataset())
    again.set_state(state)
    assert seen + [step["x"].tolist() for step in again] == expected


def test_grain_reads_batches_in_processes(table: Table) -> None:
    grain = pytest.importorskip("grain", reason=f"grain {NOT_HERE}")
    reader = reader_of(table)
    loader = grain.DataLoader(
        data_source=reader.batches(1),
        sampler=grain.samplers.SequentialSampler(len(reader), grain.sharding.NoSharding()),
        worker_count=2,
    )
    found = [batch["x"].tolist() for batch in loader]
    assert sorted(found) == sorted(batch["x"].tolist() for batch in reader.epoch(1))


@pytest.fixture(scope="module")
def ray() -> Any:
    ray = pytest.importorskip("ray", reason=f"ray {NOT_HERE}")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _system_config={"worker_niceness": 0},  # with 15, they start late on a busy machine
    )
    yield ray
    ray.shutdown()


def test_ray_reads_a_scan(ray: Any, table: Table) -> None:
    """By its tasks, one snapshot, with columns and a filter."""
    from fermion_table.training.ray_data import RayDatasource

    scan = table.scan(columns=["x"], filter="x < 950")
    dataset = ray.data.read_datasource(RayDatasource(scan), override_num_blocks=4)
    table.append({"x": [1], "name": ["after"]})
    assert dataset.schema().names == ["x"]
    assert sorted(row["x"] for row in dataset.take_all()) == sorted(
        scan.to_arrow()["x"].to_pylist()
    )
    assert dataset.limit(7).count() == 7
    with pytest.raises(InvalidArgumentError, match="limit"):
        RayDatasource(table.scan(limit=3))
    with pytest.raises(TypeError, match="scan"):
        RayDatasource(table)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [None, "x"])
def test_ray_writes_a_dataset_with_one_commit(
    ray: Any, table: Table, tmp_path: Path, key: Any
) -> None:
    from fermion_table.training.ray_data import RayDatasink, RayDatasource

    copy = Table.create(tmp_path / "copy", table.schema.to_arrow(), primary_key=key)
    before = copy.snapshot.id
    dataset = ray.data.read_datasource(RayDatasource(table.scan()), override_num_blocks=4)
    dataset.write_datasink(RayDatasink(copy, message="by ray"))
    assert copy.snapshot.id == before + 1
    assert copy.history(limit=1)[0]["message"] == "by ray"
    assert (
        copy.to_arrow().sort_by("x").equals(table.to_arrow().sort_by("x").cast(copy.scan().schema))
    )
    with pytest.raises(TypeError, match="table"):
        RayDatasink("copy")  # type: ignore[arg-type]


def test_a_dataset_of_ray_that_fails_is_not_published(
    ray: Any, table: Table, tmp_path: Path
) -> None:
    from fermion_table.training.ray_data import RayDatasink

    copy = Table.create(tmp_path / "copy", pa.schema([("id", pa.int64())]))

    def fail(rows: dict[str, Any]) -> dict[str, Any]:
        if 70 in rows["id"]:
            raise ValueError("seventy")
        return rows

    with pytest.raises(Exception, match="seventy"):
        ray.data.range(100, override_num_blocks=4).map_batches(fail).write_datasink(
            RayDatasink(copy)
        )
    assert Table.open(tmp_path / "copy").count() == 0
