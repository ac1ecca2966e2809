"""How a table's files are written is up to who writes them; what is read is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import Table, WriteSettings
from tests.kit.equality import assert_logically_equal

ROWS = pa.table(
    {
        "id": pa.array(range(5_000), pa.int64()),
        "name": [f"name {number % 90}" for number in range(5_000)],
        "value": np.round(np.random.default_rng(2).normal(size=5_000), 2),
    }
)


@pytest.mark.parametrize(
    "options",
    [
        {"checksum": "xxh3"},
        {"read_back": True},
        {"edition": "core-2026"},
        {"column_order": ["value"]},
        {"compress_schema": True},
        {"sorted_by": ["id"]},
        {"codec": "lz4"},
        {"align": 64},
        {"stripe_rows": 700, "bloom_filters": ["name"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_table_reads_files_written_in_any_way(tmp_path: Path, options: dict[str, Any]) -> None:
    """Beside a file written as usual: rows, a filter, time travel, compaction and verification."""
    table = Table.create(tmp_path / "table", ROWS.schema, durability="fast")
    settings = WriteSettings(file_options=fermion.WriteOptions(durable=False, **options))
    with table.writer(settings=settings) as writer:
        writer.write(ROWS)
        table.commit(writer.prepare_commit())
    first = table.snapshot.id
    table.append(ROWS.slice(0, 10))
    (written,) = table.scan(snapshot_id=first).plan().splits
    if "sorted_by" in options:
        with fermion.open(written.location) as file:
            assert [key.name for key in file.sort_order] == ["id"]
    everything = pa.concat_tables([ROWS, ROWS.slice(0, 10)])
    assert_logically_equal(table.scan().to_arrow(), everything)
    found = table.scan(filter="name = 'name 7' AND id < 1000").to_arrow()
    assert found["id"].to_pylist() == [*range(7, 1_000, 90), 7]
    assert table.verify(data=True).problems == ()
    assert table.compact().files_after == 1
    assert_logically_equal(table.scan().to_arrow(), everything)


def test_rows_that_are_not_sorted_as_a_file_says_are_refused(tmp_path: Path) -> None:
    """And nothing of the file is left."""
    table = Table.create(tmp_path / "table", ROWS.schema, durability="fast")
    options = fermion.WriteOptions(durable=False, sorted_by=["value"])
    with table.writer(settings=WriteSettings(file_options=options)) as writer:
        writer.write(ROWS)
        with pytest.raises(InvalidArgumentError, match="sorted_by"):
            writer.prepare_commit()
    assert not list((tmp_path / "table").rglob("*.fermion"))
