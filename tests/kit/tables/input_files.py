"""Files of rows on a storage with a real server: what takes them, and what it makes of them."""

from __future__ import annotations

import json
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet
import pytest

import fermion
from fermion.cli import main
from fermion.errors import InvalidArgumentError
from fermion_table import Table


def check_input_files(folder: str, options: dict[str, Any], storage: list[str]) -> None:
    """Create, append, upsert, merge, import, export and add files that lie beside a table.

    Parameters
    ----------
    folder
        A URL.
    options
        Storage options of tables.
    storage
        The same as arguments of commands.
    """
    files, _ = fsspec.core.url_to_fs(folder, **options)
    landing, events = f"{folder}/landing", f"{folder}/events"

    def write(name: str, *ids: int) -> str:
        rows = pa.table({"id": pa.array(ids, pa.int64()), "kind": [f"k{n}" for n in ids]})
        files.makedirs(f"{landing}/{name}".rpartition("/")[0], exist_ok=True)
        with files.open(f"{landing}/{name}", "wb") as file:
            pyarrow.parquet.write_table(rows, file)
        return f"{landing}/{name}"

    def ids(table: Table) -> list[int]:
        table.refresh()
        return sorted(table.to_arrow()["id"].to_pylist())

    write("day=1/a.parquet", 1, 2)
    write("day=2/b.parquet", 3)
    table = Table.create(events, landing, partition_by=["day"], storage_options=options)
    assert table.columns == ["id", "kind", "day"]
    assert table.scan(filter="day = 2").to_arrow()["id"].to_pylist() == [3]
    table.append(f"{landing}/day=2", schema_mode="merge")
    table.append(f"{landing}/*/a.parquet")
    assert ids(table) == [1, 1, 2, 2, 3, 3]
    with files.open(f"{landing}/text.csv", "wb") as file:
        file.write(b"id,kind,day\n7,x,3\n")
    table.overwrite(f"{landing}/text.csv", filter="day = 1")
    assert 7 in ids(table)
    keyed = Table.create(
        f"{folder}/keyed", table.schema.to_arrow(), primary_key="id", storage_options=options
    )
    keyed.upsert(f"{landing}/text.csv")
    with files.open(f"{landing}/changes.jsonl", "wb") as file:
        file.write(b'{"op": "d", "before": {"id": 7}}\n')
        file.write(b'{"op": "c", "after": {"id": 8, "kind": "y", "day": 4}}\n')
    keyed.upsert(f"{landing}/changes.jsonl", format="debezium")
    keyed.merge(f"{landing}/text.csv", on="id").when_not_matched_insert().execute()
    assert ids(keyed) == [7, 8]
    with pytest.raises(InvalidArgumentError, match=r"nothing/\*.parquet: expected a file"):
        table.append(f"{landing}/nothing/*.parquet")

    given = ["create", f"{folder}/imported", f"{landing}/*/a.parquet", *storage]
    assert main(["table", *given]) == 0
    for _ in range(2):
        assert (
            main(["table", "import", f"{folder}/imported", f"{landing}/*/*.parquet", *storage]) == 0
        )
    imported = Table.open(f"{folder}/imported", storage_options=options)
    assert ids(imported) == [1, 2, 3]
    write("day=1/a.parquet", 1, 2, 9)
    assert main(["table", "import", f"{folder}/imported", f"{landing}/*/a.parquet", *storage]) == 1
    assert ids(imported) == [1, 2, 3]

    file = f"{folder}/more.fermion"
    rows = pa.table({"id": [20, 21], "kind": ["a", "b"], "day": [5, 5]})
    fermion.write_table(
        rows.cast(table.schema.to_arrow(field_ids=False)), file, storage_options=options
    )
    assert table.add_files([file]).deltas.rows_added == 2
    files.rm_file(file)
    table.refresh()
    assert table.scan(filter="day = 5").to_arrow()["id"].to_pylist() == [20, 21]
    assert table.verify(data=True).ok


def arguments_of(options: dict[str, Any]) -> list[str]:
    """Storage options as arguments of commands."""
    return [f"--storage-option={name}:={json.dumps(value)}" for name, value in options.items()]
