"""Rows that change in Spark: MERGE, UPDATE, DELETE, upserts by key, and reading afterwards.

``python -m benchmarks.spark_rows [--scale FACTOR]`` sets up the environment of the rivals, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import data, harness, rival_spark
from benchmarks.files import made
from benchmarks.question import Action, Case, Question, Size, Target
from benchmarks.spark import ONE_YEAR, cpu_seconds
from benchmarks.spark_systems import DELTA, FERMION, HUDI, ICEBERG, PAIMON, System

UPSERTS = 10
SHARES = (0, 20, 50, 100)
Q1 = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
  sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
  avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM {table} WHERE l_shipdate <= DATE '1998-09-02' GROUP BY 1, 2 ORDER BY 1, 2
"""
Q6 = f"SELECT sum(l_extendedprice * l_discount) FROM {{table}} WHERE {ONE_YEAR}"
ANSWER = "SELECT count(*), sum(l_quantity), sum(l_tax) FROM {table}"


def source(size: Size) -> Path:
    """Parquet files of lineitem, ``rows``, of 1 % of it with changes, and of a small part."""
    return made(data.scaled(size), "spark-rows-files", lambda folder: make_source(folder, size))


def make_source(folder: Path, size: Size) -> None:
    """Write the files: ``merge``: a tenth of its rows is new; ``upsert-N``; ``part``: a tenth of
    the rows; ``small``: to warm up with, in as many files as there are threads."""
    table = data.lineitem(size)
    random = np.random.default_rng(data.SEED)

    def write(name: str, rows: pa.Table, files: int = 1) -> None:
        (folder / name).mkdir(parents=True)
        size = -(-rows.num_rows // files)
        for number in range(files):
            part = rows.slice(number * size, size)
            pq.write_table(part, folder / name / f"{number}.parquet")

    for number in range(0, table.num_rows, 2_000_000):  # as many tasks read them
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        part = table.slice(number, 2_000_000)
        pq.write_table(part, folder / "rows" / f"{number}.parquet", row_group_size=500_000)
    share = table.num_rows // 100
    changed_rows = [np.sort(random.choice(table.num_rows, share, False)) for _ in range(UPSERTS)]
    for number, chosen in enumerate(changed_rows):
        write(f"upsert-{number}", changed(table.take(chosen)))
    merged = changed(table.take(changed_rows[0]))
    new = merged.slice(0, share // 10)
    index = new.schema.get_field_index("l_orderkey")
    key = pc.add(new["l_orderkey"], pc.max(table["l_orderkey"])).cast(new.schema.field(index).type)
    write("merge", pa.concat_tables([merged, new.set_column(index, new.schema.field(index), key)]))
    write("part", changed(table.take(np.sort(random.choice(table.num_rows, 10 * share, False)))))
    write("small", table.slice(0, share), files=2)


def changed(rows: pa.Table) -> pa.Table:
    """Rows with other quantities."""
    index = rows.schema.get_field_index("l_quantity")
    dtype = rows.schema.field(index).type
    more = pc.add(rows["l_quantity"], pa.scalar(Decimal("1.00"), dtype)).cast(dtype)
    return rows.set_column(index, rows.schema.field(index), more)


def clocked(operation: Callable[[], Any]) -> dict[str, Any]:
    """The seconds of an operation, and of the processors in all processes."""
    used, start = cpu_seconds(), time.perf_counter()
    operation()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "all_cpu_seconds": cpu_seconds() - used}


def answer(system: System, table: str) -> dict[str, Any]:
    """What all systems must agree on."""
    row = system.sql(ANSWER.format(table=system.name_of(table))).first()
    return {"answer": str(tuple(row))}


def statement(change: Callable[[System, str, Path], Any], *, keyed: bool = False) -> Case:
    """A case of one change of a fresh table; a small table is changed before."""

    def prepare(system: System, size: Size) -> Action:
        files = source(size)

        def action() -> dict[str, Any]:
            system.create("small", files / "small", keyed=keyed, parted=False)
            change(system, "small", files)
            system.create("whole", files / "rows", keyed=keyed, parted=False)
            figures = clocked(lambda: change(system, "whole", files))
            return figures | answer(system, "whole")

        return action

    return Case(prepare, sizes=("full", "quick"))


def merge(system: System, table: str, files: Path) -> None:
    """One in a hundred rows, and one in a thousand new."""
    system.merge(table, system.rows(files / "merge", parted=False))


def update(system: System, table: str, files: Path) -> None:
    """One in a hundred orders."""
    name = system.name_of(table)
    system.sql(f"UPDATE {name} SET l_tax = 0.05, l_comment = 'x' WHERE l_orderkey % 100 = 7")


def delete(system: System, table: str, files: Path) -> None:
    """One in a hundred orders."""
    system.sql(f"DELETE FROM {system.name_of(table)} WHERE l_orderkey % 100 = 7")


def upsert(system: System, table: str, files: Path) -> None:
    """Ten times one in a hundred rows."""
    for number in range(1 if table == "small" else UPSERTS):
        system.upsert(table, files / f"upsert-{number}", parted=False)


def queries(system: System, table: str) -> dict[str, Any]:
    """Q1 and q6: each the second of two runs."""
    found: dict[str, Any] = {}
    for name, query in (("q1", Q1), ("q6", Q6)):
        text = query.format(table=system.name_of(table))
        system.sql(text).collect()
        found[f"{name}_seconds"] = clocked(lambda text=text: system.sql(text).collect())["seconds"]
    return found | {"seconds": found["q1_seconds"] + found["q6_seconds"]}


def queries_after_upserts(count: int) -> Case:
    """Q1 and q6 of a table after so many upserts of one in a hundred rows."""

    def prepare(system: System, size: Size) -> Action:
        files = source(size)

        def action() -> dict[str, Any]:
            system.create("read", files / "rows", keyed=True, parted=False)
            for number in range(count):
                system.upsert("read", files / f"upsert-{number}", parted=False)
            return queries(system, "read") | answer(system, "read")

        return action

    return Case(prepare, sizes=("full", "quick"))


def share_updated(share: int) -> Case:
    """Q1 and q6 where a share of ten partitions, of one bucket each, got a tenth of its rows."""

    def prepare(system: System, size: Size) -> Action:
        files = source(size)
        changes = data.scaled(size) / f"spark-rows-share-{share}"
        if share:
            made(changes.parent, changes.name, lambda folder: write_share(folder, files, share))

        def action() -> dict[str, Any]:
            system.create("parts", files / "rows", keyed=True, parted=True)
            if share:
                system.upsert("parts", changes, parted=True)
            return queries(system, "parts") | answer(system, "parts")

        return action

    return Case(prepare, sizes=("full", "quick"))


def write_share(folder: Path, files: Path, share: int) -> None:
    """The changes of the first partitions."""
    rows = pq.read_table(files / "part")
    part = np.asarray(rows["l_orderkey"]) % 10
    folder.mkdir()
    pq.write_table(rows.filter(part < share // 10), folder / "0.parquet")


MERGE, UPDATE, DELETE = "MERGE of 1 %", "UPDATE of 1 %", "DELETE of 1 %"
UPSERTED, READ, PLAIN = "ten upserts of 1 %", "q1 and q6 after them", "q1 and q6 before"
CURVE = {share: f"q1 and q6, {share} % of buckets updated" for share in SHARES}
RIVAL = "best rival"
QUESTION = Question(
    module="benchmarks.spark_rows",
    title="Rows that change in Spark (local[2])",
    cases={
        MERGE: statement(merge),
        UPDATE: statement(update),
        DELETE: statement(delete),
        UPSERTED: statement(upsert, keyed=True),
        PLAIN: queries_after_upserts(0),
        READ: queries_after_upserts(UPSERTS),
        **{name: share_updated(share) for share, name in CURVE.items()},
    },
    libraries=(FERMION, ICEBERG, DELTA, PAIMON, HUDI),
    targets=(
        *(Target(name, 1.0, of=RIVAL) for name in (MERGE, UPDATE, DELETE)),
        Target(UPSERTED, 1.0, of="paimon"),
        Target(UPSERTED, 1.0, of="hudi"),
        Target(READ, 1.0, of="paimon"),
        Target(READ, 1.0, of="hudi"),
        Target(READ, 1.5, of=PLAIN, metric="q1_seconds"),
        *(Target(name, 1.0, of=other) for name in CURVE.values() for other in ("paimon", "hudi")),
    ),
    rounds={"full": 1},
    metrics=("q1_seconds", "q6_seconds", "all_cpu_seconds"),
    warm_up=False,
    notes=(
        "PySpark 4.3 for us, 3.5 for the rivals: the newest that all have jars for. Iceberg: "
        "version 2, merge on read. Delta: deletion vectors. Paimon 0.9 (the newest for Spark 3.5) "
        "and Hudi: merge on read, 2 buckets, primary key (l_orderkey, l_linenumber) in all cases, "
        "as their MERGE needs it. Upserts are MERGE for Iceberg and Delta, INSERT for Paimon and "
        "Hudi, and spark_ext.upsert for us. Updated buckets: ten partitions of one bucket."
    ),
)


def main() -> None:
    """Make the rivals' environment and the files, then measure."""
    if "--scale" in sys.argv:
        at = sys.argv.index("--scale")
        os.environ[data.SCALE] = sys.argv[at + 1]
        sys.argv[at : at + 2] = ["--size", "quick"]  # results of another scale are not stored
    options = harness.arguments(QUESTION.title)
    for system, reason in rival_spark.set_up(
        name
        for name in ("iceberg", "delta", "paimon", "hudi")
        if options.only is None or name in options.only.split(",")
    ).items():
        print(f"{system} could not be had: {reason}", flush=True)
    source(options.size)
    harness.main(QUESTION)


if __name__ == "__main__":
    main()
