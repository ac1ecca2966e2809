"""Training that is killed at any moment goes on with exactly the rows that are left."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from fermion_table import Scan, Table

HISTORIES = int(os.environ.get("TRAINING_HISTORIES", "100"))
"""Processes are killed so often; the long run asks for 10,000."""
ROWS = 3_000
STEP_ROWS = 96


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> list[Scan]:
    """Of an append table with deleted rows, and of a keyed one with rows to merge."""
    folder = tmp_path_factory.mktemp("training")
    plain = Table.create(folder / "plain", {"id": np.arange(ROWS // 2)})
    plain.append({"id": np.arange(ROWS // 2, ROWS)})
    plain.delete("id % 11 = 0")
    keyed = Table.create(folder / "keyed", plain.schema.to_arrow(), primary_key=["id"])
    for start in (0, 1_000, 500):
        keyed.upsert({"id": np.arange(start, start + 1_500)})
    return [plain.scan(), keyed.scan()]


def train(scan: Scan, folder: Path, rank: int, world_size: int, state: dict | None) -> None:
    """A rank's process: after each batch its rows are logged, then the state is stored."""
    reader = scan.training(
        batch_rows=STEP_ROWS // world_size,
        rank=rank,
        world_size=world_size,
        lanes=6,
        window_rows=700,
        threads=2,
    )
    if state is not None:
        reader.load_state_dict(state)
    with (folder / f"log-{rank}").open("a") as log:
        for batch in reader:
            place = reader.state_dict()
            print(json.dumps([place["place"], batch["id"].tolist()]), file=log, flush=True)
            draft = folder / f"draft-{rank}"
            draft.write_text(json.dumps(place))
            draft.replace(folder / f"state-{rank}")
            time.sleep(0.0005)  # the model


def killed(scan: Scan, folder: Path, world_size: int, state: dict | None, seconds: float) -> None:
    """Train in a process for each rank, and kill all of them after some time."""
    children = []
    for rank in range(world_size):
        child = os.fork()
        if not child:
            try:
                train(scan, folder, rank, world_size, state)
            finally:
                os._exit(0)
        children.append(child)
    time.sleep(seconds)
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


def logged(folder: Path, world_size: int, end: int) -> list[int]:
    """The rows of all ranks up to a place of the order."""
    rows = []
    for rank in range(world_size):
        lines = (folder / f"log-{rank}").read_text().split("\n")[:-1]
        steps = [json.loads(line) for line in lines]
        rows += [number for place, ids in steps if place <= end for number in ids]
    return rows


def stored(folder: Path, world_size: int) -> dict | None:
    """The state that every rank has reached; None: not every rank has stored one."""
    states = [folder / f"state-{rank}" for rank in range(world_size)]
    if not all(state.exists() for state in states):
        return None
    read = [json.loads(state.read_text()) for state in states]
    if any(state["epoch"] for state in read):
        return None  # a rank has ended its epoch; its last state is of the next one
    return min(read, key=lambda state: state["place"])


@pytest.mark.timeout(1_800)
def test_no_row_is_lost_or_repeated_when_processes_are_killed(
    scans: list[Scan], tmp_path: Path
) -> None:
    """Killed at random moments, again and again, with another number of ranks each time."""
    chosen = random.Random(1)
    resumed = 0
    for history in range(HISTORIES):
        scan = scans[history % len(scans)]
        expected = sorted(scan.to_arrow()["id"].to_pylist())
        rows: list[int] = []
        state = None
        for attempt in range(2):
            folder = tmp_path / f"{history}-{attempt}"
            folder.mkdir()
            world_size = chosen.choice([1, 2, 3])
            killed(scan, folder, world_size, state, chosen.uniform(0.005, 0.08))
            reached = stored(folder, world_size)
            if reached is not None:
                rows += logged(folder, world_size, reached["place"])
                state, resumed = reached, resumed + 1
        last = scan.training(batch_rows=50, rank=0, world_size=1, lanes=6, window_rows=700)
        if state is not None:
            last.load_state_dict(state)
        rows += [number for batch in last for number in batch["id"].tolist()]
        assert sorted(rows) == expected, history
    assert resumed >= HISTORIES // 10  # otherwise nothing was tried
