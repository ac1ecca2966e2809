"""Mirrors read by engines that nobody of this project wrote, each in an environment of its own.

They write what they read to Parquet files. `make test-mirrors` makes the environments. Those of
Paimon are read where pypaimon is, which publishes them: Delta's and Iceberg's want a newer pyarrow.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.rival_spark import FOLDER as SPARK
from benchmarks.rival_spark import jars_of
from fermion_table import Table
from tests.flink.environment import flink_process
from tests.kit.documents import PROJECT
from tests.kit.tables.mirrored import (
    KINDS,
    SETTINGS,
    TYPES,
    Kind,
    history,
    newest_metadata,
    shown,
)
from tests.kit.tables.paimon_java import JARS as PAIMON_JARS

pytestmark = pytest.mark.timeout(4000)

HERE = Path(__file__).resolve().parent
DUCKDB = PROJECT / ".venv-mirrors"
DEADLINE_S = 3600
OTHERS = ("PYTHON", "VIRTUAL_ENV", "SPARK_HOME")
"""Settings of this environment, which are not those of the engines."""
Mirrored = tuple[Table, Kind, Path]
Read = Callable[[list[dict[str, Any]], Path], None]


def duckdb(jobs: list[dict[str, Any]], folder: Path) -> None:
    """Let DuckDB read."""
    if not (DUCKDB / "ready").exists():
        pytest.skip("DuckDB 1.4.4 with its extensions is not there: make test-mirrors")
    for job in jobs:
        if job["kind"] == "iceberg":
            job["location"] = newest_metadata(Path(job["location"]))
    _run([DUCKDB / "bin/python", HERE / "read_with_duckdb.py"], jobs, folder)


def spark(jobs: list[dict[str, Any]], folder: Path) -> None:
    """Let Spark 3.5 read."""
    jars = [*jars_of("delta"), *jars_of("iceberg")]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        pytest.skip(f"Spark 3.5 has no {missing[0]}: make test-mirrors")
    _run([SPARK / "bin/python", HERE / "read_with_spark.py"], jobs, folder, *jars)


def flink(jobs: list[dict[str, Any]], folder: Path) -> None:
    """Let Flink 2.3 read with Paimon's connector; it writes tables of Paimon."""
    jars = sorted(PAIMON_JARS.glob("*.jar"))
    if not jars:
        pytest.skip("Paimon's connector for Flink is not there: make test-mirrors")
    catalogs = [
        f"CREATE CATALOG `{each}` WITH ('type' = 'paimon', 'warehouse' = "
        f"'file://{Path(jobs[0][each]).parent.parent}')"
        for each in ("location", "out")
    ]
    settings = {"pipeline.jars": ";".join(f"file://{jar}" for jar in jars)}
    with flink_process(folder, settings) as process:
        for job in jobs:
            source, out = (f"`{each}`.db.`{Path(job[each]).name}`" for each in ("location", "out"))
            version = job["snapshot"]
            hint = f"/*+ OPTIONS('scan.snapshot-id' = '{version}') */" if version else ""
            where = f"WHERE {job['where']}" if job.get("where") else ""
            process.sql(
                *catalogs,
                f"CREATE TABLE {out} WITH ('file.format' = 'parquet') AS "
                f"SELECT * FROM {source} {hint} {where}",
            )


def _run(program: list[Any], jobs: list[dict[str, Any]], folder: Path, *more: Any) -> None:
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(jobs))
    done = subprocess.run(
        [*map(str, program), str(listed), *map(str, more)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={name: text for name, text in os.environ.items() if not name.startswith(OTHERS)},
    )
    assert done.returncode == 0, done.stderr[-4000:]


def rows_in(out: str) -> pa.Table:
    """What an engine wrote."""
    path = Path(out)
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


ENGINES: dict[Read, tuple[str, ...]] = {
    duckdb: ("delta", "iceberg"),
    spark: ("delta", "iceberg"),
    flink: ("paimon",),
}
"""With the kinds of mirrors that they read."""


def read_by(engine: Read, mirrored: Sequence[Mirrored]) -> list[Mirrored]:
    """The mirrors that an engine reads; the test is skipped where there are none."""
    found = [each for each in mirrored if each[1].name in ENGINES[engine]]
    if not found:
        pytest.skip(f"{engine.__name__} reads mirrors that are published in another environment")
    return found


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> list[Mirrored]:
    """Tables of all kinds of commits, and one of all types, with their mirrors."""
    folder = tmp_path_factory.mktemp("mirrored") / "db.db"  # a database of a warehouse of Paimon
    tables = [history(folder / f"t{place}", **each) for place, each in enumerate(SETTINGS)]
    types = Table.create(folder / "types", pa.table(TYPES), durability="fast")
    made = []
    for place, table in enumerate([*tables, types]):
        for kind in KINDS:
            location = folder / f"{kind.name}{place}"
            table.mirrors.create(kind.name, location, history=table is not types)
            made.append((table, kind, location))
        table.mirrors.publish()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_an_engine_sees_the_newest_rows_and_filters_them(mirrored, engine: Read, tmp_path):
    folder = tmp_path / "db.db"
    folder.mkdir()
    jobs, expected = [], {}
    for number, (table, kind, location) in enumerate(read_by(engine, mirrored)):
        given = {"kind": kind.name, "location": str(location), "snapshot": None}
        where = "id > 9 AND kind = 'b'" if "id" in table.columns else "long > 5"
        for place, condition in enumerate((None, where)):
            out = str(folder / f"t{number}_{place}")
            jobs.append({**given, "out": out, "where": condition})
            expected[out] = shown(table.scan(filter=condition).to_arrow())
    engine(jobs, tmp_path)
    for job in jobs:
        assert shown(rows_in(job["out"])) == expected[job["out"]], job


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_an_engine_sees_every_snapshot(mirrored, engine: Read, tmp_path):
    folder = tmp_path / "db.db"
    folder.mkdir()
    jobs, expected = [], {}
    for table, kind, location in read_by(engine, mirrored[: len(KINDS) * len(SETTINGS)]):
        if kind.name == "delta" and engine is duckdb:
            continue  # its extension reads the newest version alone
        for version, snapshot_id, _ in kind.versions(location):
            then = table.scan(snapshot_id=snapshot_id)
            if engine is flink and then.schema != table.scan().schema:
                continue  # it shows older ones under the columns of now
            out = str(folder / f"{location.name}_{version}")
            snapshot = _iceberg_id(location, version) if kind.name == "iceberg" else version
            given = {"kind": kind.name, "location": str(location), "snapshot": snapshot}
            jobs.append({**given, "out": out})
            expected[out] = shown(then.to_arrow())
    engine(jobs, tmp_path)
    for job in jobs:
        assert shown(rows_in(job["out"])) == expected[job["out"]], job


def _iceberg_id(location: Path, number: int) -> int:
    metadata = json.loads(Path(newest_metadata(location)).read_text())
    return int(metadata["snapshots"][number]["snapshot-id"])


def test_polars_sees_the_newest_rows_and_filters_them(mirrored):
    for table, kind, location in mirrored:
        frame = (
            pl.scan_delta(str(location))
            if kind.name == "delta"
            else pl.scan_iceberg(newest_metadata(location))
        )
        assert shown(frame.collect().to_arrow()) == shown(table.to_arrow()), location
        if "id" in table.columns:
            found = frame.filter((pl.col("id") > 9) & (pl.col("kind") == "b")).collect()
            expected = table.scan(filter="id > 9 AND kind = 'b'").to_arrow()
            assert shown(found.to_arrow()) == shown(expected), location
