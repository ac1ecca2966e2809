"""``'file.format' = 'fermion'`` for pypaimon, which has no place to add a format: `register`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

import fermion
from fermion.errors import InvalidArgumentError, TruncatedFileError, UnsupportedTypeError
from fermion_table.paimon.source import load_pypaimon

IDENTIFIER = "fermion"
"""Of the format, and the suffix of its files."""
_BATCH_ROWS_MIN = 16_384
"""pypaimon asks for 1,024, whose cost for each batch is more than that of their rows."""


def register() -> None:
    """Teach pypaimon to read and write Fermion files; needed once in each process.

    Tables with the option ``file.format=fermion`` are written so from then on, and files of such
    tables are read, also those that Paimon's Java engine wrote. Projections, filters and selections
    of rows go down to the files. It replaces three functions within pypaimon, and so takes the
    versions that were tried alone: 2.1.

    Raises
    ------
    InvalidArgumentError
        pypaimon is not installed, or another version.
    """
    load_pypaimon("register")
    from pypaimon.read import split_read  # optional
    from pypaimon.read.reader.iface.record_batch_reader import RecordBatchReader
    from pypaimon.write.writer import data_writer

    if getattr(split_read.format_identifier, "is_fermions", False):
        return
    identified, vortex = split_read.format_identifier, split_read.FormatVortexReader

    class Reader(FileReader, RecordBatchReader):
        """What else pypaimon asks of a reader."""

    # The chain of ifs is entered where Vortex is, which has pushdown and selections of rows; the
    # reader is chosen by the file's name then.
    @wraps(identified)
    def format_identifier(name: str) -> str:
        return "vortex" if name.endswith(f".{IDENTIFIER}") else str(identified(name))

    @wraps(vortex)
    def reader(file_io: Any, path: str, *arguments: Any, **keywords: Any) -> Any:
        chosen = Reader if path.endswith(f".{IDENTIFIER}") else vortex
        return chosen(file_io, path, *arguments, **keywords)

    written = data_writer.DataWriter._write_file

    @wraps(written)
    def write_file(self: Any, path: str, data: pa.Table, file_format: str) -> Any:
        if file_format != IDENTIFIER:
            return written(self, path, data, file_format)
        _write(self.file_io, path, data)
        return {}

    format_identifier.is_fermions = True  # type: ignore[attr-defined]
    split_read.format_identifier, split_read.FormatVortexReader = format_identifier, reader
    data_writer.DataWriter._write_file = write_file


def _write(file_io: Any, path: str, data: pa.Table) -> None:
    try:
        with file_io.new_output_stream(path) as stream:
            fermion.write_table(data, stream)
    except BaseException:
        file_io.delete_quietly(path)
        raise


class _PaimonSource:
    """The bytes of a file as a `FileIO` of pypaimon reads them."""

    is_local = False

    def __init__(self, file_io: Any, path: str) -> None:
        self._file_io, self.name = file_io, path
        self.size: int | None = file_io.get_file_size(path)

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly so many bytes."""
        data = memoryview(self._file_io.read_file_range(self.name, offset, length))
        if len(data) != length:
            raise TruncatedFileError(
                f"{self.name}: expected {length} bytes at offset {offset}, found {len(data)}"
            )
        return data

    def read_end(self, length: int) -> memoryview:
        """The last bytes."""
        size = self.size or 0
        return self.read(max(0, size - length), min(length, size))

    def again(self) -> _PaimonSource:
        """The same file."""
        return _PaimonSource(self._file_io, self.name)

    def close(self) -> None:
        """Each range has a stream of its own."""


class FileReader:
    """The rows of a file as pypaimon asks for them.

    read_fields: Columns; those that the file lacks are null.
    push_down_predicate: A filter, as an Arrow expression; the rows are exactly those that it
        selects.
    row_indices, shard_range: Positions of the rows to read: a list, or (start, stop).
    predicate_fields: Columns of the filter.
    """

    def __init__(
        self,
        file_io: Any,
        file_path: str,
        read_fields: Sequence[Any],
        push_down_predicate: pc.Expression | None,
        batch_size: int = 1024,
        row_indices: Sequence[int] | None = None,
        shard_range: tuple[int, int] | None = None,
        predicate_fields: Collection[str] | None = None,
    ) -> None:
        from pypaimon.schema.data_types import PyarrowFieldParser  # optional

        is_local = urlsplit(file_path).scheme in ("", "file")
        place = file_io.to_filesystem_path(file_path) if is_local else None
        self._file = fermion.open(place or _PaimonSource(file_io, file_path))
        present = set(self._file.schema.names)
        self._schema = PyarrowFieldParser.from_paimon_schema(read_fields)
        stored = {field.name: field.type for field in self._file.schema}
        self._is_as_stored = all(stored.get(field.name) == field.type for field in self._schema)
        known = set(predicate_fields or ()) <= present
        self._batches = self._read(
            [name for name in self._schema.names if name in present],
            push_down_predicate if known else None,
            shard_range if row_indices is None else row_indices,
            max(batch_size, _BATCH_ROWS_MIN),
        )

    def _read(
        self, columns: list[str], predicate: pc.Expression | None, rows: Any, size: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            return self._file.iter_batches(columns, filter=predicate, rows=rows, batch_size=size)
        except (InvalidArgumentError, UnsupportedTypeError):
            if predicate is None:
                raise
        # What our filters do not know, Arrow does.
        wanted = [name for name in self._file.schema.names if name in set(columns)]
        everything = self._file.iter_batches(None, rows=rows, batch_size=size)
        return (
            batch.select(wanted)
            for whole in everything
            for batch in pa.Table.from_batches([whole]).filter(predicate).to_batches()
        )

    def read_arrow_batch(self) -> pa.RecordBatch | None:
        """The next rows; None: there are no more."""
        batch = next(self._batches, None)
        if batch is None or self._is_as_stored:
            return batch
        columns = [
            pa.nulls(batch.num_rows, field.type)
            if field.name not in batch.schema.names
            else batch.column(field.name).cast(field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, names=self._schema.names)

    def close(self) -> None:
        """Release the file."""
        self._file.close()
