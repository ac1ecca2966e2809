"""Work on much more data than memory, reading to training: bounded address space."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 2**20
ALLOWED = 320 * MIB
"""Address space that an operation may take beyond what the process has once all is imported."""
ALLOWED_OF = {
    "join": 448 * MIB,  # a partition of 128 MiB is mapped, searched and copied out
    "train": 200 * MIB,  # a window of 16 MiB, and the files are mapped
}

PROGRAM = """
import sys
import numpy as np
import pyarrow as pa
import fermion
from fermion_table import Table
from tests.kit.files.mutations import memory_limit

what, path, mebibytes, allowed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
schema = pa.schema([("id", pa.int64()), ("value", pa.float64())])
rows = 2**16  # 1 MiB

def batches(count, first=0):
    for number in range(first, first + count):
        dice = np.random.default_rng(number)
        ids = np.arange(number * rows, (number + 1) * rows)
        yield pa.record_batch([pa.array(ids), pa.array(dice.random(rows))], schema=schema)

def reader(count, first=0):
    return pa.RecordBatchReader.from_batches(schema, batches(count, first))

if what == "read":
    with fermion.Writer(path, schema) as writer:
        for batch in batches(mebibytes):
            writer.write(batch)
    pa.default_memory_pool().release_unused()
    total = 0
    with memory_limit(allowed), fermion.open(path) as file:
        for batch in file.iter_batches():
            total += batch.num_rows
            assert batch["id"][0].as_py() % rows == 0 or batch.num_rows < rows
elif what == "append":
    table = Table.create(path, schema, durability="fast")
    with memory_limit(allowed):
        table.append(reader(mebibytes))
    total = table.scan().count()
elif what == "train":
    table = Table.create(path, schema, durability="fast")
    table.append(reader(mebibytes))
    pa.default_memory_pool().release_unused()
    total = 0
    with memory_limit(allowed):
        for batch in table.scan().training(batch_rows=8_192, threads=2).epoch(0):
            total += len(batch)
elif what == "join":
    # 1 MiB is 4,096 rows of 30 features, key and time; each row is one label's features.
    from fermion_table.training import FeatureSource, training_frame

    rows, piece = 2**12, 16
    features = [f"f_{number}" for number in range(30)]

    def source(first, count):
        ids = np.arange(first * rows, (first + count) * rows)
        columns = {name: ids + number for number, name in enumerate(features)}
        return pa.table({"id": ids, "time": ids.astype("M8[s]"), **columns})

    table = None
    for first in range(0, mebibytes, piece):
        part = source(first, min(piece, mebibytes - first))
        table = Table.create(path, part) if table is None else table
        if first:
            table.append(part)
    ids = np.random.default_rng(0).permutation(mebibytes * rows)
    labels = Table.create(path + "-labels", {"id": ids, "time": ids.astype("M8[s]")})
    total = 0
    pa.default_memory_pool().release_unused()
    with memory_limit(allowed):
        frame = training_frame(labels, [FeatureSource(table, ["id"], "time", ["f_*"])])
        for batch in frame.to_batches():
            total += batch.num_rows
            assert (batch["f_7"].to_numpy() == batch["id"].to_numpy() + 7).all()
else:
    table = Table.create(path, schema, durability="fast")
    piece = 32
    for first in range(0, mebibytes, piece):
        table.append(reader(min(piece, mebibytes - first), first))
    pa.default_memory_pool().release_unused()
    with memory_limit(allowed):
        result = table.compact(threads=1, target_size="256MB")
    assert result.files_after < result.files_before
    total = table.scan().count()
assert total == mebibytes * rows, total
"""


def run(what: str, path: Path, mebibytes: int, environment: dict[str, str]) -> None:
    """Do it in a process of its own, under its limit."""
    allowed = ALLOWED_OF.get(what, ALLOWED)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, str(path), str(mebibytes), str(allowed)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


@pytest.mark.long
@pytest.mark.parametrize("what", ["read", "append", "compact"])
def test_more_than_the_memory_allowed_is_worked_through(
    what: str, tmp_path: Path, project_environment: dict[str, str]
) -> None:
    """400 MiB of values, of which most don't compress, within 320 MiB."""
    run(what, tmp_path / "x", 400, project_environment)


@pytest.mark.long
def test_features_are_joined_in_bounded_memory(
    tmp_path: Path, project_environment: dict[str, str]
) -> None:
    """700 MiB of features with their labels in random order, within 448 MiB."""
    run("join", tmp_path / "x", 700, project_environment)


@pytest.mark.long
def test_a_table_larger_than_memory_is_trained_from(
    tmp_path: Path, project_environment: dict[str, str]
) -> None:
    """256 MiB of values, which the default window shuffles, within 200 MiB."""
    run("train", tmp_path / "x", 256, project_environment)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("what", "mebibytes"),
    [("read", 2_500), ("append", 5_000), ("compact", 5_120), ("join", 2_500), ("train", 2_500)],
)
def test_gigabytes_are_worked_through_within_the_same_memory(
    what: str, mebibytes: int, tmp_path: Path, project_environment: dict[str, str]
) -> None:
    run(what, tmp_path / "x", mebibytes, project_environment)
    done = {
        "read": "read",
        "append": "appended",
        "compact": "compacted",
        "join": "joined",
        "train": "trained from",
    }[what]
    allowed = ALLOWED_OF.get(what, ALLOWED)
    print("soak:", json.dumps({f"MiB {done} within {allowed // MIB} MiB": mebibytes}))
