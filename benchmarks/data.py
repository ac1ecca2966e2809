"""The data: seeded where it is made here, TPC-H where ``tpchgen-cli`` makes it."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.conditions import Condition
from benchmarks.files import CACHE, made
from benchmarks.question import NotOffered, Size

SEED = 20_260_101
SCALE = "FERMION_BENCH_SCALE"
"""The variable that sets another scale factor of TPC-H than that of the size."""
MONTH = (datetime.date(1995, 3, 1), datetime.date(1995, 4, 1))  # the second exclusive


def in_month(column: str) -> Condition:
    """Of dates: the month."""
    return Condition(column, "between", MONTH)


def tiny() -> pa.Table:
    """Two rows, to warm a library up with."""
    return pa.table({"a": pa.array([1, None], pa.int64()), "b": ["x", "y"], "day": MONTH})


def wide(columns: int, rows: int) -> pa.Table:
    """A feature table: float32, int64 and string columns in turn, ``feature_00000`` and so on.

    Floats are measurements of two decimals, integers counts of very different size, strings
    categories of a few to a few hundred values; a tenth of the columns has nulls.
    """
    random = np.random.default_rng(SEED)
    arrays = []
    for index in range(columns):
        nulls = random.random(rows) < 0.2 if index % 10 == 9 else None
        kind = index % 3
        if kind == 0:
            values = np.round(random.normal(index % 100, 10, rows), 2).astype(np.float32)
            arrays.append(pa.array(values, pa.float32(), mask=nulls))
        elif kind == 1:
            values = random.integers(0, 10 ** (1 + index % 9), rows)
            arrays.append(pa.array(values, pa.int64(), mask=nulls))
        else:
            words = np.array([f"value {index} {n}" for n in range(2 + index % 300)])
            arrays.append(
                pa.array(words[random.integers(0, len(words), rows)], pa.string(), mask=nulls)
            )
    return pa.Table.from_arrays(arrays, wide_names(columns))


def wide_names(columns: int) -> list[str]:
    """The names of `wide`'s columns."""
    return [f"feature_{index:05d}" for index in range(columns)]


def some_names(columns: int, count: int = 10) -> list[str]:
    """Columns spread over a wide table, of every type."""
    return [f"feature_{index:05d}" for index in np.linspace(0, columns - 1, count).astype(int)]


def adjacent_names(columns: int, count: int = 10) -> list[str]:
    """Columns side by side in the middle of a wide table."""
    return [f"feature_{index:05d}" for index in range(columns // 2, columns // 2 + count)]


def scaled(size: Size) -> Path:
    """The folder for files of a size, or of the scale factor that the environment sets."""
    return CACHE / (f"scale-{os.environ[SCALE]}" if SCALE in os.environ else size)


def lineitem(size: Size) -> pa.Table:
    """TPC-H lineitem: scale factor 1 in full, 0.05 quick; strings as ``string``, not views."""
    if size == "tiny":
        return _small_lineitem()
    parquet = made(scaled(size), "lineitem", lambda folder: _generate_tpch(folder, size))
    table = pq.read_table(parquet / "lineitem.parquet")
    fields = [
        pa.field(f.name, pa.string() if f.type == pa.string_view() else f.type, f.nullable)
        for f in table.schema
    ]
    return table.cast(pa.schema(fields)).combine_chunks()


def _generate_tpch(folder: Path, size: Size) -> None:
    program = Path(sys.executable).with_name("tpchgen-cli")
    found = str(program) if program.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise NotOffered("TPC-H needs tpchgen-cli (pip install '.[bench]')")
    scale = os.environ.get(SCALE, "1" if size == "full" else "0.05")
    command = [found, "parquet", "-s", scale, "--tables", "lineitem", "-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def _small_lineitem(rows: int = 5_000) -> pa.Table:
    """The columns that the questions name, in TPC-H's types; for trying the benchmarks out."""
    random = np.random.default_rng(SEED)
    cents = [Decimal(int(n)).scaleb(-2) for n in random.integers(100, 10_000, rows)]
    first = np.datetime64("1992-01-01")
    return pa.table(
        {
            "l_orderkey": np.sort(random.integers(0, rows, rows)),
            "l_quantity": pa.array(cents, pa.decimal128(15, 2)),
            "l_extendedprice": pa.array(cents[::-1], pa.decimal128(15, 2)),
            "l_shipdate": pa.array(first + random.integers(0, 2500, rows), pa.date32()),
            "l_comment": pa.array([f"comment {n}" for n in random.integers(0, 999, rows)]),
        }
    )


@cache
def random_rows(total: int, count: int = 1_000) -> np.ndarray:
    """Distinct row numbers in rising order; int64, shape (min(count, total),)."""
    random = np.random.default_rng(SEED)
    return np.sort(random.choice(total, min(count, total), replace=False))


def people(rows: int) -> pa.Table:
    """Rows in no order: ``id`` and ``name`` are distinct, ``score`` a float64, and five more."""
    random = np.random.default_rng(SEED)
    given = [
        f"{a}{b}" for a in ("an", "be", "ca", "do", "el", "fi", "ga") for b in ("na", "rt", "lo")
    ]
    ids = random.permutation(rows * 10)[:rows].astype(np.int64)
    names = [
        f"{given[n % 21]}.{n:x}@example.org" for n in random.permutation(rows * 100)[:rows].tolist()
    ]
    days = np.datetime64("2020-01-01") + random.integers(0, 2000, rows)
    return pa.table(
        {
            "id": ids,
            "name": pa.array(names, pa.string()),
            "score": random.normal(100.0, 15.0, rows),
            "day": pa.array(days, pa.date32()),
            "visits": random.integers(0, 300, rows).astype(np.int32),
            "balance": np.round(random.normal(0.0, 1000.0, rows), 2),
            "city": pa.array([f"city {n}" for n in random.integers(0, 500, rows)], pa.string()),
            "active": random.random(rows) < 0.3,
        }
    )


NESTED = ("vectors", "structs", "maps", "lists")


def nested(kind: str, rows: int) -> pa.Table:
    """One nested column, ``value``: embeddings, lists of structs, maps, or lists of lists."""
    random = np.random.default_rng(SEED)
    if kind == "vectors":
        values = pa.array(random.normal(size=rows * 128).astype(np.float32))
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * 128)
        return pa.table({"value": pa.ListArray.from_arrays(offsets, values)})
    offsets = _offsets(random, rows)
    count = offsets[-1].as_py()
    if kind == "structs":
        words = np.array([f"item {n}" for n in range(500)])
        items = pa.StructArray.from_arrays(
            [
                pa.array(random.integers(0, 10**6, count)),
                pa.array(words[random.integers(0, 500, count)], pa.string()),
            ],
            ["id", "name"],
        )
        return pa.table({"value": pa.ListArray.from_arrays(offsets, items)})
    if kind == "maps":
        keys = np.array([f"key {n}" for n in range(50)])
        items = pa.array(np.round(random.normal(size=count), 3))
        keys = pa.array(keys[random.integers(0, 50, count)], pa.string())
        return pa.table({"value": pa.MapArray.from_arrays(offsets, keys, items)})
    inner = _offsets(random, count)
    numbers = pa.array(random.integers(0, 1000, inner[-1].as_py()))
    lists = pa.ListArray.from_arrays(inner, numbers)
    return pa.table({"value": pa.ListArray.from_arrays(offsets, lists)})


def _offsets(random: np.random.Generator, rows: int) -> pa.Array:
    """Lists of 0 to 4 items, 2 on average."""
    lengths = random.integers(0, 5, rows)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def batches(count: int, rows: int = 10) -> pa.Table:
    """Small batches in the order of their ids: ``batch_id``, ``id``, ``value``, ``name``."""
    random = np.random.default_rng(SEED)
    total = count * rows
    words = np.array([f"name {n}" for n in range(1000)])
    return pa.table(
        {
            "batch_id": np.repeat(np.arange(count, dtype=np.int64), rows),
            "id": np.arange(total, dtype=np.int64),
            "value": np.round(random.normal(size=total), 3),
            "name": pa.array(words[random.integers(0, 1000, total)], pa.string()),
        }
    )
