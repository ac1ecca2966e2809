"""INSERT: each row once, whatever dies, and whoever else writes."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Catalog, Table
from tests.flink.environment import (
    PROJECT,
    FlinkError,
    flink_process,
    python_of_workers,
    use_catalog,
    wait_until,
    with_connector,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

DYING = Path(__file__).with_name("dying.py")
PLACES = ("in-write", "after-prepare", "before-commit", "after-commit")
RESTARTING = {
    "execution.checkpointing.interval": "700 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.fixture
def deaths(tmp_path) -> Path:
    """A folder in which a file makes a worker die."""
    folder = tmp_path / "deaths"
    folder.mkdir()
    return folder


def dying_python(deaths: Path) -> str:
    """An interpreter whose workers die; see `tests.flink.dying`."""
    program = deaths.parent / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{PROJECT}" exec "{sys.executable}" "{DYING}" "{deaths}" "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def source(rows: int, rate: int) -> str:
    return (
        "CREATE TEMPORARY TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', "
        f"'fields.id.end' = '{rows - 1}', 'rows-per-second' = '{rate}')"
    )


def catalog_with(warehouse: str, python: str) -> list[str]:
    return [each.replace(str(python_of_workers()), python) for each in use_catalog(warehouse)]


def die_in_turn(deaths: Path, table: Table) -> None:
    """One death after the other, each after the one before was survived: a commit came."""
    for place in PLACES:
        before = table.refresh().id
        wait_until(lambda before=before: table.refresh().id > before, "no commit")
        (deaths / place).touch()
        wait_until(lambda place=place: not (deaths / place).exists(), f"nobody died {place}")


def test_each_row_is_appended_once_though_workers_die_and_others_write(flink, warehouse, deaths):
    """Killed in writing, after files were prepared, before and after the commit.

    Meanwhile another writer appends and a compactor rewrites what there is.
    """
    rows = 60_000
    table = Catalog.open(warehouse).create_table("db.t", pa.schema({"id": pa.int64()}))
    flink.send(
        *catalog_with(warehouse, dying_python(deaths)),
        source(rows, 1000),
        "INSERT INTO db.t SELECT id FROM numbers",
        batch=False,
        settings=RESTARTING,
    )
    stop = threading.Event()
    written = []

    def disturb() -> None:
        other = Table.open(table.location)
        while not stop.wait(1.5):
            written.append(-1 - len(written))
            other.append(pa.table({"id": [written[-1]]}))
            other.compact()

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        die_in_turn(deaths, Table.open(table.location))
        flink.rows()
    finally:
        stop.set()
        disturbing.join()
    ids = sorted(Table.open(table.location).scan().to_arrow()["id"].to_pylist())
    assert ids == sorted([*range(rows), *written])
    commits = [
        (snapshot.commit_user, snapshot.commit_identifier)
        for snapshot in Table.open(table.location).snapshots()
        if snapshot.commit_user
    ]
    assert len({user for user, _ in commits}) == 1
    assert len(set(commits)) == len(commits)


def test_upserts_of_a_group_by_are_right_though_workers_die(flink, warehouse, deaths):
    """Each key has the count of all its rows; rows of a key stay in their order."""
    rows, keys = 60_000, 100
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("n", pa.int64())])
    table = Catalog.open(warehouse).create_table(
        "db.k", schema, primary_key="k", properties={"bucket": "2"}
    )
    flink.send(
        *catalog_with(warehouse, dying_python(deaths)),
        source(rows, 1000),
        f"INSERT INTO db.k SELECT MOD(id, {keys}), count(*) FROM numbers GROUP BY MOD(id, {keys})",
        batch=False,
        settings=RESTARTING,
    )
    die_in_turn(deaths, Table.open(table.location))
    flink.rows()
    counted = Table.open(table.location).scan().to_arrow().sort_by("k").to_pylist()
    assert counted == [{"k": key, "n": rows // keys} for key in range(keys)]


def test_a_checkpoint_without_rows_makes_no_snapshot(flink, warehouse):
    """Many checkpoints over three seconds, and one row in the first of them."""
    flink.sql(
        *use_catalog(warehouse),
        "CREATE TABLE db.t (id BIGINT)",
        source(3, 1),
        "INSERT INTO db.t SELECT id FROM numbers WHERE id < 1",
        batch=False,
        settings={"execution.checkpointing.interval": "200 ms"},
    )
    table = Catalog.open(warehouse).table("db.t")
    assert table.scan().to_arrow()["id"].to_pylist() == [0]
    assert [snapshot.id for snapshot in table.snapshots()] == [0, 1]


def test_overwrites_replace_the_table_or_partitions(flink, warehouse):
    catalog = use_catalog(warehouse)
    flink.sql(
        *catalog,
        "CREATE TABLE db.plain (id INT)",
        "INSERT INTO db.plain VALUES (1), (2)",
        "INSERT OVERWRITE db.plain VALUES (3)",
        "CREATE TABLE db.parts (id INT, p STRING) PARTITIONED BY (p)",
        "INSERT INTO db.parts VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "INSERT OVERWRITE db.parts VALUES (10, 'a')",
        "INSERT OVERWRITE db.parts PARTITION (p = 'b') SELECT 20",
        "INSERT OVERWRITE db.parts PARTITION (p = 'c') SELECT id FROM db.plain WHERE id < 0",
    )
    lake = Catalog.open(warehouse)
    assert lake.table("db.plain").scan().to_arrow()["id"].to_pylist() == [3]
    parts = lake.table("db.parts").scan().to_arrow().sort_by("id").to_pylist()
    assert parts == [{"id": 10, "p": "a"}, {"id": 20, "p": "b"}]


def test_tables_on_hdfs_are_written_read_and_followed(flink, hdfs_folder):
    """A catalog on servers of this machine: upserts, a batch, and a stream of the changes."""
    catalog = use_catalog(hdfs_folder)
    rows = flink.sql(
        *catalog,
        "CREATE TABLE db.t (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED)",
        "INSERT INTO db.t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO db.t VALUES (2, 'c'), (3, 'd')",
        "SELECT k, v FROM db.t WHERE k > 1",
    )
    assert sorted(row for _, row in rows) == [(2, "c"), (3, "d")]
    table = Table.open(f"{hdfs_folder}/db/t")
    assert table.scan().to_arrow().sort_by("k")["v"].to_pylist() == ["a", "c", "d"]
    followed = flink.sql(
        *catalog,
        "SELECT k, v FROM db.t /*+ OPTIONS('scan.mode' = 'from-snapshot', "
        "'scan.snapshot-id' = '1', 'consumer-id' = 'hdfs') */",
        batch=False,
        settings={"parallelism.default": "1"},
        rows_max=3,
    )
    assert sorted(followed) == [("+I", (3, "d")), ("+U", (2, "c")), ("-U", (2, "b"))]


def test_a_batch_with_a_user_is_written_once_and_a_stream_of_a_known_user_refused(flink, warehouse):
    catalog = use_catalog(warehouse)
    insert = "INSERT INTO db.t /*+ OPTIONS('sink.commit-user' = 'nightly') */ VALUES (1)"
    flink.sql(*catalog, "CREATE TABLE db.t (id INT)", insert, insert)
    table = Catalog.open(warehouse).table("db.t")
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    assert table.snapshot.commit_user == "nightly"
    with pytest.raises(FlinkError, match="has made snapshot 1, and this job does not go on"):
        flink.sql(*catalog, insert, batch=False)
    assert table.refresh().id == 1


def test_a_worker_that_dies_fails_the_job_with_its_log(flink, warehouse, deaths):
    (deaths / "in-write").touch()
    with pytest.raises(FlinkError) as failed:
        flink.sql(
            *catalog_with(warehouse, dying_python(deaths)),
            "CREATE TABLE db.t (id INT)",
            "INSERT INTO db.t VALUES (1)",
            settings={"restart-strategy.type": "disable"},
        )
    assert "has ended. Its log:" in str(failed.value)
    assert "dying in-write" in str(failed.value)
    assert "worker ended: signal SIGKILL" in str(failed.value)
    assert Catalog.open(warehouse).table("db.t").snapshot.id == 0


def test_a_refused_row_fails_the_job_with_our_error(flink, warehouse):
    with pytest.raises(FlinkError, match="nanoseconds reach from 1677 to 2262"):
        flink.sql(
            *use_catalog(warehouse),
            "CREATE TABLE db.t (t TIMESTAMP(9))",
            "INSERT INTO db.t VALUES (TIMESTAMP '3000-01-01 00:00:00')",
        )


def test_no_worker_outlives_its_job_and_the_paths_of_pyflink_do_not_reach_it(tmp_path, warehouse):
    """The interpreter notes what it was given, and each of its processes."""
    noted = tmp_path / "noted"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "[$PYTHONPATH][$PYTHONHOME]" >> "{noted}"\n'
        f'exec "{python_of_workers()}" "$@"\n'
    )
    python.chmod(0o755)
    with flink_process(tmp_path, with_connector()) as flink:
        flink.sql(
            *catalog_with(warehouse, str(python)),
            "CREATE TABLE db.t (id INT)",
            "INSERT INTO db.t VALUES (1), (2)",
            "SELECT * FROM db.t",
        )

        def workers() -> list[int]:
            return [
                pid
                for pid in flink.processes()
                if b"flink_ext" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]

        wait_until(lambda: not workers(), "workers outlive their job")
    assert set(noted.read_text().splitlines()) == {"[][]"}
