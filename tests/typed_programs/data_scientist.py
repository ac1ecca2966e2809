"""What a data scientist writes: frames in, frames out. Checked by `mypy --strict`, never run.

Where a comment says ``type: ignore``, mypy has to find an error: if it finds none, the comment is
one.
"""

from __future__ import annotations

from typing import assert_type

import pandas as pd
import polars as pl

from fermion_table import Scan, Snapshot, Table


def explore(path: str, frame: pd.DataFrame, lazy: pl.LazyFrame) -> float:
    """Store frames, look at rows, ask for some."""
    table = Table.create(path, frame)
    assert_type(table.append(lazy), Snapshot)
    table.append({"id": [1, 2], "price": [0.5, None]})
    table.append([{"id": 3, "price": 1.5}])
    table.append("rows.parquet")
    assert_type(table.scan(columns=["id"], filter="price > 1"), Scan)
    assert_type(table.scan(filter=pl.col("price") > 1).to_polars(), pl.DataFrame)
    assert_type(table.to_polars(), pl.LazyFrame)
    table.append(5)  # type: ignore[arg-type]
    table.append([1, 2, 3])  # type: ignore[list-item]
    table.scan(filter=5)  # type: ignore[arg-type]
    table.scan(colums=["id"])  # type: ignore[call-arg]
    print(table.to_polars().height)  # type: ignore[attr-defined]
    return float(table.scan(columns=["price"]).to_polars()["price"].sum())
