"""Files that the commands are tried on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion

ROWS = 3_000


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "sample.fermion"
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "id": numbers,
            "price": pa.array([None if i % 3 == 0 else i / 4 for i in range(ROWS)]),
            "name": pa.array([f"name {i % 20}" for i in range(ROWS)]),
            "s": pa.array([{"x": i, "tags": ["a"] * (i % 3)} for i in range(ROWS)]),
            "nothing": pa.nulls(ROWS, pa.int32()),
        }
    ).replace_schema_metadata({"origin": "here"})
    fields = [
        table.schema.field(0).with_metadata({"PARQUET:field_id": "7"}),
        *list(table.schema)[1:],
    ]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    options = fermion.WriteOptions(stripe_rows=2_000, page_bytes=4_096, bloom_filters=["name"])
    entries = {"note": "n" * 300}
    with fermion.Writer(path, schema, options=options, key_value_metadata=entries) as writer:
        writer.write(table.cast(schema))
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "wide.fermion"
    fermion.write_table({f"c{i}": [i] for i in range(2_000)}, path)
    return path


@pytest.fixture
def damaged(sample: Path, tmp_path: Path) -> Path:
    """The sample with one byte of its first page changed."""
    data = bytearray(sample.read_bytes())
    data[40] ^= 1
    path = tmp_path / "damaged.fermion"
    path.write_bytes(data)
    return path
