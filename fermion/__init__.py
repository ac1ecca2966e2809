"""Fermion: a columnar file format for very wide and nested tables. Arrow in, Arrow out."""

from fermion.column_metadata import ColumnMetadata
from fermion.errors import (
    ChecksumError,
    ColumnNotFoundError,
    FermionError,
    InvalidArgumentError,
    InvalidFileError,
    TruncatedFileError,
    UnsupportedEncodingError,
    UnsupportedTypeError,
    UnsupportedVersionError,
)
from fermion.file_info import BatchRange, FileInfo
from fermion.file_reader import FermionFile, read_table
from fermion.file_reader import open_file as open  # noqa: A004 - the contract's name
from fermion.file_writer import Writer, write_table
from fermion.options import ReadOptions, WriteOptions
from fermion.predicate import col
from fermion.source import IoStats
from fermion.verify import VerifyReport
from fermion.version import __version__

__all__ = [
    "BatchRange",
    "ChecksumError",
    "ColumnMetadata",
    "ColumnNotFoundError",
    "FermionError",
    "FermionFile",
    "FileInfo",
    "InvalidArgumentError",
    "InvalidFileError",
    "IoStats",
    "ReadOptions",
    "TruncatedFileError",
    "UnsupportedEncodingError",
    "UnsupportedTypeError",
    "UnsupportedVersionError",
    "VerifyReport",
    "WriteOptions",
    "Writer",
    "__version__",
    "col",
    "open",
    "read_table",
    "write_table",
]
