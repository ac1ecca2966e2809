"""What an ML engineer writes: features by row and by key. Checked by `mypy --strict`, never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import fermion
from fermion_table import Snapshot, Table


def features(path: str, vectors: npt.NDArray[np.float32]) -> Iterator[pa.RecordBatch]:
    """Store arrays, compute columns, look up keys, read batches."""
    assert_type(fermion.write_table(vectors, "vectors.fermion"), fermion.FileInfo)
    table = Table.create(path, pa.schema([("id", pa.int64())]), primary_key="id")
    assert_type(table.add_columns_with({"twice": "id * 2"}), Snapshot)
    table.lookup([3, 1, 2])
    table.lookup(3)  # type: ignore[arg-type]
    table.fill_columns(7, on="id", columns=["twice"])  # type: ignore[arg-type]
    table.add_columns_with("id * 2")  # type: ignore[arg-type]
    fermion.write_table(1.5, "vectors.fermion")  # type: ignore[arg-type]
    fermion.write_table(vectors, "vectors.fermion", profile="smallest")  # type: ignore[arg-type]
    yield from table.scan(columns=["twice"]).to_batches()


def rows(path: str, indices: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Rows of a file by their numbers."""
    with fermion.open(path) as file:
        assert_type(file.count("id > 1"), int)
        file.count(1)  # type: ignore[arg-type]
        return dict(file.take(indices).to_pydict())
