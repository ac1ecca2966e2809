"""Mirrors read by engines that nobody of this project wrote, each in an environment of its own.

They write what they read to Parquet files. `make test-mirrors` makes the environments.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.rival_spark import FOLDER as SPARK
from benchmarks.rival_spark import jars_of
from fermion_table import Table
from tests.kit.documents import PROJECT
from tests.kit.tables.mirrored import (
    KINDS,
    SETTINGS,
    TYPES,
    Kind,
    history,
    newest_metadata,
    shown,
    source_rows,
)

pytestmark = pytest.mark.timeout(4000)

HERE = Path(__file__).resolve().parent
DUCKDB = PROJECT / ".venv-mirrors"
DEADLINE_S = 3600
OTHERS = ("PYTHON", "VIRTUAL_ENV", "SPARK_HOME")
"""Settings of this environment, which are not those of the engines."""
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
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Table, Kind, Path]]:
    """Tables of all kinds of commits, and one of all types, with their mirrors."""
    folder = tmp_path_factory.mktemp("mirrored")
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
@pytest.mark.parametrize("engine", [duckdb, spark], ids=lambda engine: engine.__name__)
def test_an_engine_sees_the_newest_rows_and_filters_them(mirrored, engine: Read, tmp_path):
    jobs, expected = [], {}
    for number, (table, kind, location) in enumerate(mirrored):
        given = {"kind": kind.name, "location": str(location), "snapshot": None}
        where = "id > 9 AND kind = 'b'" if "id" in table.columns else "long > 5"
        for place, condition in enumerate((None, where)):
            out = str(tmp_path / f"{number}-{place}.parquet")
            jobs.append({**given, "out": out, "where": condition})
            expected[out] = shown(table.scan(filter=condition).to_arrow())
    engine(jobs, tmp_path)
    for job in jobs:
        assert shown(rows_in(job["out"])) == expected[job["out"]], job


@pytest.mark.slow
@pytest.mark.parametrize("engine", [duckdb, spark], ids=lambda engine: engine.__name__)
def test_an_engine_sees_every_snapshot(mirrored, engine: Read, tmp_path):
    jobs, expected = [], {}
    for table, kind, location in mirrored[: 2 * len(SETTINGS)]:
        if kind.name == "delta" and engine is duckdb:
            continue  # its extension reads the newest version alone
        for version, snapshot_id, _ in kind.versions(location):
            out = str(tmp_path / f"{location.name}-{version}.parquet")
            snapshot = version if kind.name == "delta" else _iceberg_id(location, version)
            given = {"kind": kind.name, "location": str(location), "snapshot": snapshot}
            jobs.append({**given, "out": out})
            expected[out] = source_rows(table, snapshot_id)
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
