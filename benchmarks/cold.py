"""Whole processes: the first query of a file and of a table, and the first rows of a file."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks import harness, layers, tables
from benchmarks.formats import (
    DUCKDB,
    FERMION,
    LANCE,
    PARQUET_ZSTD,
    POLARS,
    VORTEX,
    Format,
)
from benchmarks.lineitem_read import stored
from benchmarks.question import Action, Case, Library, NotOffered, Question, Size, Target


@dataclass(frozen=True)
class Program(Library):
    """Programs of one library, as its documentation writes them; ``path`` is a variable in each.

    Attributes
    ----------
    file, table
        A filtered read of two columns; "" where the library has no such thing.
    head
        Arguments of ``python`` before the path, for the first rows of a file.
    imports
        What a process has imported before its first read is timed.
    format, layer
        What makes the file, and the table.
    """

    file: str = ""
    table: str = ""
    head: tuple[str, ...] = ()
    imports: str = ""
    format: Format | None = None
    layer: layers.Layer | None = field(default=None)


def process(*arguments: str) -> Action:
    """A process of its own, and the CPU time that it takes."""

    def run() -> dict[str, float]:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return {"seconds": seconds, "process_seconds": used}

    run()  # the second time finds everything compiled
    return run


def first_read(imports: str, code: str) -> Action:
    """The CPU time of a read in a process that has imported its library."""
    clock = (
        f"import time\n{imports}\na = time.process_time()\n{code}\nprint(time.process_time() - a)"
    )

    def run() -> dict[str, float]:
        done = subprocess.run([sys.executable, "-c", clock], capture_output=True, check=True)
        return {"process_seconds": float(done.stdout.split()[-1])}

    run()
    return run


def _file(library: Program, size: Size) -> str:
    if library.format is None:
        raise NotOffered("reads no files")
    return stored(library.format, size)


def of_file(start: Callable[[Program, str], Action]) -> Case:
    """A filtered read of two columns of lineitem."""

    def prepare(library: Program, size: Size) -> Action:
        return start(library, f"path = {_file(library, size)!r}\n{library.file}")

    return Case(prepare)


def of_table(library: Program, size: Size) -> Action:
    """A filtered scan of a table of 1,000 rows."""
    if library.layer is None:
        raise NotOffered("has no tables")
    path = tables.appended(library.layer, size, commits=1, each=1_000)
    return process("-c", f"path = {path!r}\n{library.table}")


def of_head(library: Program, size: Size) -> Action:
    """The first rows of lineitem, by the command line."""
    if not library.head:
        raise NotOffered("has no command")
    return process(*library.head, *([_file(library, size)] if library.format else []))


PROGRAMS = (
    Program(
        "fermion",
        ("fermion",),
        "fermion",
        own=True,
        imports="import fermion, pyarrow",
        file="import fermion\n"
        "fermion.read_table(path, columns=['l_shipdate', 'l_extendedprice'],"
        " filter='l_orderkey < 1000')",
        table="from fermion_table import Table\n"
        "Table.open(path).scan(columns=['id', 'name'], filter='id > 990').to_arrow()",
        head=("-m", "fermion", "head"),
        format=FERMION,
        layer=layers.FULL,
    ),
    Program(
        "parquet",
        ("pyarrow",),
        "pyarrow",
        imports="import pyarrow, pyarrow.parquet",
        file="import pyarrow.parquet as pq\n"
        "pq.read_table(path, columns=['l_shipdate', 'l_extendedprice'],"
        " filters=[('l_orderkey', '<', 1000)])",
        format=PARQUET_ZSTD,
    ),
    Program(
        "polars",
        ("polars",),
        "polars",
        imports="import polars, pyarrow",
        file="import polars as pl\n"
        "pl.scan_parquet(path).filter(pl.col('l_orderkey') < 1000)"
        ".select('l_shipdate', 'l_extendedprice').collect()",
        format=POLARS,
    ),
    Program(
        "duckdb",
        ("duckdb",),
        "duckdb",
        imports="import duckdb, pyarrow",
        file="import duckdb\n"
        "duckdb.sql(f\"SELECT l_shipdate, l_extendedprice FROM '{path}' WHERE l_orderkey < 1000\")"
        ".fetchall()",
        format=DUCKDB,
    ),
    Program(
        "vortex",
        ("vortex",),
        "vortex-data",
        imports="import vortex, pyarrow",
        file="import vortex, vortex.expr as ve\n"
        "vortex.open(path).to_arrow(['l_shipdate', 'l_extendedprice'],"
        " expr=ve.lt(ve.column('l_orderkey'), ve.literal(vortex.int_(64), 1000))).read_all()",
        format=VORTEX,
    ),
    Program(
        "lance",
        ("lance",),
        "pylance",
        imports="import lance, pyarrow",
        file="import lance\n"
        "lance.dataset(path).to_table(columns=['l_shipdate', 'l_extendedprice'],"
        " filter='l_orderkey < 1000')",
        table="import lance\n"
        "lance.dataset(path).to_table(columns=['id', 'name'], filter='id > 990')",
        format=LANCE,
        layer=layers.LANCE_TABLE,
    ),
    Program(
        "delta",
        ("deltalake",),
        "deltalake",
        table="from deltalake import DeltaTable\n"
        "DeltaTable(path).to_pyarrow_table(columns=['id', 'name'], filters=[('id', '>', 990)])",
        layer=layers.DELTA,
    ),
    Program("python", (), "", reference=True, head=("-c", "import pyarrow")),
)

QUESTION = Question(
    module="benchmarks.cold",
    title="15  The first query of a process",
    cases={
        "file, filtered": of_file(lambda library, code: process("-c", code)),
        "file, filtered, after the import": of_file(
            lambda library, code: first_read(library.imports, code)
        ),
        "table, filtered": Case(of_table),
        "head of a file": Case(of_head),
    },
    libraries=PROGRAMS,
    targets=(
        Target("file, filtered", 1.0, of="best rival", metric="process_seconds"),
        Target("file, filtered, after the import", 0.02, metric="process_seconds"),
        Target("table, filtered", 1.0, of="best rival", metric="process_seconds"),
    ),
    rounds={"full": 7},
    headline="process_seconds",
    warm_up=False,
    notes="CPU time, user and system, of whole processes whose modules are compiled; after the "
    "import: of the read alone. DuckDB gives rows of Python, Polars its own frame.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
