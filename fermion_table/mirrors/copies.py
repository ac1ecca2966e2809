"""Copies: the Parquet files of a mirror, each with the rows of one split of the source.

A copy is named by a hash of all that its rows come from, and by the schema that it was written
under. So the same split is never copied twice, whoever publishes it and however often.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion.display import short_repr
from fermion.engine import connect, open_sink
from fermion.exports import dataclass
from fermion_table.planning.split import FileSplit, Split
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.conversion import convert_batch
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.store import AtomicStore, is_durable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

from fermion_table.mirrors.types import copying

SUFFIX = ".parquet"
_UNIT_DIGITS = 32
_SCHEMA_DIGITS = 12
BOUNDED_COLUMNS_MAX = 32
BOUND_TEXT_MAX = 256
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

    path: Of its file, relative to the mirror.
    split: Whose rows it has.
    size: Bytes.
    footer: What Parquet says of it.
    """

    path: str
    split: Split
    size: int
    footer: pq.FileMetaData

    @property
    def name(self) -> str:
        """Of its file."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def partition(self) -> tuple[Any, ...]:
        """Partition values of its rows, as JSON values."""
        return self.split.files[0].partition

    @property
    def rows(self) -> int:
        """How many it has."""
        return int(self.footer.num_rows)

    def bounds(self) -> Iterator[tuple[str, int, Any, Any]]:
        """Its first plain columns: name, number of nulls, least and greatest value.

        These are integers, dates and short texts, or None where they are not known exactly.
        """
        footer = self.footer
        for place in range(min(footer.num_columns, BOUNDED_COLUMNS_MAX)):
            column = footer.schema.column(place)
            if column.max_repetition_level or column.max_definition_level > 1:
                continue
            chunks = [
                footer.row_group(group).column(place).statistics
                for group in range(footer.num_row_groups)
            ]
            if not chunks or any(each is None or not each.has_null_count for each in chunks):
                continue
            low = high = None
            known = [each for each in chunks if each.num_values]
            if known and all(each.has_min_max for each in known):
                low, high = min(each.min for each in known), max(each.max for each in known)
                if not (_is_bound(low) and _is_bound(high)):
                    low = high = None
            yield column.name, sum(each.null_count for each in chunks), low, high


def _is_bound(value: Any) -> bool:
    """Whether all targets have a bound exactly: not floats, which may be NaN, nor times."""
    if isinstance(value, str):
        return len(value) <= BOUND_TEXT_MAX
    return isinstance(value, datetime.date | int) and not isinstance(
        value, datetime.datetime | bool
    )


def described(store: AtomicStore, path: str, split: Split) -> Copy:
    """A copy that is there, by its footer.

    Raises FileNotFoundError, OSError.
    """
    import pyarrow.parquet as parquet  # slow to import

    filesystem, inner = connect(store.locate(path), store.storage_options)
    with filesystem.open(inner, "rb") as file:
        return Copy(path, split, store.size(path), parquet.read_metadata(file))


def columns_of(fields: Sequence[pa.Field], ids: Sequence[int], held: frozenset[int]) -> pa.Schema:
    """The columns that a copy has: those with data, and the first if there is none.

    ids: The source's fields of the columns.
    held: Those of which the copy has data.
    """
    chosen = [field for field, number in zip(fields, ids, strict=True) if number in held]
    return pa.schema(chosen or fields[:1])
