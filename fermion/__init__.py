"""Fermion: a columnar file format for very wide and nested tables. Arrow in, Arrow out.

- Write and read: `write_table`, `read_table`.
- An open file: `open` gives a `FermionFile`, with `read`, `iter_batches`, `take`, `count`.
- Write in pieces: `Writer`, with `write` and `append_batch`.
- Options: `WriteOptions`, `ReadOptions`. Filters: `col`, or SQL text.
- Convert: `from_parquet`, `to_parquet`. Change columns: `add_columns`, `drop_columns`.
- Errors: `FermionError` and its subclasses, in `fermion.errors`.

Tables of many files, with snapshots and time travel, are in the package `fermion_table`.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion.errors import (
        ChecksumError,
        ColumnNotFoundError,
        FermionError,
        InvalidArgumentError,
        InvalidFileError,
        StorageDenied,
        StorageError,
        StorageTimeout,
        TruncatedFileError,
        UnsupportedEncodingError,
        UnsupportedTypeError,
        UnsupportedVersionError,
    )
    from fermion.io.source import IoStats
    from fermion.layout import ChunkFlag
    from fermion.metadata.file_info import BatchRange, FileInfo
    from fermion.options import ReadOptions, SortKey, WriteOptions
    from fermion.parquet.convert import from_parquet, to_parquet
    from fermion.parquet.types import ConversionWarning
    from fermion.predicate import Bounds, col
    from fermion.reading.bounds import FilePruning
    from fermion.reading.column_metadata import ColumnMetadata
    from fermion.reading.file import FermionFile, read_table
    from fermion.reading.file import open_file as open  # noqa: A004 - the contract's name
    from fermion.reading.verify import VerifyReport
    from fermion.statistics.bounds import ColumnStatistics
    from fermion.version import __version__
    from fermion.writing.column_changes import add_columns, drop_columns, select_columns
    from fermion.writing.file import Writer, write_table

__getattr__ = load_when_asked_for(
    __name__,
    {
        "BatchRange": "metadata.file_info",
        "Bounds": "predicate",
        "ChecksumError": "errors",
        "ChunkFlag": "layout",
        "ColumnMetadata": "reading.column_metadata",
        "ColumnNotFoundError": "errors",
        "ColumnStatistics": "statistics.bounds",
        "ConversionWarning": "parquet.types",
        "FermionError": "errors",
        "FermionFile": "reading.file",
        "FileInfo": "metadata.file_info",
        "FilePruning": "reading.bounds",
        "InvalidArgumentError": "errors",
        "InvalidFileError": "errors",
        "IoStats": "io.source",
        "ReadOptions": "options",
        "SortKey": "options",
        "StorageDenied": "errors",
        "StorageError": "errors",
        "StorageTimeout": "errors",
        "TruncatedFileError": "errors",
        "UnsupportedEncodingError": "errors",
        "UnsupportedTypeError": "errors",
        "UnsupportedVersionError": "errors",
        "VerifyReport": "reading.verify",
        "WriteOptions": "options",
        "Writer": "writing.file",
        "__version__": "version",
        "add_columns": "writing.column_changes",
        "col": "predicate",
        "drop_columns": "writing.column_changes",
        "from_parquet": "parquet.convert",
        "open": "reading.file:open_file",
        "read_table": "reading.file",
        "select_columns": "writing.column_changes",
        "to_parquet": "parquet.convert",
        "write_table": "writing.file",
    },
)

__all__ = [
    "BatchRange",
    "Bounds",
    "ChecksumError",
    "ChunkFlag",
    "ColumnMetadata",
    "ColumnNotFoundError",
    "ColumnStatistics",
    "ConversionWarning",
    "FermionError",
    "FermionFile",
    "FileInfo",
    "FilePruning",
    "InvalidArgumentError",
    "InvalidFileError",
    "IoStats",
    "ReadOptions",
    "SortKey",
    "StorageDenied",
    "StorageError",
    "StorageTimeout",
    "TruncatedFileError",
    "UnsupportedEncodingError",
    "UnsupportedTypeError",
    "UnsupportedVersionError",
    "VerifyReport",
    "WriteOptions",
    "Writer",
    "__version__",
    "add_columns",
    "col",
    "drop_columns",
    "from_parquet",
    "open",
    "read_table",
    "select_columns",
    "to_parquet",
    "write_table",
]

__dir__ = __all__.copy
