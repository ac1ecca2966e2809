"""Training that is killed at any moment goes on with exactly the rows that are left.

A history: processes that train are killed with SIGKILL twice, each time with another number of
ranks and of workers; then a reader gives the rest. They are forked from this process, where files
are open already.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fermion.engine import TrainingBatch, TrainingOptions, TrainingReader
from fermion_table import Table
from fermion_table.scanning.training_blocks import ScanBlocks

FIRST = int(os.environ.get("FERMION_SEED_FIRST", "0"))
END = int(os.environ.get("FERMION_SEED_END", "10000"))
ROWS = 1_500
STEP_ROWS = 48
RANKS = (1, 1, 1, 2, 2, 3, 4, 5, 8, 13, 32, 64)
WORKERS = (0, 0, 0, 1, 2, 3, 4, 8)
READERS_MAX = 64
"""Of an attempt, ranks times workers; more only in one of twenty."""
SECONDS_MAX = 0.02
"""From the first batch to the kill."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[ScanBlocks]:
    """An append table with deleted rows, and a keyed one with rows to merge; both were read."""
    folder = tmp_path_factory.mktemp("training")
    plain = Table.create(folder / "plain", {"id": np.arange(ROWS // 2)}, durability="fast")
    plain.append({"id": np.arange(ROWS // 2, ROWS)})
    plain.delete("id % 11 = 0")
    keyed = Table.create(folder / "keyed", plain.schema.to_arrow(), primary_key=["id"])
    for start in (0, 500, 250):
        keyed.upsert({"id": np.arange(start, start + 750)})
    sources = [ScanBlocks(table.scan()) for table in (plain, keyed)]
    for source in sources:
        assert list(rows_of(make_reader(source)))
    return sources


def make_reader(source: ScanBlocks, rank: int = 0, world_size: int = 1) -> TrainingReader:
    options = TrainingOptions(
        batch_rows=max(STEP_ROWS // world_size, 1),
        rank=rank,
        world_size=world_size,
        lanes=6,
        window_rows=350,
        threads=1,
    )
    return TrainingReader(source, options)


def rows_of(reader: TrainingReader) -> Iterator[int]:
    return (number for batch in reader for number in batch["id"].tolist())


def batches_of_rank(
    source: ScanBlocks, rank: int, world_size: int, workers: int, state: dict[str, Any] | None
) -> Iterator[tuple[TrainingBatch, dict[str, Any]]]:
    """The batches as a loader with workers gives them, each with the state after it."""
    readers = [make_reader(source, rank, world_size) for _ in range(max(workers, 1))]
    if state is not None:
        for reader in readers:
            reader.load_state_dict(state)
    start = readers[0].state_dict()
    streams = [
        reader.batches_from(0, start["place"], start["step"], worker=number, workers=len(readers))
        for number, reader in enumerate(readers)
    ]
    step = start["step"]
    while (batch := next(streams[step % len(streams)], None)) is not None:
        yield batch, readers[step % len(streams)].state_dict()
        step += 1


def train(
    source: ScanBlocks,
    folder: Path,
    ranks: range,
    world_size: int,
    workers: int,
    state: Any,
    begun: int,
) -> None:
    """Some ranks in turn: the rows of each batch are logged, then the rank's state is stored."""
    streams = [batches_of_rank(source, rank, world_size, workers, state) for rank in ranks]
    with (folder / f"log-{ranks.start}").open("w") as log:
        while True:
            for rank, stream in zip(ranks, streams, strict=True):
                batch, reached = next(stream, (None, None))
                if batch is None:
                    return
                print(json.dumps([reached["place"], batch["id"].tolist()]), file=log, flush=True)
                draft = folder / f"draft-{rank}"
                draft.write_text(json.dumps(reached))
                draft.replace(folder / f"state-{rank}")
            os.write(begun, b".")


def killed(
    source: ScanBlocks,
    folder: Path,
    world_size: int,
    workers: int,
    state: Any,
    chosen: random.Random,
) -> None:
    """Train in one to three processes, and kill them some time after the first step of each."""
    processes = min(chosen.choice((1, 1, 1, 2, 3)), world_size)
    cuts = [world_size * number // processes for number in range(processes + 1)]
    children = []
    for first, stop in itertools.pairwise(cuts):
        reading, begun = os.pipe()
        child = os.fork()
        if not child:
            try:
                train(source, folder, range(first, stop), world_size, workers, state, begun)
            finally:
                os._exit(0)
        os.close(begun)
        children.append((child, reading))
    for _, reading in children:
        os.read(reading, 1)  # ends where the process does, too
    time.sleep(chosen.uniform(0, SECONDS_MAX))
    for child, _ in children:
        os.kill(child, signal.SIGKILL)
    for child, reading in children:
        os.waitpid(child, 0)
        os.close(reading)


def logged(folder: Path, end: int) -> list[int]:
    """The rows of all ranks up to a place of the order."""
    lines = [line for log in folder.glob("log-*") for line in log.read_text().split("\n")[:-1]]
    return [number for place, ids in map(json.loads, lines) if place <= end for number in ids]


def stored(folder: Path, world_size: int) -> dict[str, Any] | None:
    """The state that every rank has reached; None: not every rank has stored one."""
    states = [folder / f"state-{rank}" for rank in range(world_size)]
    if not all(state.exists() for state in states):
        return None
    return min(
        (json.loads(state.read_text()) for state in states), key=lambda state: state["place"]
    )


def run_history(number: int, source: ScanBlocks, expected: list[int], folder: Path) -> int:
    """One history; how often processes were killed within the epoch."""
    chosen = random.Random(number)
    rows: list[int] = []
    state, killed_within = None, 0
    for attempt in range(2):
        own = folder / f"{number}-{attempt}"
        own.mkdir()
        world_size, workers = chosen.choice(RANKS), chosen.choice(WORKERS)
        if world_size * workers > READERS_MAX and chosen.random() > 0.05:
            workers = 0
        killed(source, own, world_size, workers, state, chosen)
        reached = stored(own, world_size)
        if reached is not None:
            rows += logged(own, reached["place"])
            state = reached
            killed_within += reached["place"] < reached["plan"]["slots"]
        for path in own.iterdir():
            path.unlink()
    last = make_reader(source)
    if state is not None:
        last.load_state_dict(state)
    rows += rows_of(last)
    assert sorted(rows) == expected, f"history {number}"
    return killed_within


def run_histories(sources: list[ScanBlocks], folder: Path, first: int, end: int) -> None:
    expected = [sorted(rows_of(make_reader(source))) for source in sources]
    killed_within = sum(
        run_history(number, sources[number % 2], expected[number % 2], folder)
        for number in range(first, end)
    )
    counts = {"histories": end - first, "kills within an epoch": killed_within}
    print(f"soak: {json.dumps(counts)}")
    assert killed_within >= end - first  # otherwise little was tried


@pytest.mark.long
def test_no_row_is_lost_or_repeated_when_processes_are_killed(
    sources: list[ScanBlocks], tmp_path: Path
) -> None:
    """Killed at random moments, with another number of ranks and workers each time.

    100 histories; the long form below runs 10,000.
    """
    run_histories(sources, tmp_path, 0, 100)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_row_is_lost_or_repeated_in_thousands_of_histories(
    sources: list[ScanBlocks], tmp_path: Path
) -> None:
    """The same, as many as the environment says."""
    run_histories(sources, tmp_path, FIRST, END)
