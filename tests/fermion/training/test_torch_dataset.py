"""Training batches in PyTorch: the same ones whatever workers make them, and resumed by states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fermion_table import Table

torch = pytest.importorskip("torch", reason="torch is not installed here: make test-recipes has it")
pytestmark = pytest.mark.timeout(1_200)  # a worker that hangs is a failure, a busy machine is none

PROGRAM = """
import itertools, multiprocessing, sys, warnings
import torch
from fermion_table import Table
from fermion_table.training import FeatureSource, training_frame
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than processors


def main():
    scan = Table.open(sys.argv[1]).scan(columns=["x"], filter="x < 900")
    list(scan.to_batches())  # files are open, and threads run, when workers are forked
    expected = [
        [batch["x"].tolist() for batch in scan.training(batch_rows=70, seed=4).epoch(number)]
        for number in range(2)
    ]
    how = sys.argv[2]
    multiprocessing.set_forkserver_preload(["torch", "fermion_table"])
    for workers, persistent in itertools.product((2, 4), (False, True)):
        dataset = scan.training(batch_rows=70, seed=4).torch_dataset()
        loader = DataLoader(
            dataset, batch_size=None, num_workers=workers, multiprocessing_context=how,
            persistent_workers=persistent,
        )
        for epoch in (1, 0):
            dataset.set_epoch(epoch)
            found = [batch["x"].tolist() for batch in loader]
            assert found == expected[epoch], (how, workers, persistent, epoch)
        assert len(loader) == len(expected[0])
        if persistent:
            assert len(list(itertools.islice(loader, 2))) == 2  # left early
            assert [batch["x"].tolist() for batch in loader] == expected[0], (how, workers)
    loader = DataLoader(
        scan.training(batch_rows=70, seed=4).batches(1), batch_size=None, num_workers=2,
        collate_fn=dict, multiprocessing_context=how,
    )
    assert [batch["x"].tolist() for batch in loader] == expected[1]  # a map-style dataset
    frame = training_frame(
        Table.open(sys.argv[1]).scan(columns=["x", "at"]),
        [FeatureSource(Table.open(sys.argv[1]), keys=["x"], time="at", columns=["y"])],
    )
    reader = frame.training(batch_rows=70, seed=4)
    joined = [batch["y"].tolist() for batch in reader.epoch(0)]
    dataset = reader.torch_dataset()
    dataset.set_epoch(0)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=how)
    assert [batch["y"].tolist() for batch in loader] == joined, how


if __name__ == "__main__":
    main()
"""

RANKS = """
import json, sys
import torch.distributed as dist
from fermion_table import Table

dist.init_process_group("gloo")
reader = Table.open(sys.argv[1]).scan(columns=["x"]).training(batch_rows=35, seed=4)
rows = [batch["x"].tolist() for batch in reader.epoch(0)]
gathered = [None, None]
dist.all_gather_object(gathered, rows)
if dist.get_rank() == 0:
    print(json.dumps([a + b for a, b in zip(*gathered)]))
dist.destroy_process_group()
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = pa.schema([("x", pa.int64()), ("at", pa.timestamp("us")), ("y", pa.int64())])
    table = Table.create(tmp_path / "t", schema)
    for start in range(0, 1_000, 200):
        rows = np.arange(start, start + 200)
        table.append({"x": rows, "at": rows.astype("M8[us]"), "y": rows})
    table.delete("x = 50")
    return table


def run(
    program: str, table: Table, environment: dict[str, str], *before: str, after: str = ""
) -> str:
    path = Path(table.location) / "program.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, *before, str(path), table.location, after],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_batches_are_the_same_with_every_kind_of_worker(
    table: Table, project_environment: dict[str, str], how: str
) -> None:
    """Two and four ones, persistent or not, after an early end, and of a map-style dataset."""
    run(PROGRAM, table, project_environment, after=how)


def test_batches_are_the_same_without_workers_and_after_an_early_end(table: Table) -> None:
    reader = table.scan(columns=["x"]).training(batch_rows=70, seed=4)
    expected = [[batch["x"].tolist() for batch in reader.epoch(number)] for number in range(2)]
    dataset = table.scan(columns=["x"]).training(batch_rows=70, seed=4).torch_dataset()
    loader = torch.utils.data.DataLoader(dataset, batch_size=None)
    for epoch in (1, 0):
        dataset.set_epoch(epoch)
        next(iter(loader))
        assert [batch["x"].tolist() for batch in loader] == expected[epoch]
    for wrong, error in ((-1, ValueError), ("1", TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="number"):
            dataset.set_epoch(wrong)  # type: ignore[arg-type]


def test_ranks_of_torch_distributed_share_each_step(
    table: Table, project_environment: dict[str, str]
) -> None:
    """Two processes of torchrun."""
    import json

    out = run(
        RANKS, table, project_environment, "-m", "torch.distributed.run", "--nproc-per-node=2"
    )
    alone = table.scan(columns=["x"]).training(batch_rows=70, seed=4, rank=0, world_size=1)
    assert json.loads(out) == [batch["x"].tolist() for batch in alone.epoch(0)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_goes_on_where_it_stopped(table: Table, workers: int) -> None:
    """With workers each has a state of its own."""
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed here"
    )

    def loader() -> object:
        dataset = table.scan(columns=["x"]).training(batch_rows=30, seed=1).torch_dataset()
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    expected = [batch["x"].tolist() for batch in loader()]
    first = loader()
    batches = iter(first)
    seen = [next(batches)["x"].tolist() for _ in range(7)]
    state = first.state_dict()
    del batches
    second = loader()
    second.load_state_dict(state)
    assert seen + [batch["x"].tolist() for batch in second] == expected


def test_columns_become_tensors_of_their_types(tmp_path: Path) -> None:
    """Those that share memory, jagged ones, and those that torch has no type for."""
    rows = {
        "x": np.arange(3, dtype=np.float32),
        "flag": [True, False, True],
        "vector": pa.FixedSizeListArray.from_arrays(np.arange(6, dtype=np.int16), 2),
        "items": [[1, 2], [], [3]],
        "text": ["a", "b", "c"],
        "at": np.array([5, 6, 7], "M8[ms]"),
        "day": pa.array([1, 2, 3], pa.date32()),
    }
    table = Table.create(tmp_path / "t", rows)
    (batch,) = table.scan().training(batch_rows=3, shuffle=None)
    tensors = batch.to_torch()
    batch["x"][0] = 7
    assert tensors["x"].tolist() == [7, 1, 2]
    assert tensors["flag"].dtype == torch.bool
    assert tensors["vector"].shape == (3, 2)
    assert [item.tolist() for item in tensors["items"].unbind()] == [[1, 2], [], [3]]
    assert tensors["at"].tolist() == [5, 6, 7]
    assert tensors["day"].dtype == torch.int64
    assert tensors["text"].to_pylist() == ["a", "b", "c"]
