"""Files of other formats, and directories of them, as streams of record batches."""

from __future__ import annotations

import glob
import os
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from fermion.errors import InvalidArgumentError

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "feather",
    ".orc": "orc",
}
"""Formats of pyarrow's datasets by the suffix of a file; one of compression may follow it."""
_COMPRESSIONS = {".gz", ".bz2", ".zst", ".lz4"}


def reader_of_files(location: str | os.PathLike[str]) -> pa.RecordBatchReader:
    """The rows of files in other formats; columns are those of the first file.

    Parameters
    ----------
    location
        A file, a pattern such as ``dir/*.csv``, or a directory, whose folders may be Hive
        partitions (``day=2026-01-31``): they become columns. The suffix of the files tells their
        format: Parquet, CSV (``.tsv`` with tabs), JSON lines, Arrow IPC, Feather or ORC; text may
        be compressed (``.csv.gz``).

    Raises
    ------
    InvalidArgumentError
        No such file, files of several formats or of none that is known, or what they hold is not
        in their format; names the location.
    """
    import pyarrow.dataset as datasets

    path = os.path.expanduser(os.fspath(location))
    if not isinstance(path, str):
        raise InvalidArgumentError(f"data: {location!r}: expected a path as text")
    files = _files(path)
    formats = {_format(file): file for file in files}
    if len(formats) > 1:
        one, other = list(formats.values())[:2]
        raise InvalidArgumentError(
            f"data: {path}: expected files of one format, found {one} and {other}"
        )
    try:
        rows = datasets.dataset(
            files,
            format=_options(next(iter(formats))),
            partitioning=datasets.partitioning(flavor="hive"),
            partition_base_dir=path if os.path.isdir(path) else None,
        )
        return _with_our_errors(rows.scanner().to_reader(), path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgumentError(f"data: {path}: {error}") from error


def _files(path: str) -> list[str]:
    """The files that a location means, in the order of their names."""
    if os.path.isdir(path):
        pattern = os.path.join(glob.escape(path), "**", "*")
        files = [
            file
            for file in glob.iglob(pattern, recursive=True)
            if os.path.isfile(file) and not _is_hidden(os.path.relpath(file, path))
        ]
    elif os.path.isfile(path):
        files = [path]
    else:
        files = [file for file in glob.iglob(path, recursive=True) if os.path.isfile(file)]
    if not files:
        raise InvalidArgumentError(
            f"data: {path}: expected a file, a directory with files or a pattern of files "
            "that are there, found none"
        )
    return sorted(files)


def _is_hidden(path: str) -> bool:
    """Whether engines leave a file of a directory out: ``_SUCCESS``, ``.x.crc``."""
    return any(part.startswith((".", "_")) and "=" not in part for part in PurePath(path).parts)


def _format(file: str) -> tuple[str, str]:
    """The format of a file, and its suffix."""
    suffixes = [suffix.lower() for suffix in PurePath(file).suffixes]
    if len(suffixes) > 1 and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix == ".fermion":
        raise InvalidArgumentError(
            f"data: {file}: a Fermion file: give fermion.open({file!r}), or use Table.add_files"
        )
    if suffix not in _FORMATS:
        raise InvalidArgumentError(
            f"data: {file}: expected a suffix of {', '.join(_FORMATS)}, found {suffix or 'none'}"
        )
    return _FORMATS[suffix], "\t" if suffix == ".tsv" else ","


def _options(kind: tuple[str, str]) -> Any:
    """The format as pyarrow takes it."""
    import pyarrow.dataset as datasets

    name, delimiter = kind
    if name != "csv":
        return name
    import pyarrow.csv as csv

    return datasets.CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=delimiter),
        # Nothing between two commas is NULL, as is NULL itself; "" is a text.
        convert_options=csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _with_our_errors(reader: pa.RecordBatchReader, path: str) -> pa.RecordBatchReader:
    """A reader whose errors are ours and name the files."""

    def batches() -> Any:
        try:
            yield from reader
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgumentError(f"data: {path}: {error}") from error

    return pa.RecordBatchReader.from_batches(reader.schema, batches())
