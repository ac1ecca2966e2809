"""A valid call of every public function and method of the file format that takes arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fermion
from fermion import FermionFile, ReadOptions, Shred, SortKey, WriteOptions, Writer, col
from fermion.layout import EncodingId
from tests.acceptance.wrong_arguments import EVERYTHING, TEXTS, Case

BUFFERS = frozenset({"bytes"}) | {name for name in EVERYTHING if name.startswith("NumPy")}
"""What has the buffer protocol can be the content of a file."""
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
UNTYPED = {
    "filter": TEXTS | {"None"},
    "path": TEXTS | BUFFERS,
    "source": TEXTS | BUFFERS,
    "Writer.path": TEXTS,
    "write_table.path": TEXTS,
    "target": TEXTS,
    "destination": TEXTS,
    "data": frozenset[str](),
    "positions": frozenset({"None"}),
    # Every value can be a literal; whether it fits the column is known when the filter is used.
    "low": EVERYTHING,
    "high": EVERYTHING,
    "Column.isin.values": frozenset({"list of fractions", "mapping of numbers"}),
}
MADE_BY_THE_PACKAGE = {
    "BatchRange",
    "Bounds",
    "ChunkFlag",
    "Column.leaf",
    "ColumnMetadata",
    "ColumnStatistics",
    "ColumnStatistics.max_value",
    "ColumnStatistics.min_value",
    "FileInfo",
    "FilePruning",
    "IoStats",
    "VerifyReport",
}
"""Results, and what planners exchange with the package, once a column: nobody else makes them."""


def prepare(directory: Path) -> None:
    """The files that the calls are about."""
    fermion.write_table(ROWS, directory / "rows.fermion")
    with Writer(directory / "batches.fermion", ROWS.schema) as writer:
        writer.append_batch(5, ROWS)
    pq.write_table(ROWS, directory / "rows.parquet")


def _open(directory: Path, name: str = "rows.fermion") -> FermionFile:
    return fermion.open(directory / name)


def _of_file(method: str, place: str = "rows.fermion", **arguments: Any) -> Callable[[Path], Case]:
    def case(directory: Path) -> Case:
        file = _open(directory, place)
        return Case(getattr(file, method), arguments, lambda: file.read().to_pydict())

    return case


def _of_writer(method: str, **arguments: Any) -> Callable[[Path], Case]:
    """Each call gets a writer of its own, since a writer ends with a failure."""

    def case(directory: Path) -> Case:
        def call(*given: Any, **named: Any) -> None:
            with Writer(directory / "rows.fermion", ROWS.schema) as writer:
                getattr(writer, method)(*given, **named)

        call.__signature__ = _without_self(getattr(Writer, method))  # type: ignore[attr-defined]
        return Case(call, arguments)

    return case


def _without_self(function: Callable[..., Any]) -> Any:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _of(call: Callable[..., Any], **arguments: Any) -> Callable[[Path], Case]:
    """Arguments that are a `Path` without a folder lie in the directory."""

    def case(directory: Path) -> Case:
        placed = {
            name: directory / value if isinstance(value, Path) else value
            for name, value in arguments.items()
        }
        return Case(call, placed)

    return case


FILE, NEW, PARQUET = Path("rows.fermion"), Path("new.fermion"), Path("rows.parquet")
ASKED = {"columns": ["id"], "filter": "id > 1", "rows": (0, 2)}
TRAINING = {
    "batch_rows": 2,
    "seed": 3,
    "shuffle": "rows",
    "rank": 0,
    "world_size": 2,
    "last": "short",
    "lanes": 4,
    "window_rows": 100,
    "threads": 1,
    "fill": {"id": 0},
    "mask": True,
    "on_damage": "skip",
}
READ_OPTIONS = {
    "threads": 1,
    "prefetch_bytes": 4096,
    "eager_load_threshold": 4096,
    "coalesce_gap_bytes": 4096,
    "coalesce_span_bytes": 4096,
    "keep_dictionaries": True,
    "memory_map": True,
    "verify_checksums": True,
    "use_statistics": True,
    "timeout_s": 5.0,
}
WRITE_OPTIONS = {
    "profile": "compact",
    "stripe_bytes": 4096,
    "stripe_rows": 4096,
    "block_bytes": 4096,
    "page_bytes": 4096,
    "page_rows_max": 4096,
    "column_page_bytes": {"id": 4096},
    "shred": {"features": Shred()},
    "codec": "zstd",
    "compression_level": 3,
    "edition": "2026",
    "encodings": {"id": "plain"},
    "bloom_filters": ["id"],
    "page_bloom_filters": ["id"],
    "summaries": ["id"],
    "global_dictionaries": ["name"],
    "statistics": ["id"],
    "sorted_by": ["id"],
    "checksum": "crc32c",
    "column_index": True,
    "compress_schema": True,
    "column_order": ["id"],
    "blob_inline_bytes": 4096,
    "align": 8,
    "threads": 1,
    "durable": False,
    "read_back": False,
}
ALSO = {type(col("a"))}
"""Classes that only functions give: the methods of a column."""
CALLS: dict[str, Callable[[Path], Case]] = {
    "FermionFile": _of(
        FermionFile, path=FILE, options=ReadOptions(), storage_options={}, blob_files=None
    ),
    "FermionFile.column": _of_file("column", name="id"),
    "FermionFile.count": _of_file("count", filter="id > 1", rows=(0, 2)),
    "FermionFile.find": _of_file("find", filter="id > 1", rows=(0, 2)),
    "FermionFile.iter_batches": _of_file("iter_batches", **ASKED, batch_size=2, blobs="bytes"),
    "FermionFile.layout_html": _of_file("layout_html", pages=True),
    "FermionFile.prune": _of_file("prune", **ASKED),
    "FermionFile.read": _of_file("read", **ASKED, blobs="bytes"),
    "FermionFile.read_batch": _of_file(
        "read_batch", "batches.fermion", batch_id=5, columns=["id"], blobs="bytes"
    ),
    "FermionFile.take": _of_file("take", indices=[1], columns=["id"], blobs="bytes"),
    "FermionFile.training": _of_file("training", columns=["id"], filter="id >= 0", **TRAINING),
    "ReadOptions": _of(ReadOptions, **READ_OPTIONS),
    "ReadOptions.with_overrides": _of(ReadOptions().with_overrides, overrides={"threads": 1}),
    "Shred": _of(Shred, keys=["age"]),
    "SortKey": _of(SortKey, name="id", descending=True, nulls_first=True),
    "WriteOptions": _of(WriteOptions, **WRITE_OPTIONS),
    "WriteOptions.check_edition": _of(
        WriteOptions().check_edition, encoding=EncodingId.PLAIN, wanted="a text"
    ),
    "WriteOptions.stripe_bytes_for": _of(WriteOptions().stripe_bytes_for, num_columns=5),
    "WriteOptions.with_overrides": _of(WriteOptions().with_overrides, overrides={"threads": 1}),
    "Writer": _of(
        Writer,
        path=NEW,
        schema=ROWS.schema,
        options=WriteOptions(),
        key_value_metadata={"a": "b"},
        storage_options={},
        blob_sink=None,
    ),
    "Writer.append_batch": _of_writer(
        "append_batch", batch_id=5, data=ROWS, copy=True, positions=range(ROWS.num_rows)
    ),
    "Writer.write": _of_writer("write", data=ROWS, copy=True),
    "add_columns": _of(
        fermion.add_columns,
        path=FILE,
        data={"more": [1, 2, 3]},
        destination=NEW,
        options=WriteOptions(),
        storage_options={},
    ),
    "drop_columns": _of(
        fermion.drop_columns, path=FILE, columns=["id"], destination=NEW, storage_options={}
    ),
    "select_columns": _of(
        fermion.select_columns, path=FILE, columns=["id"], destination=NEW, storage_options={}
    ),
    "from_parquet": _of(
        fermion.from_parquet,
        source=PARQUET,
        target=NEW,
        options=WriteOptions(),
        progress=lambda *_: None,
        storage_options={},
    ),
    "to_parquet": _of(
        fermion.to_parquet,
        source=FILE,
        target=Path("new.parquet"),
        progress=lambda *_: None,
        storage_options={},
        row_group_size=5,
        shred_variants=True,
    ),
    "open": _of(
        fermion.open, path=FILE, storage_options={}, options=ReadOptions(), blob_files=None
    ),
    "read_table": _of(
        fermion.read_table, path=FILE, columns=["id"], filter="id > 1", storage_options={}
    ),
    "write_table": _of(
        fermion.write_table,
        data=ROWS,
        path=NEW,
        options=WriteOptions(),
        storage_options={},
    ),
    "col": _of(col, path="id"),
    "Column.between": _of(col("id").between, low=1, high=2),
    "Column.cast": _of(col("event").cast, type=pa.int64()),
    "Column.isin": _of(col("id").isin, values=[1]),
    "Column.starts_with": _of(col("name").starts_with, prefix="a"),
}
