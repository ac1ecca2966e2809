"""Tables 10: add columns with values to a wide table, and query columns of several steps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import harness, tables
from benchmarks.files import size_of
from benchmarks.layers import FermionTable, LanceTable, Layer
from benchmarks.question import Action, Case, Question, Size, Target

NEW = 100
KEYED = 10
STEPS = 5
LINKED_BYTES_MIN = 1_000_000


@dataclass(frozen=True)
class Shape:
    """Of a table: columns of float32 beside ``id``, files, rows of each."""

    columns: int
    files: int
    rows: int


WIDE = {"full": Shape(10_000, 10, 5_000), "quick": Shape(1_000, 4, 2_000), "tiny": Shape(120, 2, 9)}
STEPPED = {
    "full": Shape(2_000, 10, 10_000),
    "quick": Shape(400, 4, 5_000),
    "tiny": Shape(120, 2, 9),
}


@dataclass(frozen=True)
class FermionColumns(FermionTable):
    """Ours: column files."""

    def add(self, table: Any, names: Sequence[str], new: Sequence[str]) -> None:
        """Add columns: each is twice another one."""
        table.add_columns_with(doubling(names, new), read=list(names), schema=schema_of(new))

    def join(self, table: Any, rows: pa.Table) -> None:
        """Add columns whose rows are found by ``id``."""
        table.fill_columns(rows, on="id")

    def select(self, table: Any, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        return table.scan(columns=list(names)).to_arrow()


@dataclass(frozen=True)
class LanceColumns(LanceTable):
    """Lance: data files with some columns of a fragment."""

    def add(self, table: Any, names: Sequence[str], new: Sequence[str]) -> None:
        import lance

        function = lance.batch_udf(output_schema=schema_of(new))(doubling(names, new))
        table.add_columns(function, read_columns=list(names))

    def join(self, table: Any, rows: pa.Table) -> None:
        table.merge(rows, left_on="id")

    def select(self, table: Any, names: Sequence[str]) -> pa.Table:
        return table.to_table(columns=list(names))


def doubling(names: Sequence[str], new: Sequence[str]) -> Callable[[pa.RecordBatch], Any]:
    """A function that gives twice the values of each column."""

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [pc.multiply(batch[name], pa.scalar(2, pa.float32())) for name in names]
        return pa.RecordBatch.from_arrays(values, schema=schema_of(new))

    return double


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Of columns to add."""
    return pa.schema([(name, pa.float32()) for name in names])


def values(random: np.random.Generator, names: Sequence[str], rows: int) -> list[Any]:
    """Columns in which no encoding finds anything."""
    return list(random.standard_normal((len(names), rows), dtype=np.float32))


@lru_cache(maxsize=1)
def rows_of(shape: Shape, file: int) -> pa.Table:
    """The rows of one file."""
    names = features(shape)
    random = np.random.default_rng(tables.SEED + file)
    ids = np.arange(file * shape.rows, (file + 1) * shape.rows)
    return pa.table([ids, *values(random, names, shape.rows)], names=["id", *names])


def features(shape: Shape) -> list[str]:
    """The columns that a table begins with."""
    return [f"feature_{number:05}" for number in range(shape.columns)]


def step(number: int) -> list[str]:
    """The columns that a step adds."""
    return [f"step_{number}_{place:03}" for place in range(NEW)]


def spread(shape: Shape, count: int) -> list[str]:
    """Columns from all over a table."""
    return features(shape)[:: shape.columns // count][:count]


def fill(layer: Layer, shape: Shape, steps: int, path: str) -> None:
    """Make a table, and add columns to it in so many steps."""
    layer.create(path, rows_of(shape, 0).schema)
    for file in range(shape.files):
        layer.append(layer.open(path), rows_of(shape, file))
    for number in range(steps):
        layer.add(layer.open(path), spread(shape, NEW), step(number))  # type: ignore[attr-defined]


def linked(source: str, target: str) -> None:
    """Copy a small file; a large one, which nothing changes, gets a second name."""
    if Path(source).stat().st_size < LINKED_BYTES_MIN:
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def bytes_moved() -> dict[str, int]:
    """What this process has read and written so far; nothing where the system does not say."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        return {}
    found = dict(line.split(": ") for line in counts.read_text().splitlines())
    return {"read_bytes": int(found["rchar"]), "written_bytes": int(found["wchar"])}


def changed(change: Callable[[Any, Any, Shape], int]) -> Case:
    """Open a wide table and add columns to it; what the change gives is the bytes of columns."""

    def prepare(layer: Layer, size: Size) -> Action:
        shape = WIDE[size]
        stored = tables.stored(layer, size, "features", lambda path: fill(layer, shape, 0, path))
        path = tables.fresh(layer, size)
        shutil.copytree(stored, path, copy_function=linked)
        before = size_of(Path(path))

        def action() -> dict[str, int]:
            start = bytes_moved()
            involved = change(layer, layer.open(path), shape)
            moved = {key: count - start[key] for key, count in bytes_moved().items()}
            if not moved:
                return {}
            return {
                **moved,
                "moved_bytes": sum(moved.values()),
                "column_bytes": involved,
                "rewrite_bytes": before + size_of(Path(path)),
            }

        return action

    return Case(prepare)


def computed(layer: Any, table: Any, shape: Shape) -> int:
    """Add columns that a function computes; each from another column."""
    layer.add(table, spread(shape, NEW), step(0))
    return 2 * NEW * shape.rows * shape.files * 4


def keyed(layer: Any, table: Any, shape: Shape) -> int:
    """Add columns by key, for all rows, in another order."""
    rows = shape.rows * shape.files
    random = np.random.default_rng(tables.SEED)
    names = step(0)[:KEYED]
    columns = [random.permutation(rows), *values(random, names, rows)]
    layer.join(table, pa.table(columns, names=["id", *names]))
    return rows * (8 + KEYED * 4)


def queried(*, is_one_file: bool) -> Case:
    """Open a table that got columns in steps, and read ten: five old ones, one of each step."""

    def prepare(layer: Any, size: Size) -> Action:
        shape = STEPPED[size]
        names = [*spread(shape, 5), *(step(number)[7 * number] for number in range(STEPS))]

        def make(path: str) -> None:
            fill(layer, shape, STEPS, path)

        def make_whole(path: str) -> None:
            first = rows_of(shape, 0)
            new = [name for number in range(STEPS) for name in step(number)]
            layer.create(path, pa.schema([*first.schema, *schema_of(new)]))
            random = np.random.default_rng(tables.SEED)
            for file in range(shape.files):
                columns = [*rows_of(shape, file).columns, *values(random, new, shape.rows)]
                rows = pa.table(columns, names=[*first.schema.names, *new])
                layer.append(layer.open(path), rows)

        if is_one_file:
            path = tables.stored(layer, size, "features-at-once", make_whole)
        else:
            path = tables.stored(layer, size, "features-in-steps", make)
        return lambda: layer.select(layer.open(path), names)

    return Case(prepare, calls=9)


FERMION = FermionColumns("fermion")
LANCE = LanceColumns("lance")
QUESTION = Question(
    module="benchmarks.column_files",
    title="Tables 10  Add 100 columns with values to 10,000; query ten columns of five steps",
    cases={
        "add 100 computed columns": changed(computed),
        "add 10 columns by key": changed(keyed),
        "query of five steps": queried(is_one_file=False),
        "query of one file": queried(is_one_file=True),
    },
    libraries=(FERMION, LANCE),
    targets=(
        Target("add 100 computed columns", 1.0, of=LANCE.name),
        Target("add 100 computed columns", 2.0, metric="moved_bytes", per="column_bytes"),
        Target("add 100 computed columns", 1 / 50, metric="moved_bytes", per="rewrite_bytes"),
        Target("add 10 columns by key", 1.0, of=LANCE.name),
        Target("query of five steps", 1.5, of="query of one file"),
        Target("query of five steps", 1.5, metric="cpu_seconds", of="query of one file"),
    ),
    rounds={"full": 5},
    metrics=("read_bytes", "written_bytes"),
    notes="10,000 columns of random float32 x 50,000 rows in 10 files; each new column is twice "
    "another one. By key: values of all rows, in another order. The query: 2,000 columns x 100,000 "
    "rows in 10 files, which got 100 columns in each of five steps, or were written at once. "
    "Fermion calls fsync, Lance does not.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
