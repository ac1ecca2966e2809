"""Thirty years of first names in one table: small files, Spark, a new schema, time travel.

    python examples/quickstart.py [directory]

makes a table in the directory (a temporary one if none is given), and checks everything it reads
against the answer computed from the raw files with pyarrow alone. Exit status 1 if any differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession, functions

import spark_ext
from fermion_table import Table

DATA = Path(__file__).resolve().parent / "data" / "babynames"
YEARS_APPENDED = range(1981, 2001)  # one file and one commit each
YEARS_FROM_SPARK = range(2001, 2006)  # one commit, the year being the batch id
YEARS_WITH_RANK = range(2006, 2011)  # under the new schema
FIRST_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("sex", pa.string()),
        pa.field("births", pa.int32()),
        pa.field("year", pa.int16()),
    ]
)


# --- the raw files, read with pyarrow alone -----------------------------------------------------


def raw_file(year: int) -> Path:
    """Return the file of one year of birth."""
    return DATA / f"yob{year}.txt.gz"


def read_raw(years: Iterable[int]) -> pa.Table:
    """Read the files of some years as rows of the table's first schema."""
    tables = []
    for year in years:
        rows = pa.csv.read_csv(
            raw_file(year),
            read_options=pa.csv.ReadOptions(column_names=["name", "sex", "births"]),
            convert_options=pa.csv.ConvertOptions(
                column_types={"births": pa.int32()},
                strings_can_be_null=False,  # a name spelled "Null" is a name
            ),
        )
        rows = rows.append_column("year", pa.array([year] * rows.num_rows, pa.int16()))
        tables.append(rows.cast(FIRST_SCHEMA))
    return pa.concat_tables(tables)


def with_rank(rows: pa.Table) -> pa.Table:
    """Add each name's place among the names of its sex in its year; equal births share a place."""
    parts = []
    for year in sorted(pc.unique(rows["year"]).to_pylist()):
        for sex in ("F", "M"):
            part = rows.filter((pc.field("year") == year) & (pc.field("sex") == sex))
            place = pc.rank(part["births"], sort_keys="descending", tiebreaker="min")
            parts.append(part.append_column("rank", place.cast(pa.int32())))
    return pa.concat_tables(parts)


def as_evolved(rows: pa.Table) -> pa.Table:
    """Give rows of the first schema the names and types that step 3 introduces."""
    if "rank" not in rows.column_names:
        rows = rows.append_column("rank", pa.nulls(rows.num_rows, pa.int32()))
    rows = rows.rename_columns({"births": "babies"})
    place = rows.schema.get_field_index("babies")
    return rows.set_column(place, "babies", rows["babies"].cast(pa.int64()))


# --- what the program says ------------------------------------------------------------------------


class Report:
    """Prints the progress, compares answers and remembers which of them were wrong."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.right: list[str] = []
        self.wrong: list[str] = []

    def step(self, number: int, title: str) -> None:
        """Announce a step."""
        print(f"\n{number}. {title}  [{time.monotonic() - self.started:.1f} s]", flush=True)

    def line(self, text: str) -> None:
        """Print one indented line."""
        print(f"   {text}", flush=True)

    def check(self, question: str, answer: pa.Table, expected: pa.Table) -> None:
        """Compare two tables as sets of rows: name, sex and year tell the rows apart."""
        key = [(name, "ascending") for name in ("year", "sex", "name")]
        key = [order for order in key if order[0] in expected.column_names] or [
            (name, "ascending") for name in expected.column_names
        ]
        same = answer.schema.remove_metadata().equals(expected.schema) and (
            answer.sort_by(key).combine_chunks().equals(expected.sort_by(key).combine_chunks())
        )
        (self.right if same else self.wrong).append(question)
        self.line(f"{'right' if same else 'WRONG'}: {question}: {answer.num_rows:,} rows")
        if not same:
            self.line(f"expected {expected.num_rows:,} rows of {expected.schema.names}")
            self.line(f"found {answer.num_rows:,} rows of {answer.schema.names}")


def size(table: Table) -> str:
    """Say how many files, rows and bytes the newest snapshot has."""
    totals = table.snapshot.totals
    return f"{totals.files} files, {totals.live_rows:,} rows, {totals.bytes:,} bytes"


# --- the five steps -------------------------------------------------------------------------------


def append_one_commit_per_file(path: Path, report: Report) -> Table:
    """Step 1: create the table and append the first years, a commit each."""
    report.step(1, f"Create a table and append {len(YEARS_APPENDED)} files, one commit each")
    table = Table.create(path, FIRST_SCHEMA)
    for year in YEARS_APPENDED:
        snapshot = table.append(read_raw([year]), message=f"births of {year}")
        report.line(f"snapshot {snapshot.id}: {snapshot.message}")
    report.line(size(table))
    return table


def append_with_spark(spark: SparkSession, path: Path, report: Report) -> None:
    """Step 2: tasks write the files of five more years, the driver commits once."""
    report.step(2, f"Append {len(YEARS_FROM_SPARK)} more years with Spark, by batch id")
    births: DataFrame = (
        spark.read.schema("name string, sex string, births int")
        .csv([str(raw_file(year)) for year in YEARS_FROM_SPARK])
        .withColumn("year", functions.regexp_extract(functions.input_file_name(), r"yob(\d{4})", 1))
        .withColumn("year", functions.col("year").cast("smallint"))
    )
    snapshot = spark_ext.append(births, path, batch_id_column="year")
    report.line(f"snapshot {snapshot.id}: batches {', '.join(map(str, YEARS_FROM_SPARK))}")
    report.line(size(Table.open(path)))


def evolve(path: Path, report: Report) -> None:
    """Step 3: change the schema three times; no file is written again."""
    report.step(3, "A new column, a rename and a wider type, then rows that use them")
    table = Table.open(path)
    table.add_columns({"rank": pa.int32()})
    table.rename_column("births", "babies")
    table.alter_column("babies", type=pa.int64())
    for field in table.schema.to_arrow():
        report.line(f"{field.name}: {field.type}")
    for year in YEARS_WITH_RANK:
        table.append(as_evolved(with_rank(read_raw([year]))), message=f"births of {year}, ranked")
    report.line(size(table))


def compact(spark: SparkSession, path: Path, report: Report) -> int:
    """Step 4: tasks write many small files again as few; return the snapshot before that."""
    report.step(4, "Compact the small files with Spark")
    table = Table.open(path)
    before = table.snapshot.id
    report.line(f"before: {size(table)}")
    spark_ext.compact(spark, path)
    report.line(f"after:  {size(Table.open(path))}")
    return before


def read_everything(spark: SparkSession, path: Path, before: int, report: Report) -> None:
    """Step 5: read the table in many ways, and compare with the raw files."""
    report.step(5, "Read it: as it is and as it was")
    table = Table.open(path)
    old = read_raw([*YEARS_APPENDED, *YEARS_FROM_SPARK])
    now = pa.concat_tables([as_evolved(old), as_evolved(with_rank(read_raw(YEARS_WITH_RANK)))])
    names = now.column_names

    report.check("the table now", table.scan(columns=names).to_arrow(), now)
    report.check(
        f"as of snapshot {before}, before the compaction",
        table.scan(columns=names, snapshot_id=before).to_arrow(),
        now,
    )
    report.check(
        "as of snapshot 1, under its own schema",
        table.scan(snapshot_id=1).to_arrow(),
        read_raw([YEARS_APPENDED[0]]),
    )
    report.check(
        "batch 2003, by its id",
        table.lookup_batch(2003, columns=names),
        now.filter(pc.field("year") == 2003),
    )

    wanted = "name = 'Jennifer' AND babies > 10000 AND year < 1990"
    scan = table.scan(columns=["year", "sex", "name", "babies"], filter=wanted)
    chosen = (
        (pc.field("name") == "Jennifer") & (pc.field("babies") > 10_000) & (pc.field("year") < 1990)
    )
    report.check(
        wanted, scan.to_arrow(), now.filter(chosen).select(["year", "sex", "name", "babies"])
    )
    for line in scan.explain().splitlines():
        report.line("    " + line)

    columns = ["year", "sex", "name"]
    report.check(
        "rank = 1, through Spark",
        spark_ext.read_table(spark, path, columns=columns, filter="rank = 1").toArrow(),
        now.filter(pc.field("rank") == 1).select(columns),
    )
    report.check(
        "births per year, summed by Spark",
        spark_ext.read_table(spark, path, columns=["year", "babies"])
        .groupBy("year")
        .agg(functions.sum("babies").alias("babies"))
        .toArrow(),
        now.group_by("year").aggregate([("babies", "sum")]).rename_columns(["year", "babies"]),
    )


def start_spark() -> SparkSession:
    """Start a session on this machine."""
    print("\nStarting Spark", flush=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # some hosts cannot find their own name
    builder = SparkSession.builder.master("local[2]").appName("quickstart")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    builder = builder.config("spark.sql.shuffle.partitions", 2)
    return spark_ext.configure(builder).getOrCreate()


def main() -> int:
    """Run the steps; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, help="where to make the table")
    directory = parser.parse_args().directory or Path(tempfile.mkdtemp(prefix="fermion-"))
    path = directory.resolve() / "names"
    if Table.exists(path):
        parser.error(f"there is a table at {path} already; choose another directory")

    report = Report()
    append_one_commit_per_file(path, report)
    spark = start_spark()
    try:
        append_with_spark(spark, path, report)
        evolve(path, report)
        before = compact(spark, path, report)
        read_everything(spark, path, before, report)
    finally:
        spark.stop()

    table = Table.open(path)
    print("\nSummary")
    report.line(f"table:     {path}")
    report.line(f"snapshots: {table.snapshot.id + 1}, the newest holds {size(table)}")
    report.line(f"raw files: {sum(file.stat().st_size for file in DATA.iterdir()):,} bytes of gzip")
    report.line(f"time:      {time.monotonic() - report.started:.1f} s")
    report.line(f"checks:    {len(report.right)} right, {len(report.wrong)} wrong")
    for question in report.wrong:
        report.line(f"WRONG: {question}")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
