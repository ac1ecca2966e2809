"""Parquet → Fermion and back, a piece at a time: no more than about a stripe is in memory.

Kept are rows and their order, the exact Arrow schema with its metadata and field ids, key/value
metadata, and every bit of a NaN. `parquet.types` says what becomes of types that Parquet lacks.

Parquet has one place for metadata. Its entries (but Arrow's own) come back both as the metadata of
the schema, where pyarrow puts them, and as the key/value metadata of the file.

INT96 timestamps, which Spark writes by default, are instants in UTC and become microseconds.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion.arguments import flag, function, integer
from fermion.columns.ordered_dictionaries import runs_of_one_order
from fermion.columns.types import is_variant
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedTypeError
from fermion.io.sink import Sink, check_target, open_sink
from fermion.io.source import PathLike, buffer_of
from fermion.metadata.file_info import FileInfo
from fermion.metadata.map_keys import VariantPaths
from fermion.options import MIB, WriteOptions
from fermion.parquet.annotation import annotated
from fermion.parquet.source import ParquetSource, one_line, path_name
from fermion.parquet.types import (
    ConversionWarning,
    convert_column,
    parquet_field,
    with_wide_indices,
)
from fermion.parquet.variants import Shredding
from fermion.reading.file import FermionFile, open_file
from fermion.writing.file import Writer
from fermion.writing.stripe_limits import StripeLimits, is_limited

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Progress = Callable[[int, int], object]

ROW_GROUP_BYTES = 128 * MIB
ROW_GROUP_ROWS = 1024 * 1024
WINDOW_ROWS = 131_072
NAMES_MAX = 10


def from_parquet(
    source: PathLike | Any,
    target: PathLike | Any,
    *,
    options: WriteOptions | None = None,
    progress: Progress | None = None,
    storage_options: dict[str, Any] | None = None,
) -> FileInfo:
    """Convert a Parquet file to a Fermion file.

    Parameters
    ----------
    source
        A path, an fsspec URL, a buffer, or a file object open for reading.
    target
        A path, an fsspec URL, or any object with ``write()``. A file appears when it is complete.
    options
        How to write.
    progress
        Called as ``progress(rows_done, rows_total)`` now and then.
    storage_options
        For fsspec, for both files.

    Returns
    -------
    What was written.

    Raises
    ------
    InvalidFileError
        The source is no Parquet file, is damaged, or holds INT96 timestamps that microseconds can't
        number. Nothing is left at ``target`` then, nor after
        any other error.
    UnsupportedEncodingError
        The source uses a codec or a nesting that pyarrow cannot read.
    FileNotFoundError, PermissionError

    Warns
    -----
    ConversionWarning
        When pages do not match their checksums but can be read all the same, as Parquet readers
        by default do.
    """
    check_target(target, "target")
    function(progress, "progress")
    with ParquetSource(source, storage_options) as parquet:
        done, total = 0, parquet.num_rows
        writer = Writer(
            target,
            parquet.schema,
            options=options,
            key_value_metadata=parquet.key_values,
            storage_options=storage_options,
        )
        with writer:
            for batch in parquet.batches():
                writer.write(batch, copy=False)
                done += batch.num_rows
                if progress is not None:
                    progress(done, total)
            if done != total:
                raise InvalidFileError(
                    f"{parquet.where}: expected {total} rows by the footer, found {done}"
                )
            return writer.close()


def to_parquet(
    source: PathLike | Any,
    target: PathLike | Any,
    *,
    progress: Progress | None = None,
    storage_options: dict[str, Any] | None = None,
    row_group_size: int = ROW_GROUP_ROWS,
    shred_variants: bool = False,
    **parquet_options: Any,
) -> FileInfo:
    """Convert a Fermion file to a Parquet file.

    Parameters
    ----------
    source
        A path, an fsspec URL, or an object with the buffer protocol.
    target
        A path, an fsspec URL, or any object with ``write()``. A file appears when it is complete.
    progress
        Called as ``progress(rows_done, rows_total)`` now and then.
    storage_options
        For fsspec, for both files.
    row_group_size
        Rows of a row group, at most; one also ends at about 128 MiB.
    shred_variants
        Whether paths of Variant columns that have columns in the file get them in Parquet, too, as
        "Variant Shredding" of Parquet says. Not all readers of Variant read them.
    parquet_options
        Options of `pyarrow.parquet.ParquetWriter`: ``compression="zstd"``.

    Returns
    -------
    What was written: row groups count as stripes, statistics are left out.

    Raises
    ------
    UnsupportedTypeError
        For a type that has nothing near it in Parquet. Nothing is left at ``target`` then, nor
        after any other error.
    InvalidArgumentError
        For options that pyarrow does not know, or a value that the new type cannot hold.
    InvalidFileError, ChecksumError, TruncatedFileError, UnsupportedVersionError
        As `open` and `FermionFile.read` say.

    Warns
    -----
    ConversionWarning
        For columns whose types Parquet lacks; and where batches, or the number of rows of a file
        without columns, get lost.
    """
    row_group_size = integer(row_group_size, "row_group_size", minimum=1)
    shred_variants = flag(shred_variants, "shred_variants")
    check_target(target, "target")
    function(progress, "progress")
    if not isinstance(source, (str, os.PathLike)):
        buffer_of(source, "source")
    with open_file(source, storage_options=storage_options) as file:
        where = path_name(source)
        fields = [parquet_field(field, where=where) for field in file.schema]
        for ordinal in _columns_beyond_their_indices(file):
            fields[ordinal] = with_wide_indices(fields[ordinal])
        shreddings = {
            ordinal: shredding
            for ordinal, keys in (file.index.map_keys if shred_variants else {}).items()
            if isinstance(keys, VariantPaths) and len(shredding := Shredding(keys))
        }
        for ordinal, shredding in shreddings.items():
            fields[ordinal] = fields[ordinal].with_type(shredding.type)
        schema = pa.schema(fields, metadata=file.schema.metadata)
        _warn_of_losses(file, schema, where)
        sink = open_sink(target, storage_options=storage_options)
        stream = _SinkStream(sink)
        try:
            metadata = _write_parquet(
                file, schema, shreddings, stream, where, row_group_size, parquet_options, progress
            )
            sink.commit()
        except BaseException:
            stream.is_aborted = True
            sink.abort()
            raise
        return FileInfo(
            path=path_name(target),
            size=stream.tell(),
            tail_length=stream.tail_length,
            num_rows=metadata.num_rows,
            num_columns=len(schema),
            num_stripes=metadata.num_row_groups,
            columns_with_data=frozenset(range(len(schema))),
            statistics={},
        )


def _columns_beyond_their_indices(file: FermionFile) -> list[int]:
    """Ordinals of columns with more dictionary values in all stripes than indices can number."""
    if len(file.stripe_rows) < 2:
        return []
    found = []
    for ordinal, field in enumerate(file.schema):
        if is_limited(field.type):
            limits = StripeLimits([0])
            if any(limits.add([batch]) for batch in file.iter_batches([ordinal])):
                found.append(ordinal)
    return found


def _warn_of_losses(file: FermionFile, schema: pa.Schema, where: str) -> None:
    changed = [
        f"{before.name!r} ({before.type}) as {after.type}"
        for before, after in zip(file.schema, schema, strict=True)
        if before.type != after.type and not is_variant(before)
    ]
    if changed:
        more = f" and {len(changed) - NAMES_MAX:,} more" if len(changed) > NAMES_MAX else ""
        _warn(
            f"{where}: Parquet lacks the types of {len(changed)} columns, written otherwise: "
            f"{', '.join(changed[:NAMES_MAX])}{more}"
        )
    if file.settings["batch"]:
        _warn(f"{where}: Parquet keeps the rows of batches, not their ids")
    if file.num_rows and not file.num_columns:
        _warn(f"{where}: Parquet cannot keep {file.num_rows} rows without a column")


def _warn(message: str) -> None:
    warnings.warn(message, ConversionWarning, stacklevel=4)


class _SinkStream(io.RawIOBase):
    """A sink as a file object that pyarrow writes to.

    is_aborted: Whether the sink is gone; pyarrow still writes a footer when it drops its writer.
    tail_length: Bytes of the footer with its length and magic bytes, once it is written.
    """

    def __init__(self, sink: Sink) -> None:
        self.is_aborted = False
        self.tail_length = 0
        self._sink = sink
        self._position = 0
        self._held: bytearray | None = None

    @contextmanager
    def footer(self, variants: set[str]) -> Iterator[None]:
        """Hold back what is written, and annotate columns as Variant in the footer at its end."""
        self._held = bytearray()
        yield
        held, self._held = bytes(self._held), None
        tail = annotated(held, variants) if variants else held
        self.tail_length = int.from_bytes(tail[-8:-4], "little") + 8
        self.write(tail)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._held is not None:
            self._held += view
            return view.nbytes
        if not self.is_aborted:
            self._sink.write(view)
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._position + len(self._held or b"")


def _write_parquet(
    file: FermionFile,
    schema: pa.Schema,
    shreddings: Mapping[int, Shredding],
    stream: _SinkStream,
    where: str,
    row_group_size: int,
    parquet_options: Mapping[str, Any],
    progress: Progress | None,
) -> pq.FileMetaData:
    writer = _open_writer(schema, stream, where, parquet_options)
    done = 0
    for table in _row_groups(file, row_group_size):
        runs = runs_of_one_order(_converted(table, schema, shreddings, where))
        with _writing(where):
            for run in runs:
                writer.write_table(run.unify_dictionaries(), row_group_size)
        done += table.num_rows
        del table, run
        if progress is not None:
            progress(done, file.num_rows)
    own = schema.metadata or {}
    entries = file.key_value_metadata.items()
    extra = {key: text for key, text in entries if own.get(key.encode()) != text.encode()}
    if extra:
        writer.add_key_value_metadata(extra)
    variants = {field.name for field in schema if is_variant(field)}
    with _writing(where), stream.footer(variants):
        writer.close()
    return writer.writer.metadata


def _converted(
    table: pa.Table, schema: pa.Schema, shreddings: Mapping[int, Shredding], where: str
) -> pa.Table:
    columns = []
    for at, (column, before) in enumerate(zip(table.columns, table.schema, strict=True)):
        if at in shreddings:
            name = f"{where}: column {before.name!r}"
            chunks = [shreddings[at].shredded(chunk, name) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, schema[at].type))
        else:
            columns.append(convert_column(column, before, schema[at], where=where))
    return pa.Table.from_arrays(columns, schema=schema) if columns else table


@contextmanager
def _writing(where: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedTypeError(f"{where}: pyarrow cannot write: {one_line(error)}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgumentError(f"{where}: pyarrow cannot write: {one_line(error)}") from error


def _open_writer(
    schema: pa.Schema, stream: _SinkStream, where: str, parquet_options: Mapping[str, Any]
) -> pq.ParquetWriter:
    import pyarrow.parquet as pq  # takes as long to load as all of this package

    try:
        return pq.ParquetWriter(stream, schema, **parquet_options)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedTypeError(f"{where}: pyarrow cannot write: {one_line(error)}") from error
    except (TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise InvalidArgumentError(f"options for Parquet: {one_line(error)}") from error


def _row_groups(file: FermionFile, rows_max: int) -> Iterator[pa.Table]:
    """Consecutive rows, stripes put together until they make a row group."""
    pending: list[pa.Table] = []
    rows = size = start = 0
    for stripe_rows in file.stripe_rows:
        stop = start + stripe_rows
        for low in range(start, stop, WINDOW_ROWS):
            for table in _window(file, low, min(low + WINDOW_ROWS, stop)):
                pending.append(table)
                rows, size = rows + table.num_rows, size + table.nbytes
                if rows >= rows_max or size >= ROW_GROUP_BYTES:
                    whole = pa.concat_tables(pending)
                    ready = rows - rows % rows_max or rows
                    rows, size = rows - ready, 0
                    pending = [whole.slice(ready)] if rows else []
                    group = [whole.slice(0, ready)]
                    del table, whole  # what is read next must not lie beside what is written
                    yield group.pop()
        start = stop
    if pending:
        yield pa.concat_tables(pending)


def _window(file: FermionFile, start: int, stop: int) -> Iterator[pa.Table]:
    """Some rows of a file, in parts if it has blobs."""
    if not file.index.footer.has_blobs:
        yield file.read(rows=(start, stop))
        return
    for batch in file.iter_batches(rows=(start, stop), batch_size=stop - start):
        yield pa.Table.from_batches([batch])
