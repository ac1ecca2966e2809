"""The Parquet files below a path: their sizes, their columns, and how tasks share them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import fsspec
import pyarrow as pa

from fermion.engine import ParquetSource
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.engine import task_bytes
from fermion_table.options import OPEN_COST_BYTES
from spark_ext.options import absolute

FOOTERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file to convert: its path, its size in bytes, and the columns that its path holds."""

    path: str
    size: int
    path_columns: dict[str, Any]


def parquet_files(
    source: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> tuple[list[ParquetFile], pa.Schema]:
    """List the Parquet files below a path, and all their columns together.

    Raises InvalidArgumentError: There are none, or a column has different types in two files.
    """
    import pyarrow.dataset as ds  # imports pandas, and every Python worker imports this module

    filesystem, root = filesystem_of(source, storage_options)
    dataset = ds.dataset(root, format="parquet", partitioning="hive", filesystem=filesystem)
    fragments = sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)
    if not fragments:
        raise InvalidArgumentError(f"{root}: there are no Parquet files")
    files = [
        ParquetFile(
            fragment.path,
            filesystem.size(fragment.path),
            ds.get_partition_keys(fragment.partition_expression),
        )
        for fragment in fragments
    ]
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as executor:
        schemas = list(executor.map(partial(_arrow_schema, filesystem), files))
    try:
        return files, pa.unify_schemas(schemas).remove_metadata()
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"{root}: the files' columns do not agree: {error}") from error


def files_of_tasks(files: Sequence[ParquetFile], tasks_min: int) -> list[list[ParquetFile]]:
    """Group files, in their order, into what one task reads.

    tasks_min: Tasks that can run at once: few files are spread over this many.
    """
    costs = [file.size + OPEN_COST_BYTES for file in files]
    bytes_max = task_bytes(sum(costs), tasks_min=tasks_min)
    tasks: list[list[ParquetFile]] = []
    left = 0
    for file, cost in zip(files, costs, strict=True):
        if not tasks or cost > left:
            tasks.append([])
            left = bytes_max
        tasks[-1].append(file)
        left -= cost
    return tasks


def filesystem_of(
    location: str | os.PathLike[str], storage_options: dict[str, Any] | None
) -> tuple[Any, str]:
    """The fsspec file system of a location, and the path on it."""
    url = absolute(location, "source")
    filesystem, path = fsspec.core.url_to_fs(url, **(storage_options or {}))
    return filesystem, path


def _arrow_schema(filesystem: Any, file: ParquetFile) -> pa.Schema:
    with filesystem.open(file.path) as stream, ParquetSource(stream, None) as parquet:
        schema = parquet.schema
    for name, value in file.path_columns.items():
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.scalar(value).type))
    return schema
