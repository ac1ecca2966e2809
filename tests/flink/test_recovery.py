"""A changelog that is copied equals its source, whatever dies, and wherever the job goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.flink.environment import (
    FlinkProcess,
    flink_process,
    use_catalog,
    wait_until,
    with_connector,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SCHEMA = pa.schema([("p", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
COPY = (
    "INSERT INTO copy SELECT * FROM source "
    "/*+ OPTIONS('scan.poll-interval' = '100 ms', 'consumer-id' = 'copy') */"
)


def keyed(warehouse: str, name: str, buckets: int, **properties: str) -> Table:
    return Table.create(
        f"{warehouse}/default/{name}",
        SCHEMA,
        primary_key=["k"],
        properties={"bucket": str(buckets), **properties},
        durability="fast",
    )


def commit(table: Table, chosen: random.Random) -> None:
    """One of the commits that a table may get."""
    keys = chosen.sample(range(60), 20)
    what = chosen.random()
    if what < 0.2:
        table.delete(f"k = {keys[0]} OR k = {keys[1]}")
    elif what < 0.3:
        table.compact()
    elif what < 0.35:
        table.expire_snapshots(older_than="0 s", retain_last=1)
    else:
        values = [chosen.randint(0, 1000) for _ in keys]
        table.upsert({"p": [key % 2 for key in keys], "k": keys, "v": values})


def rows(table: Table) -> list[str]:
    return sorted(map(repr, Table.open(table.location).scan().to_arrow().to_pylist()))


def settings(checkpoints: Path, parallelism: int, restore: str | None) -> dict[str, str]:
    found = {
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": "300 ms",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "50",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    return found if restore is None else {**found, "execution.state-recovery.path": restore}


def last_checkpoint(folder: Path) -> str:
    done = sorted(folder.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    return f"file://{done[-1].parent}"


def kill_a_worker(process: FlinkProcess, chosen: random.Random) -> None:
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(chosen.choice(process.workers()), signal.SIGKILL)


def test_a_copied_changelog_equals_its_source_after_kills_restores_and_other_parallelism(
    tmp_path, warehouse
):
    """Three lives: workers are killed in the first, then Flink; the second goes on from a
    checkpoint with more readers, and stops with a savepoint; the third goes on from that with one.
    Snapshots expire meanwhile; only the consumer keeps what is still to be read.
    """
    chosen = random.Random(1)
    source, copy = keyed(warehouse, "source", 4), keyed(warehouse, "copy", 2)
    commit(source, random.Random(0))
    restore: str | None = None
    for life, parallelism in enumerate((2, 3, 1)):
        checkpoints, savepoints = tmp_path / f"checkpoints{life}", tmp_path / f"savepoints{life}"
        savepoints.mkdir()
        with flink_process(
            tmp_path, with_connector(settings(checkpoints, parallelism, restore))
        ) as flink:
            flink.send(*use_catalog(warehouse), COPY, batch=False, savepoints=savepoints)
            wait_until(lambda: rows(copy) == rows(source), f"life {life} has not caught up", flink)
            for _ in range(6):
                commit(source, chosen)
                if life == 0:
                    kill_a_worker(flink, chosen)
                time.sleep(0.5)
            if life == 0:
                restore = last_checkpoint(checkpoints)
                flink.kill()
                for _ in range(3):
                    commit(source, chosen)
                continue
            wait_until(lambda: rows(copy) == rows(source), f"life {life} is not equal", flink)
            for _ in range(2):
                commit(source, chosen)
            (savepoints / "stop").touch()
            [(_, (restore,))] = flink.rows()
        assert not flink.processes()
    assert rows(copy) != []


def test_workers_end_with_their_job_and_with_flink(tmp_path, warehouse):
    """After a job that is stopped the JVM lives on, but has no worker of it."""
    source, copy = keyed(warehouse, "source", 2), keyed(warehouse, "copy", 2)
    commit(source, random.Random(0))
    with flink_process(tmp_path, with_connector(settings(tmp_path / "chk", 2, None))) as flink:
        flink.send(*use_catalog(warehouse), COPY, batch=False, savepoints=tmp_path)
        wait_until(lambda: rows(copy) == rows(source), "the copy is not equal", flink)
        assert flink.workers()
        (tmp_path / "stop").touch()
        flink.rows()
        wait_until(lambda: not flink.workers(), "workers outlive their job", flink)
        assert flink.processes()
    assert not flink.processes()


def test_an_updating_query_is_upserted_while_its_source_changes(tmp_path, warehouse):
    """GROUP BY over a changelog: counts and sums of groups that grow, shrink and vanish."""
    source = keyed(warehouse, "source", 2)
    totals = Table.create(
        f"{warehouse}/default/totals",
        pa.schema([("p", pa.int64()), ("n", pa.int64()), ("v", pa.int64())]),
        primary_key=["p"],
        properties={"bucket": "1"},
    )
    chosen = random.Random(3)
    with flink_process(tmp_path, with_connector(settings(tmp_path / "chk", 2, None))) as flink:
        query = "INSERT INTO totals SELECT p, COUNT(*), SUM(v) FROM source GROUP BY p"
        flink.send(*use_catalog(warehouse), query, batch=False, savepoints=tmp_path)
        for _ in range(6):
            commit(source, chosen)
            time.sleep(0.3)
        source.delete("p = 1")

        def expected() -> list[str]:
            rows = Table.open(source.location).scan().to_arrow().group_by("p")
            summed = rows.aggregate([([], "count_all"), ("v", "sum")])
            return sorted(repr(tuple(row.values())) for row in summed.to_pylist())

        def found() -> list[str]:
            rows = Table.open(totals.location).scan(columns=["p", "n", "v"]).to_arrow()
            return sorted(repr(tuple(row.values())) for row in rows.to_pylist())

        wait_until(lambda: found() == expected(), "totals are not equal", flink)
        assert len(found()) == 1
