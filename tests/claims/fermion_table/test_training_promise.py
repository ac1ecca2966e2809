"""What training promises, over random tables, orders, ranks and workers.

For the same rows, seed, epoch, lanes and rows of a step the ranks together give the same rows in
each step, whatever their number and that of their workers is; every live row comes once an epoch;
and an epoch that was stopped goes on with exactly the rows that are left, with other ranks, from a
copy of the state as JSON, when the table has moved on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.engine import TrainingOptions, TrainingReader
from fermion_table import Scan, Table
from fermion_table.scanning.training_blocks import ScanBlocks

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
Steps = list[list[int]]


def plain_table(path: Path, operations: list[tuple[str, int]]) -> Table:
    """Appends, deletes, updates, added columns and compactions."""
    table = Table.create(path, SCHEMA, durability="fast")
    count = 0
    for kind, number in [("append", 30), *operations]:
        if kind == "append":
            ids = np.arange(count, count + number)
            table.append({"id": ids, "x": ids * 0.5})
            count += number
        elif kind == "delete":
            table.delete(f"id % {number % 7 + 2} = 1")
        elif kind == "update":
            table.update(f"id % {number % 7 + 2} = 0", {"x": "x + 1"})
        elif kind == "columns" and "y" not in table.columns:
            table.add_columns_with({"y": "x * 2"})
        elif kind == "compact":
            table.compact()
    return table


def keyed_table(path: Path, operations: list[tuple[str, int]]) -> Table:
    """Upserts and deletions whose runs are merged or not."""
    table = Table.create(path, SCHEMA, primary_key=["id"], durability="fast")
    for kind, number in [("append", 30), *operations]:
        if kind == "append":
            ids = np.arange(number // 3, number // 3 + number)
            table.upsert({"id": ids, "x": ids * 0.5})
        elif kind == "delete":
            table.delete_keys(list(range(number % 40)))
        elif kind == "compact":
            table.compact(full=True)
    return table


def batch_table(path: Path, operations: list[tuple[str, int]]) -> Table:
    """Rows in batches; some ids come several times."""
    table = Table.create(path, SCHEMA, durability="fast")
    count = 0
    for place, (kind, number) in enumerate([("append", 30), *operations]):
        if kind == "delete":
            table.delete(f"id % {number % 7 + 2} = 1")
            continue
        rows = number % 9 + 1
        starts = range(count, count + 4 * rows, rows)
        batches = [np.arange(start, start + rows) for start in starts]
        numbers = [batch + place // 2 for batch in range(4)]
        given = [{"id": ids, "x": ids * 0.5} for ids in batches]
        table.append_batches(zip(numbers, given, strict=True))
        count += 4 * rows
    return table


KINDS: dict[str, Callable[[Path, list[tuple[str, int]]], Table]] = {
    "plain": plain_table,
    "keyed": keyed_table,
    "batches": batch_table,
}
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "delete", "update", "columns", "compact"]),
        st.integers(1, 90),
    ),
    max_size=6,
)


@dataclass(frozen=True)
class Order:
    """What the order of the rows depends on, beside them."""

    shuffle: Any
    seed: int
    epoch: int
    lanes: int
    window_rows: int

    def reader(
        self, source: ScanBlocks, batch_rows: int, rank: int, world_size: int, last: Any = "short"
    ) -> TrainingReader:
        options = TrainingOptions(
            batch_rows=batch_rows,
            seed=self.seed,
            shuffle=self.shuffle,
            rank=rank,
            world_size=world_size,
            last=last,
            lanes=self.lanes,
            window_rows=self.window_rows,
            threads=1,
            mask=True,
        )
        return TrainingReader(source, options)


ORDERS = st.builds(
    Order,
    shuffle=st.sampled_from(["rows", "blocks", None]),
    seed=st.integers(0, 2**70),
    epoch=st.integers(0, 5),
    lanes=st.integers(1, 80),
    window_rows=st.integers(1, 500),
)
FILTERS = st.sampled_from([None, None, "id % 3 = 0", "x > 20", "id < 0"])
RANKS, WORKERS = st.integers(1, 64), st.integers(0, 8)


def batches_of(
    order: Order,
    source: ScanBlocks,
    batch_rows: int,
    rank: int,
    world_size: int,
    workers: int,
    **options: Any,
) -> Iterator[list[int]]:
    """A rank's batches, as a loader with workers takes them: one of each worker in turn."""
    count = max(workers, 1)
    streams = [
        order.reader(source, batch_rows, rank, world_size, **options).batches_from(
            order.epoch, worker=worker, workers=count
        )
        for worker in range(count)
    ]
    step = 0
    while (batch := next(streams[step % count], None)) is not None:
        assert batch.step == step
        yield batch["id"].tolist()
        step += 1
    assert all(next(stream, None) is None for stream in streams)


def union(
    order: Order,
    source: ScanBlocks,
    step_rows: int,
    world_size: int,
    workers: int = 0,
    **options: Any,
) -> Steps:
    """Each global step: the rows of all ranks, rank after rank."""
    by_rank = [
        list(
            batches_of(order, source, step_rows // world_size, rank, world_size, workers, **options)
        )
        for rank in range(world_size)
    ]
    return [list(chain(*step)) for step in zip(*by_rank, strict=True)]


def ids_of(scan: Scan) -> list[int]:
    return sorted(scan.to_arrow()["id"].to_pylist())


def check_steps(
    folder: Path,
    kind: str,
    operations: Any,
    order: Order,
    filter: str | None,
    world_size: int,
    workers: int,
    batch_rows: int,
) -> None:
    """The same steps for one rank without workers and for many with them; each row once."""
    scan = KINDS[kind](folder / "t", operations).scan(filter=filter)
    if kind == "batches" and filter is None:
        order = replace(order, shuffle="batches")
    source, step_rows = ScanBlocks(scan), world_size * batch_rows
    alone = union(order, source, step_rows, 1)
    shared = union(order, source, step_rows, world_size, workers)
    if order.shuffle == "batches":  # a rank takes whole batches: another arrangement of the step
        assert [sorted(step) for step in shared] == [sorted(step) for step in alone]
    else:
        assert shared == alone
    expected = ids_of(scan)
    assert sorted(chain(*alone)) == expected
    if order.shuffle == "batches":
        return
    rows = int(source.slots.sum())
    if rows >= step_rows:
        dropped = union(order, source, step_rows, world_size, last="drop")
        assert dropped == alone[: rows // step_rows]
    if rows:
        repeated = union(order, source, step_rows, world_size, last="repeat")
        assert len(repeated) == math.ceil(rows / step_rows)
        assert set(chain(*repeated)) == set(expected)


def check_resume(
    folder: Path,
    kind: str,
    operations: Any,
    later: Any,
    order: Order,
    filter: str | None,
    before: int,
    after: int,
    stopped: int,
) -> None:
    """Ranks that stop after some step, and others that give the rest of the same snapshot."""
    table = KINDS[kind](folder / "t", operations)
    scan = table.scan(filter=filter)
    if kind == "batches" and filter is None:
        order = replace(order, shuffle="batches")
    source = ScanBlocks(scan)
    readers = [order.reader(source, 7, rank, before) for rank in range(before)]
    seen: list[int] = []
    for reader in readers:
        epoch = reader.epoch(order.epoch)
        seen += chain(*(batch["id"].tolist() for batch in islice(epoch, stopped)))
    stored = {json.dumps(reader.state_dict()) for reader in readers}
    assert len(stored) == 1  # it does not depend on the rank
    (text,) = stored
    assert len(text) < 2_000
    state = json.loads(text)
    if state["epoch"] != order.epoch or not state["step"]:
        return  # the epoch has ended, or nothing was taken
    for kind_later, number in later:  # the table moves on
        if kind_later == "append":
            rows = {"id": np.arange(10_000, 10_000 + number), "x": np.zeros(number)}
            (table.upsert if table.primary_key else table.append)(rows)
        elif kind_later == "compact":
            table.compact()
        elif kind_later == "delete" and not table.primary_key:
            table.delete(f"id % {number % 7 + 2} = 0")
    again = Table.open(folder / "t").scan(filter=filter, version=state["plan"]["snapshot"])
    rest: list[int] = []
    source = ScanBlocks(again)
    for rank in range(after):
        reader = order.reader(source, 3, rank, after)
        reader.load_state_dict(state)
        rest += chain(*(batch["id"].tolist() for batch in reader))
    assert sorted([*seen, *rest]) == ids_of(scan)


STEPS = {
    "kind": st.sampled_from(sorted(KINDS)),
    "operations": OPERATIONS,
    "order": ORDERS,
    "filter": FILTERS,
    "world_size": RANKS,
    "workers": WORKERS,
    "batch_rows": st.integers(1, 20),
}
RESUMED = {
    **{name: STEPS[name] for name in ("kind", "operations", "order", "filter")},
    "later": OPERATIONS,
    "before": st.integers(1, 64),
    "after": st.integers(1, 64),
    "stopped": st.integers(1, 12),
}


@pytest.mark.long
@settings(max_examples=20)
@given(**STEPS)
def test_a_step_is_the_same_for_all_ranks_and_workers(
    tmp_path_factory: pytest.TempPathFactory, **case: Any
) -> None:
    """20 tables; the long form below tries 2,000."""
    check_steps(tmp_path_factory.mktemp("t"), **case)


@pytest.mark.long
@given(**RESUMED)
def test_a_stopped_epoch_goes_on_with_the_rows_that_are_left(
    tmp_path_factory: pytest.TempPathFactory, **case: Any
) -> None:
    check_resume(tmp_path_factory.mktemp("t"), **case)


@pytest.mark.slow
@pytest.mark.timeout(0)
@settings(max_examples=2_000, derandomize=False)
@given(**STEPS)
def test_steps_of_thousands_of_tables(
    tmp_path_factory: pytest.TempPathFactory, **case: Any
) -> None:
    check_steps(tmp_path_factory.mktemp("t"), **case)


@pytest.mark.slow
@pytest.mark.timeout(0)
@settings(max_examples=2_000, derandomize=False)
@given(**RESUMED)
def test_resumes_of_thousands_of_tables(
    tmp_path_factory: pytest.TempPathFactory, **case: Any
) -> None:
    check_resume(tmp_path_factory.mktemp("t"), **case)
