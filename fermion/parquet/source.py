"""A Parquet file as a stream of record batches; whatever is wrong with it is a FermionError."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.rows import empty_columns
from fermion.columns.variants import VariantType
from fermion.errors import InvalidFileError, UnsupportedEncodingError
from fermion.io.remote import resolve
from fermion.layout import MAGIC
from fermion.options import MIB
from fermion.parquet.int96 import check_range, instants, int96_leaves
from fermion.parquet.types import ConversionWarning
from fermion.parquet.variants import variant_columns, whole_values

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ARROW_SCHEMA_KEY = b"ARROW:schema"
BATCH_BYTES = 32 * MIB
BATCH_ROWS_MAX = 65_536
VARIABLE_BYTES = 24
READ_AT_ONCE_BYTES = 256 * MIB
CHECKSUM_MESSAGE = "CRC checksum verification failed"


class ParquetSource:
    """A Parquet file read batch by batch; whatever goes wrong in it is a FermionError.

    INT96 timestamps become microseconds in UTC, unless Arrow wrote the file and says what they are.
    Variant columns come with values in one piece, shredded or not.
    """

    def __init__(self, source: Any, storage_options: dict[str, Any] | None) -> None:
        self.where, self._source = path_name(source), source
        self._handle = _open_input(source, storage_options)
        try:
            with self._reading():
                self._file = self._open(verify=True)
                self.num_rows = _num_rows(self._file.metadata)
                stored = self._file.read_row_groups([]).schema
                self.schema: pa.Schema = instants(stored, self._int96)
                changed = zip(stored, self.schema, strict=True)
                self._instants = [new.name for old, new in changed if old.type != new.type]
                self.key_values = _texts(self._file.metadata.metadata or {})
                self._variants = self._with_variants()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> ParquetSource:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not self._source:
            self._handle.close()

    def _open(self, *, verify: bool, int96_unit: str = "us") -> pq.ParquetFile:
        import pyarrow.parquet as pq  # takes as long to load as all of this package

        metadata = pq.read_metadata(self._handle)
        # Not what its columns say: pyarrow ends the process where one of them is damaged.
        sizes = (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        largest = max(sizes, default=0)
        # Arrow's own schema says what its INT96 mean.
        is_arrow = ARROW_SCHEMA_KEY in (metadata.metadata or {})
        self._int96 = [] if is_arrow else int96_leaves(metadata)
        # Row groups of ordinary size are read at once; of larger ones every column gets a buffer.
        buffer = max(64 * MIB // max(metadata.num_columns, 1), 16 * 1024)
        return pq.ParquetFile(
            self._handle,
            metadata=metadata,
            buffer_size=0 if largest <= READ_AT_ONCE_BYTES else min(buffer, MIB),
            page_checksum_verification=verify,
            coerce_int96_timestamp_unit=int96_unit if any(self._int96) else None,
        )

    def _with_variants(self) -> list[int]:
        """The ordinals of Variant columns, which get their type in the schema."""
        found = variant_columns(self.schema, self._file.schema, self.key_values)
        for at in found:
            self.schema = self.schema.set(at, self.schema.field(at).with_type(VariantType()))
        return found

    def _whole(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """A batch whose Variant values are in one piece; it begins with row ``first``."""
        columns = list(batch.columns)
        for at in self._variants:
            where = f"{self.where}: column {self.schema.field(at).name!r}"
            column = columns[at]
            column = column.storage if isinstance(column, pa.ExtensionArray) else column
            whole = whole_values(column, where, first)
            columns[at] = pa.ExtensionArray.from_storage(VariantType(), whole)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in batches that are small whatever the row groups are like."""
        if not self.schema.names:
            yield empty_columns(self.num_rows)
            return
        done = 0
        for batch in self._batches():
            yield self._whole(batch, done) if self._variants else batch
            done += batch.num_rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for group in range(self._file.num_row_groups):
            skip = 0
            for batch in self._group(group):
                skip += batch.num_rows
                yield batch
            expected = self._file.metadata.row_group(group).num_rows
            if skip != expected:
                raise InvalidFileError(
                    f"{self.where}: row group {group}: expected {expected} rows, found {skip}"
                )

    def _group(self, group: int) -> Iterator[pa.RecordBatch]:
        done = 0
        try:
            for batch in self._read_group(group, 0):
                done += batch.num_rows
                yield batch
        except InvalidFileError as error:
            if CHECKSUM_MESSAGE not in str(error):
                raise
            message = f"{self.where}: row group {group}: {CHECKSUM_MESSAGE}; read without checking"
            warnings.warn(message, ConversionWarning, stacklevel=4)
            with self._reading():
                self._file = self._open(verify=False)
            yield from self._read_group(group, done)

    def _read_group(self, group: int, skip: int) -> Iterator[pa.RecordBatch]:
        with self._reading():
            rows = self._batch_rows(group)
            batches = self._file.iter_batches(batch_size=rows, row_groups=[group])
            self._check_instants(group, rows)
        while True:
            with self._reading():
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate()  # pyarrow makes lists of nulls whose elements are too few
                if self._instants:
                    schema = self.schema
                    for at in self._variants:
                        schema = schema.set(at, batch.schema.field(at))
                    batch = batch.cast(schema)
            if skip < batch.num_rows:
                yield batch.slice(skip)
            skip = max(skip - batch.num_rows, 0)

    def _check_instants(self, group: int, rows: int) -> None:
        """Refuse INT96 timestamps out of range: pyarrow's microseconds overflow, seconds can't."""
        if not self._instants:
            return
        file = self._open(verify=False, int96_unit="s")
        for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=self._instants):
            check_range(batch, f"{self.where}: row group {group}")

    def _batch_rows(self, group: int) -> int:
        metadata = self._file.metadata.row_group(group)
        encoded = metadata.total_byte_size / max(metadata.num_rows, 1)
        row_bytes = max(encoded, sum(_value_bytes(field.type) for field in self.schema))
        return int(min(max(BATCH_BYTES / row_bytes, 1), BATCH_ROWS_MAX))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowNotImplementedError as error:
            raise UnsupportedEncodingError(
                f"{self.where}: pyarrow cannot read this Parquet file: {one_line(error)}"
            ) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise self._invalid(error) from error
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise self._invalid(error) from error

    def _invalid(self, error: Exception) -> InvalidFileError:
        if self._is_fermion():
            return InvalidFileError(
                f"{self.where}: is a Fermion file, which fermion.open reads and fermion.to_parquet "
                f"converts; expected a Parquet file"
            )
        return InvalidFileError(f"{self.where}: not a valid Parquet file: {one_line(error)}")

    def _is_fermion(self) -> bool:
        """Whether the source begins and ends as a Fermion file does."""
        try:
            self._handle.seek(0)
            start = self._handle.read(len(MAGIC))
            self._handle.seek(-len(MAGIC), os.SEEK_END)
            return bytes(start) == MAGIC == bytes(self._handle.read(len(MAGIC)))
        except (pa.ArrowException, OSError, ValueError, TypeError, AttributeError):
            return False


def path_name(source: Any) -> str:
    """What messages call a path, a URL, a file object or a buffer."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return str(getattr(source, "name", "<buffer>"))


def one_line(error: Exception) -> str:
    """The message of an error of pyarrow without its line ends."""
    return " ".join(str(error).split()) or type(error).__name__


def _open_input(source: Any, storage_options: dict[str, Any] | None) -> Any:
    """What pyarrow reads from; an object of the caller's stays what it is."""
    if isinstance(source, (str, os.PathLike)):
        filesystem, path = resolve(source, storage_options)
        if filesystem is not None:
            return filesystem.open(path, "rb")
        with open(path, "rb"):  # its errors name what is wrong: no file, a directory, no permission
            return pa.OSFile(path)
    if hasattr(source, "read"):
        return source
    try:
        return pa.BufferReader(source)
    except TypeError:
        raise TypeError(
            f"source: expected a path, a URL, a buffer or a file object, found "
            f"{type(source).__name__}"
        ) from None


def _num_rows(metadata: pq.FileMetaData) -> int:
    """Rows by the row groups; the footer's own number is used only where there are none."""
    groups = range(metadata.num_row_groups)
    counted = sum(metadata.row_group(index).num_rows for index in groups)
    return counted if groups else metadata.num_rows


def _texts(entries: Mapping[bytes, bytes]) -> dict[str, str]:
    """Key/value metadata that is text, as Parquet says it is, without Arrow's own entry."""
    texts = {}
    for key, value in entries.items():
        try:
            texts[key.decode()] = value.decode()
        except UnicodeDecodeError:
            continue  # the schema's metadata, which may be bytes, keeps it
    texts.pop(ARROW_SCHEMA_KEY.decode(), None)
    return texts


def _value_bytes(dtype: pa.DataType) -> float:
    """Bytes that a value takes in memory, roughly: a list counts as one element."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _value_bytes(dtype.storage_type)
    if dtype.num_fields:
        below = sum(_value_bytes(dtype.field(index).type) for index in range(dtype.num_fields))
        return below * (dtype.list_size if pat.is_fixed_size_list(dtype) else 1) + 1
    try:
        return dtype.bit_width / 8
    except ValueError:
        return VARIABLE_BYTES
