"""Fermion: a columnar file format for very wide and nested tables. Arrow in, Arrow out."""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion.column_changes import add_columns, drop_columns, select_columns
    from fermion.column_metadata import ColumnMetadata
    from fermion.convert import from_parquet, to_parquet
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
    from fermion.file_info import BatchRange, FileInfo
    from fermion.file_pruning import FilePruning
    from fermion.file_reader import FermionFile, read_table
    from fermion.file_reader import open_file as open  # noqa: A004 - the contract's name
    from fermion.file_writer import Writer
    from fermion.options import ReadOptions, SortKey, WriteOptions
    from fermion.parquet_types import ConversionWarning
    from fermion.predicate import col
    from fermion.source import IoStats
    from fermion.table_writer import write_table
    from fermion.verify import VerifyReport
    from fermion.version import __version__

__getattr__ = load_when_asked_for(
    __name__,
    {
        "BatchRange": "file_info",
        "ChecksumError": "errors",
        "ColumnMetadata": "column_metadata",
        "ColumnNotFoundError": "errors",
        "ConversionWarning": "parquet_types",
        "FermionError": "errors",
        "FermionFile": "file_reader",
        "FileInfo": "file_info",
        "FilePruning": "file_pruning",
        "InvalidArgumentError": "errors",
        "InvalidFileError": "errors",
        "IoStats": "source",
        "ReadOptions": "options",
        "SortKey": "options",
        "StorageDenied": "errors",
        "StorageError": "errors",
        "StorageTimeout": "errors",
        "TruncatedFileError": "errors",
        "UnsupportedEncodingError": "errors",
        "UnsupportedTypeError": "errors",
        "UnsupportedVersionError": "errors",
        "VerifyReport": "verify",
        "WriteOptions": "options",
        "Writer": "file_writer",
        "__version__": "version",
        "add_columns": "column_changes",
        "col": "predicate",
        "drop_columns": "column_changes",
        "from_parquet": "convert",
        "open": "file_reader:open_file",
        "read_table": "file_reader",
        "select_columns": "column_changes",
        "to_parquet": "convert",
        "write_table": "table_writer",
    },
)

__all__ = [
    "BatchRange",
    "ChecksumError",
    "ColumnMetadata",
    "ColumnNotFoundError",
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
