"""Splits as text: every kind comes back as it was, and what is none is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.engine import split_text, splits_from_text

ROWS = pa.table({"id": [1, 2, 3], "p": ["x", "ü", None]})


def test_files_with_partitions_deletions_and_more_columns_come_back(tmp_path):
    table = Table.create(tmp_path / "t", ROWS.schema, partition_by=["p"])
    table.append(ROWS)
    table.append(ROWS)
    table.delete("id = 2")
    table.add_columns_with({"n": "id + 1"})
    splits = list(table.scan().plan().splits)
    assert splits
    assert splits_from_text(split_text(splits)) == splits


def test_parts_of_files_and_files_to_merge_come_back(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("p", pa.string())])
    table = Table.create(tmp_path / "k", schema, primary_key="id", properties={"bucket": "2"})
    for _ in range(3):
        table.upsert(ROWS)
    splits = list(table.scan().plan().splits)
    assert {type(split).__name__ for split in splits} == {"SectionSplit"}
    assert splits_from_text(split_text(splits)) == splits
    table.compact(full=True)
    parts = [split.part(0, 1) for split in table.scan().plan().splits]
    assert splits_from_text(split_text(parts)) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "[{}]",
        '[{"runs": 1}]',
        '[{"location": 1, "file": "a", "size": 1, "rows": 1}]',
    ],
)
def test_what_is_no_text_of_splits_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="no splits of a scan"):
        splits_from_text(text)
