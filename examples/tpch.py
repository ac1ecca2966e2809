"""The 22 queries of TPC-H over Fermion tables, through SQL: the same answers as over Parquet.

python examples/tpch.py [directory] [--scale 0.1]

The data come from the program tpchgen-cli (`pip install tpchgen-cli`).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import spark_ext

TABLES = (
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
)  # fmt: skip
QUERIES = Path(__file__).with_name("tpch_queries.sql")


def main() -> int:
    """Make the data, ask both, compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--scale", type=float, default=0.1, help="1 is about 1 GB (default: 0.1)")
    parser.add_argument("--query", type=int, action="append", help="only this one; repeat for more")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="fermion-"))
    parquet, warehouse = directory / "parquet", directory / "warehouse"
    generate(parquet, options.scale)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", 4)
    builder = builder.config("spark.driver.memory", "4g")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        for name in TABLES:
            spark.read.parquet(str(parquet / f"{name}.parquet")).createOrReplaceTempView(name)
            spark_ext.from_parquet(spark, parquet / f"{name}.parquet", warehouse / name)
        # A session has its own views and its own current catalog; both run in one Spark.
        fermion = spark.newSession()
        spark_ext.install_catalog(fermion, "lake", warehouse)
        fermion.sql("USE lake")
        wrong = compare(spark, fermion, options.query)
    finally:
        spark.stop()
    print(f"WRONG: {', '.join(wrong)}" if wrong else "right: the same rows from both")
    return 1 if wrong else 0


def generate(directory: Path, scale: float) -> None:
    """Make the eight tables as Parquet files, unless they are there."""
    if directory.exists():
        return
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        sys.exit("tpchgen-cli is not installed: pip install tpchgen-cli")
    made = directory.with_name("making")
    made.mkdir(parents=True)
    command = [program, "parquet", "--scale-factor", str(scale), "--output-dir", str(made)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    made.rename(directory)


def queries() -> dict[str, str]:
    """The queries by name."""
    parts = re.split(r"^-- (Q\d+):.*\n", QUERIES.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def compare(spark: SparkSession, fermion: SparkSession, only: list[int] | None) -> list[str]:
    """Run each query over both; the names of those whose answers differ come back."""
    wrong = []
    print(f"{'query':6} {'rows':>6} {'Parquet s':>10} {'Fermion s':>10}")
    for name, text in queries().items():
        if only and int(name[1:]) not in only:
            continue
        expected, parquet_seconds = timed(spark, text)
        found, fermion_seconds = timed(fermion, text)
        same = found == expected
        if not same:
            wrong.append(name)
        print(
            f"{name:6} {len(found):6,} {parquet_seconds:10.2f} {fermion_seconds:10.2f}"
            + ("" if same else "  WRONG")
        )
    return wrong


def timed(spark: SparkSession, text: str) -> tuple[list[tuple], float]:
    """The rows of a query in their order, and the seconds it took."""
    started = time.perf_counter()
    rows = [tuple(row) for row in spark.sql(text).collect()]
    return rows, time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
