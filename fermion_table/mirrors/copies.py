"""Copies: the Parquet files of a mirror, each with the rows of one split of the source.

A copy is named by a hash of all that its rows come from, and by the schema that it was written
under. So the same split is never copied twice, whoever publishes it and however often.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion.display import short_repr
from fermion.engine import connect, open_sink
from fermion_table.planning.split import FileSplit, Split
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.conversion import convert_batch
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.store import AtomicStore, is_durable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

from fermion_table.mirrors.types import copying

DATA_FOLDER = "data"
SUFFIX = ".parquet"
_UNIT_DIGITS = 32
_SCHEMA_DIGITS = 12
ROW_GROUP_BYTES = 64 * 1024 * 1024


def unit_of(split: Split) -> str:
    """What tells the rows of a split from those of any other: 32 hexadecimal digits."""
    read = [_read_of(file) for file in split.files]
    return hashlib.sha256(repr(read).encode()).hexdigest()[:_UNIT_DIGITS]


def _read_of(file: FileSplit) -> tuple[Any, ...]:
    vector = file.deletion
    return (
        file.file,
        file.row_range,
        None if vector is None else (vector.path, vector.offset, vector.size, vector.hash),
        [(beside.file, beside.fields) for beside in file.column_files],
    )


def copy_name(unit: str, schema_hash: str) -> str:
    """The file of a copy, without a folder."""
    return f"{unit}-{schema_hash[:_SCHEMA_DIGITS]}{SUFFIX}"


def unit_and_schema(name: str) -> tuple[str, str]:
    """The unit of a copy, and the first digits of the hash of the schema it was written under."""
    unit, _, schema = name.removesuffix(SUFFIX).partition("-")
    return unit, schema


def schema_key(schema_hash: str) -> str:
    """The digits of a schema's hash that names of copies have."""
    return schema_hash[:_SCHEMA_DIGITS]


def present_ids(split: Split, schemas: Mapping[int, TableSchema]) -> frozenset[int]:
    """The columns that some file of a split holds data of; all others are null, or their default.

    schemas: Those that files were written with, by id.
    """
    held: set[int] = set()
    for file in split.files:
        for part in (file, *file.column_files):
            held.update(each.id for each in part.with_data(schemas[part.schema_id].fields))
    return frozenset(held)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """What a copy is made with; picklable, for engines.

    Attributes
    ----------
    store
        Of the mirror.
    reader
        Of the source's rows.
    rows, schema
        The schema of those rows, and that of the copy.
    """

    store: AtomicStore
    reader: SplitReader
    rows: pa.Schema
    schema: pa.Schema

    __repr__ = short_repr

    def write(self, split: Split, path: str) -> str:
        """Write the rows of a split; the file appears when it is complete."""
        import pyarrow.parquet as parquet  # slow to import

        target = self.store.locate(path, for_writing=True)
        sink = open_sink(
            target, durable=is_durable(self.store), storage_options=self.store.storage_options
        )
        try:
            stream = pa.PythonFile(_Written(sink), mode="w")
            with parquet.ParquetWriter(
                stream, self.schema, compression="zstd", store_schema=False
            ) as writer:
                for table in self._row_groups(split):
                    writer.write_table(table, row_group_size=max(table.num_rows, 1))
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        return path

    def _row_groups(self, split: Split) -> Iterator[pa.Table]:
        conversions = copying(self.schema, self.rows)
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in self.reader.read(split, threads=1):
            waiting.append(convert_batch(conversions, batch, self.schema))
            size += waiting[-1].nbytes
            if size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
        if waiting:
            yield pa.Table.from_batches(waiting)


class _Written:
    """A sink as Arrow writes to it."""

    closed = False

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._size = 0

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: the sink keeps what it was given until it is committed."""

    def close(self) -> None:
        """Nothing: the sink is committed, or aborted, by whoever opened it."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that lies in the mirror's storage.

    name: Of its file.
    split: Whose rows it has.
    size: Bytes.
    footer: What Parquet says of it.
    """

    name: str
    split: Split
    size: int
    footer: pq.FileMetaData

    @staticmethod
    def path_of(name: str) -> str:
        """Where a copy lies, relative to the mirror."""
        return f"{DATA_FOLDER}/{name}"

    @property
    def path(self) -> str:
        """Relative to the mirror."""
        return self.path_of(self.name)

    @property
    def partition(self) -> tuple[Any, ...]:
        """Partition values of its rows, as JSON values."""
        return self.split.files[0].partition

    @property
    def rows(self) -> int:
        """How many it has."""
        return int(self.footer.num_rows)


def described(store: AtomicStore, name: str, split: Split) -> Copy:
    """A copy that is there, by its footer.

    Raises FileNotFoundError, OSError.
    """
    import pyarrow.parquet as parquet  # slow to import

    path = f"{DATA_FOLDER}/{name}"
    filesystem, inner = connect(store.locate(path), store.storage_options)
    with filesystem.open(inner, "rb") as file:
        return Copy(name, split, store.size(path), parquet.read_metadata(file))


def existing(store: AtomicStore, names: Iterable[str]) -> set[str]:
    """Those of some copies that are there: an earlier publication may have made them."""
    return {name for name in names if store.exists(f"{DATA_FOLDER}/{name}")}


def columns_of(fields: Sequence[pa.Field], ids: Sequence[int], held: frozenset[int]) -> pa.Schema:
    """The columns that a copy has: those with data, and the first if there is none.

    ids: The source's fields of the columns.
    held: Those of which the copy has data.
    """
    chosen = [field for field, number in zip(fields, ids, strict=True) if number in held]
    return pa.schema(chosen or fields[:1])
