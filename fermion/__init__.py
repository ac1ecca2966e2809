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
    from fermion.errors import ChecksumError as ChecksumError
    from fermion.errors import ColumnNotFoundError as ColumnNotFoundError
    from fermion.errors import FermionError as FermionError
    from fermion.errors import InvalidArgumentError as InvalidArgumentError
    from fermion.errors import InvalidFileError as InvalidFileError
    from fermion.errors import StorageDenied as StorageDenied
    from fermion.errors import StorageError as StorageError
    from fermion.errors import StorageTimeout as StorageTimeout
    from fermion.errors import TruncatedFileError as TruncatedFileError
    from fermion.errors import UnsupportedEncodingError as UnsupportedEncodingError
    from fermion.errors import UnsupportedTypeError as UnsupportedTypeError
    from fermion.errors import UnsupportedVersionError as UnsupportedVersionError
    from fermion.io.source import IoStats as IoStats
    from fermion.layout import ChunkFlag as ChunkFlag
    from fermion.metadata.file_info import BatchRange as BatchRange
    from fermion.metadata.file_info import FileInfo as FileInfo
    from fermion.options import ReadOptions as ReadOptions
    from fermion.options import Shred as Shred
    from fermion.options import SortKey as SortKey
    from fermion.options import WriteOptions as WriteOptions
    from fermion.parquet.convert import from_parquet as from_parquet
    from fermion.parquet.convert import to_parquet as to_parquet
    from fermion.parquet.types import ConversionWarning as ConversionWarning
    from fermion.predicate import Bounds as Bounds
    from fermion.predicate import col as col
    from fermion.reading.bounds import FilePruning as FilePruning
    from fermion.reading.column_metadata import ColumnMetadata as ColumnMetadata
    from fermion.reading.file import FermionFile as FermionFile
    from fermion.reading.file import open as open  # noqa: A004 - the contract's name
    from fermion.reading.file import read_table as read_table
    from fermion.reading.verify import VerifyReport as VerifyReport
    from fermion.statistics.bounds import ColumnStatistics as ColumnStatistics
    from fermion.version import __version__ as __version__
    from fermion.writing.column_changes import add_columns as add_columns
    from fermion.writing.column_changes import drop_columns as drop_columns
    from fermion.writing.column_changes import select_columns as select_columns
    from fermion.writing.file import Writer as Writer
    from fermion.writing.file import write_table as write_table

__all__, __getattr__, __dir__ = load_when_asked_for(
    __name__,
    {
        "errors": (
            "ChecksumError",
            "ColumnNotFoundError",
            "FermionError",
            "InvalidArgumentError",
            "InvalidFileError",
            "StorageDenied",
            "StorageError",
            "StorageTimeout",
            "TruncatedFileError",
            "UnsupportedEncodingError",
            "UnsupportedTypeError",
            "UnsupportedVersionError",
        ),
        "io.source": ("IoStats",),
        "layout": ("ChunkFlag",),
        "metadata.file_info": ("BatchRange", "FileInfo"),
        "options": ("ReadOptions", "Shred", "SortKey", "WriteOptions"),
        "parquet.convert": ("from_parquet", "to_parquet"),
        "parquet.types": ("ConversionWarning",),
        "predicate": ("Bounds", "col"),
        "reading.bounds": ("FilePruning",),
        "reading.column_metadata": ("ColumnMetadata",),
        "reading.file": ("FermionFile", "read_table", "open"),
        "reading.verify": ("VerifyReport",),
        "statistics.bounds": ("ColumnStatistics",),
        "version": ("__version__",),
        "writing.column_changes": ("add_columns", "drop_columns", "select_columns"),
        "writing.file": ("Writer", "write_table"),
    },
)
