"""Spark over Fermion tables, through each of its APIs, beside Spark's own Parquet."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import data, harness
from benchmarks.files import CACHE, edition, made, remove
from benchmarks.question import Action, Case, Library, NotOffered, Question, Size, Target

PARQUET, FUNCTION, FORMAT, CATALOG = "spark parquet", "function", "format", "catalog"
WIDE = {"full": (10_000, 5_000), "quick": (2_000, 1_000), "tiny": (50, 100)}
SMALL_FILES = {"full": (2_000, 5_000), "quick": (200, 2_000), "tiny": (4, 50)}
COUNTED_FILES = {"full": (1_000, 1_000), "quick": (200, 500), "tiny": (3, 10)}
ONE_YEAR = (
    "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' "
    "AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24"
)
Q1 = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax"]
FILE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Api(Library):
    """A way for Spark to read and write."""

    @property
    def is_parquet(self) -> bool:
        """The rival."""
        return self.name == PARQUET

    def stored(self, size: Size, name: str, parts: Callable[[], Sequence[pa.Table]]) -> Path:
        """A table of a file for each part, made once; a Parquet directory of the same rows."""
        label = "spark-parquet" if self.is_parquet else f"spark-{edition('fermion')}"
        make = write_parquet if self.is_parquet else write_fermion
        return made(CACHE / size / label, name, lambda path: make(path, parts()))

    def frame(self, path: Path, columns: Sequence[str] | None, filter: str | None = None) -> Any:
        """A fresh data frame of some columns and rows."""
        spark = session()
        if self.name == FUNCTION:
            import spark_ext

            return spark_ext.read_table(spark, path, columns=columns, filter=filter)
        if self.name == FORMAT:
            reader = spark.read.format("fermion")
            if columns is not None:
                reader = reader.option("columns", json.dumps(list(columns)))
            return (reader.option("filter", filter) if filter else reader).load(str(path))
        read = spark.read.parquet(str(path)) if self.is_parquet else self.table(path)
        read = read.where(filter) if filter else read
        return read.select(*columns) if columns is not None else read

    def table(self, path: Path) -> Any:
        """The table through a catalog of its directory."""
        return session().table(f"{catalog_of(str(path.parent))}.`{path.name}`")


def write_parquet(path: Path, parts: Sequence[pa.Table]) -> None:
    """Files as Spark writes them: Snappy."""
    import pyarrow.parquet as pq

    path.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, path / f"part-{number:05}.parquet", row_group_size=1_000_000)


def write_fermion(path: Path, parts: Sequence[pa.Table]) -> None:
    """One commit."""
    from fermion_table import Table

    table = Table.create(path, parts[0].schema, durability="fast")
    messages = []
    for part in parts:
        with table.writer() as writer:
            writer.write(part)
            messages += writer.prepare_commit()
    table.commit(messages)


@cache
def session() -> Any:
    """Two threads of this machine."""
    from pyspark.sql import SparkSession

    import spark_ext

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "4g").config("spark.driver.host", "localhost")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.local.dir", str(CACHE / "spark-local"))
    spark = spark_ext.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@cache
def catalog_of(directory: str) -> str:
    """Install a catalog of a directory; its name comes back."""
    import spark_ext

    name = "bench_" + hashlib.sha256(directory.encode()).hexdigest()[:8]
    spark_ext.install_catalog(session(), name, directory)
    return name


def cpu_seconds() -> float:
    """Processor time of this process and of all below it: the JVM and Python workers."""
    parents: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(status.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        times[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family, found = [os.getpid()], 0.0
    while family:
        pid = family.pop()
        found += times.get(pid, 0.0)
        family += parents.get(pid, [])
    return found


def timed(action: Callable[[], Any], *, warm: bool = True) -> Action:
    """An action that also counts the CPU of all processes; done once before the clock starts."""
    if warm:
        action()

    def measured() -> dict[str, Any]:
        before = cpu_seconds()
        action()
        return {"all_cpu_seconds": cpu_seconds() - before}

    return measured


def lineitem(library: Api, size: Size, *, by_day: bool = False) -> Path:
    """TPC-H lineitem, in its own order or by ship date."""

    def parts() -> list[pa.Table]:
        table = data.lineitem(size)
        return [table.sort_by("l_shipdate") if by_day else table]

    return library.stored(size, "lineitem-by-day" if by_day else "lineitem", parts)


def wide_sum(library: Api, size: Size) -> Action:
    """Ten columns of very many, from a fresh frame."""
    columns, rows = WIDE[size]
    path = library.stored(size, "wide", lambda: [data.wide(columns, rows)])
    names = [f"feature_{number:05}" for number in range(0, 30, 3)]

    def action() -> None:
        library.frame(path, names).groupBy().sum(*names).collect()

    return timed(action)


def wide_relation(library: Api, size: Size) -> Action:
    """What Spark knows of a table of very many columns, before any query."""
    if library.name != CATALOG:
        raise NotOffered("only a catalog plans without being told the columns")
    columns, rows = WIDE[size]
    path = library.stored(size, "wide", lambda: [data.wide(columns, rows)])
    return timed(lambda: library.table(path).schema)


def all_columns(library: Api, size: Size) -> Action:
    """Every row as Spark has it, thrown away."""
    path = lineitem(library, size)
    return timed(lambda: library.frame(path, None).write.format("noop").mode("overwrite").save())


def one_sum(library: Api, size: Size) -> Action:
    """The sum of a column."""
    path = lineitem(library, size)
    name = "l_extendedprice"
    return timed(lambda: library.frame(path, [name]).groupBy().sum(name).collect())


def many_groups(library: Api, size: Size) -> Action:
    """A sum for each of very many keys: the orders."""
    path = lineitem(library, size)

    def action() -> None:
        frame = library.frame(path, ["l_orderkey", "l_quantity"])
        grouped = frame.groupBy("l_orderkey").sum("l_quantity")
        grouped.write.format("noop").mode("overwrite").save()

    return timed(action)


def q1(library: Api, size: Size) -> Action:
    """TPC-H's first query, over nearly all rows."""
    path = lineitem(library, size)
    aggregates = [
        "sum(l_quantity)",
        "sum(l_extendedprice)",
        "sum(l_extendedprice * (1 - l_discount))",
        "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))",
        "avg(l_discount)",
        "count(*)",
    ]

    def action() -> None:
        from pyspark.sql import functions

        frame = library.frame(path, [*Q1, "l_shipdate"], "l_shipdate <= DATE '1998-09-02'")
        grouped = frame.groupBy("l_returnflag", "l_linestatus")
        grouped.agg(*map(functions.expr, aggregates)).collect()

    return timed(action)


def q6(library: Api, size: Size) -> Action:
    """TPC-H's sixth query, over a table sorted by what it filters by."""
    path = lineitem(library, size, by_day=True)
    names = ["l_extendedprice", "l_discount", "l_quantity", "l_shipdate"]

    def action() -> None:
        frame = library.frame(path, names, ONE_YEAR)
        frame.selectExpr("sum(l_extendedprice * l_discount)").collect()

    return timed(action)


def write(library: Api, size: Size) -> Action:
    """Rows that Spark reads from Parquet, written."""
    import spark_ext
    from fermion_table import Table

    source = made(
        CACHE / size / "spark-parquet",
        "lineitem",
        lambda path: write_parquet(path, [data.lineitem(size)]),
    )
    target = CACHE / size / "spark-fresh"
    schema = data.lineitem(size).schema  # reading it takes seconds, and is not what is measured

    def action() -> None:
        remove(target)
        frame = session().read.parquet(str(source))
        if library.is_parquet:
            frame.write.parquet(str(target))
            return
        if library.name == CATALOG:
            name = catalog_of(str(target.parent))
            frame.writeTo(f"{name}.`{target.name}`").create()
            return
        Table.create(target, schema, durability="fast")
        if library.name == FUNCTION:
            spark_ext.append(frame, target)
        else:
            frame.write.format("fermion").mode("append").save(str(target))

    return timed(action)


def file_parts(files: int, rows: int) -> list[pa.Table]:
    """The tables of so many files, with so many rows each."""
    table = data.batches(files, rows)
    return [table.slice(number * rows, rows) for number in range(files)]


def compact(library: Api, size: Size) -> Action:
    """Many small files into few; Parquet has to read and write all rows again."""
    import spark_ext

    if library.name in (FORMAT, CATALOG):
        raise NotOffered("compaction is a function")
    stored = library.stored(size, "small-files", lambda: file_parts(*SMALL_FILES[size]))
    target = CACHE / size / "spark-compacted"
    remove(target)
    session().range(10).count()

    def action() -> None:
        if library.is_parquet:
            total = sum(file.stat().st_size for file in stored.glob("*.parquet"))
            frame = session().read.parquet(str(stored)).coalesce(max(1, total // FILE_BYTES))
            frame.write.parquet(str(target))
        else:
            spark_ext.compact(session(), target, target_size=FILE_BYTES)

    if not library.is_parquet:
        import shutil

        shutil.copytree(stored, target)
    return timed(action, warm=False)


def count(library: Api, size: Size) -> Action:
    """How many rows there are in very many files."""
    path = library.stored(size, "counted", lambda: file_parts(*COUNTED_FILES[size]))
    columns = None if library.name in (PARQUET, CATALOG) else []  # these two prune themselves
    return timed(lambda: library.frame(path, columns).count())


RIVAL = "best rival"
QUESTION = Question(
    module="benchmarks.spark",
    title="Spark (local[2]) over Fermion tables and over Parquet",
    cases={
        "10 of 10,000 columns": Case(wide_sum, calls=3),
        "10,000 columns, relation": Case(wide_relation, calls=3),
        "lineitem, all columns": Case(all_columns, calls=3),
        "lineitem, one sum": Case(one_sum, calls=3),
        "lineitem, a sum for each order": Case(many_groups, calls=3),
        "lineitem, q1": Case(q1, calls=3, sizes=("full", "quick")),
        "lineitem by day, q6": Case(q6, calls=3, sizes=("full", "quick")),
        "write lineitem": Case(write, calls=2),
        "compact small files": Case(compact),
        "count many files": Case(count, calls=3),
    },
    libraries=(
        Api(FUNCTION, ("pyspark",), "pyspark", own=True),
        Api(FORMAT, ("pyspark",), "pyspark", own=True),
        Api(CATALOG, ("pyspark",), "pyspark", own=True),
        Api(PARQUET, ("pyspark",), "pyspark"),
    ),
    targets=(
        Target("10 of 10,000 columns", 0.25, measured=FUNCTION, of=RIVAL),
        Target("10 of 10,000 columns", 0.4, measured=CATALOG, of=RIVAL),
        Target("10,000 columns, relation", 1.0, measured=CATALOG),
        Target("lineitem, all columns", 1.0, measured=FUNCTION, of=RIVAL),
        Target("lineitem, all columns", 1.0, measured=CATALOG, of=RIVAL),
        Target("lineitem, all columns", 1.1, measured=FORMAT, of=RIVAL),
        Target("lineitem, one sum", 0.8, measured=CATALOG, of=RIVAL),
        Target("lineitem, a sum for each order", 1.0, measured=CATALOG, of=RIVAL),
        Target("lineitem, q1", 0.35, measured=CATALOG, of=RIVAL),
        Target("lineitem by day, q6", 0.6, measured=CATALOG, of=RIVAL),
        Target("write lineitem", 1.0, measured=FUNCTION, of=RIVAL),
        Target("compact small files", 0.2, metric="all_cpu_seconds", measured=FUNCTION, of=RIVAL),
    ),
    rounds={"full": 1},
    metrics=("all_cpu_seconds",),
    warm_up=False,
    notes="A case runs once before the clock starts; CPU counts the JVM and Python workers.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
