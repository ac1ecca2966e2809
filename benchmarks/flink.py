"""Fermion's connector for Flink beside Paimon's, on the same rows: append, upsert, read.

``make bench-flink`` runs it in the environment of PyFlink, which has no package of this project.
A row of the table is one job in batch mode. The first jobs of an engine, of one row, are its start;
later ones find Flink's classes loaded, but each job starts its readers, writers and workers anew.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.memory.managed.size": "256mb",
    "rest.bind-port": "0-65535",
}
COLUMNS = "id BIGINT, price DOUBLE, city INT"
ROUNDS = 2
"""Of each case; the one of the least CPU time counts."""


def cpu_seconds() -> float:
    """CPU time of this process and of all that it started, also of those that have ended."""
    facts: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended, and its parent has its time
            facts[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
    ticks, parents = 0, {os.getpid()}
    while parents:
        ticks += sum(int(each) for pid in parents for each in facts[pid][11:15])
        parents = {pid for pid, fields in facts.items() if int(fields[1]) in parents}
    return ticks / os.sysconf("SC_CLK_TCK")


class Job:
    """Runs statements, and measures the last one.

    Parameters
    ----------
    tables
        A table environment of PyFlink.
    """

    def __init__(self, tables: Any) -> None:
        self._tables = tables

    def run(self, *statements: str) -> tuple[float, float]:
        """CPU time and wall time of the last statement, in seconds."""
        for sql in statements:
            cpu, wall = cpu_seconds(), time.perf_counter()
            self._tables.execute_sql(sql).wait()
            measured = cpu_seconds() - cpu, time.perf_counter() - wall
        return measured


def cases(rows: int) -> dict[str, Sequence[str]]:
    """Statements of each case: those before the last one only prepare it."""
    numbers = (
        "CREATE TEMPORARY TABLE IF NOT EXISTS numbers (id BIGINT, price DOUBLE, city INT) WITH ("
        "'connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', "
        f"'fields.id.end' = '{rows - 1}', 'fields.city.min' = '0', 'fields.city.max' = '99', "
        f"'rows-per-second' = '100000000', 'number-of-rows' = '{rows}')"
    )
    hole = f"CREATE TEMPORARY TABLE IF NOT EXISTS hole ({COLUMNS}) WITH ('connector' = 'blackhole')"
    keyed = f"({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '2')"
    return {
        "start: an append of one row": (
            f"CREATE TABLE small ({COLUMNS})",
            "INSERT INTO small VALUES (1, 0.5, 1)",
        ),
        "generate the rows alone": (numbers, hole, "INSERT INTO hole SELECT * FROM numbers"),
        "append": (
            "DROP TABLE IF EXISTS plain",
            f"CREATE TABLE plain ({COLUMNS})",
            "INSERT INTO plain SELECT * FROM numbers",
        ),
        "read": ("INSERT INTO hole SELECT * FROM plain",),
        "insert into a keyed table": (
            "DROP TABLE IF EXISTS keyed",
            f"CREATE TABLE keyed {keyed}",
            "INSERT INTO keyed SELECT * FROM numbers",
        ),
        "upsert of half of the keys": (
            "INSERT INTO keyed SELECT id, price + 1, city FROM numbers WHERE MOD(id, 2) = 0",
        ),
        "read the keyed table": ("INSERT INTO hole SELECT * FROM keyed",),
    }


def rounds(name: str) -> int:
    """How often a case is run; what changes a table that others read is run once."""
    return 1 if name.startswith(("start", "upsert")) else ROUNDS


def measure(tables: Any, catalog: str, rows: int) -> None:
    """Print a line for each case, on the tables of one catalog, which is made here."""
    job = Job(tables)
    job.run(catalog, "USE CATALOG lake", "CREATE DATABASE IF NOT EXISTS db", "USE db")
    for name, statements in cases(rows).items():
        cpu, wall = min(job.run(*statements) for _ in range(rounds(name)))
        print(f"  {name}: {cpu:.1f} s, {wall:.1f} s", flush=True)


def main() -> None:
    """Measure one engine, and print its table."""
    from pyflink.common import Configuration  # only in the environment of Flink
    from pyflink.table import EnvironmentSettings, TableEnvironment

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["fermion", "paimon"])
    parser.add_argument("--python", default="python3", help="which Python has Fermion")
    parser.add_argument("--jars", nargs="+", required=True, help="of the connector")
    parser.add_argument("--rows", type=int, default=2_000_000)
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="bench-flink-")
    configuration = Configuration()
    jars = ";".join(f"file://{os.path.abspath(jar)}" for jar in given.jars)
    for name, value in (SETTINGS | {"pipeline.jars": jars}).items():
        configuration.set_string(name, value)
    builder = EnvironmentSettings.new_instance().with_configuration(configuration)
    options = {
        "fermion": f"'type' = 'fermion', 'warehouse' = '{folder}', "
        f"'python.executable' = '{given.python}'",
        "paimon": f"'type' = 'paimon', 'warehouse' = 'file://{folder}'",
    }[given.engine]
    try:
        tables = TableEnvironment.create(builder.in_batch_mode().build())
        print(f"{given.engine}, {given.rows:,} rows: CPU time, wall time", flush=True)
        measure(tables, f"CREATE CATALOG lake WITH ({options})", given.rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
