"""Files of other formats, and directories of them, as streams of record batches."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fermion.errors import InvalidArgumentError, StorageError
from fermion.io.remote import resolve, storage_error
from fermion.redaction import redacted

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

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


_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "modificationTime", "created")
"""What storages call a thing that changes when a file does; the first that one has."""


def reader_of_files(location: str | os.PathLike[str]) -> pa.RecordBatchReader:
    """The rows of files in other formats: those of `InputFiles`."""
    return InputFiles(location).reader()


class InputFiles:
    """Files of other formats, as they lie in one place now.

    Parameters
    ----------
    location
        A file, a directory, or a pattern of those such as ``dir/*.csv`` or ``day=2026-*``; a local
        path or an fsspec URL (JSON is copied to a temporary folder first). Folders in it, and those
        just around it, may be Hive partitions (``day=2026-01-31``), which become columns. The
        suffix of the files tells their format: Parquet, CSV (``.tsv`` with tabs), JSON lines,
        Arrow IPC, Feather or ORC; text may be compressed (``.csv.gz``).
    storage_options
        For fsspec.

    Raises
    ------
    InvalidArgumentError
        No such file; names the location.
    StorageError
        The storage does not answer.
    """

    def __init__(
        self, location: str | os.PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> None:
        self.location = os.fspath(location)
        if not isinstance(self.location, str):
            raise InvalidArgumentError(f"data: {location!r}: expected a path as text")
        try:
            self._filesystem, self._path = resolve(location, storage_options)
        except (ImportError, ValueError) as error:  # no client, or an unknown protocol
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(f"data: {redacted(self.location)}: {error}") from error
        with self._told():
            self._is_directory, files = _found(self._filesystem, self._path)
        if not files:
            raise InvalidArgumentError(
                f"data: {redacted(self.location)}: expected a file, a directory with files or a "
                "pattern of files that are there, found none"
            )
        self.files = sorted(files)
        """The paths of the files, in the order in which they are read."""

    def versions(self) -> dict[str, str]:
        """What tells the content of each file from an earlier one, by its absolute path or URL."""
        if self._filesystem is None:
            found = ((os.path.abspath(file), os.stat(file)) for file in self.files)
            return {file: f"{state.st_size}-{state.st_mtime_ns}" for file, state in found}
        versions = {}
        with self._told():
            for file in self.files:
                state = self._filesystem.info(file)
                changing = next((state[name] for name in _VERSIONS if state.get(name)), None)
                versions[self._filesystem.unstrip_protocol(file)] = f"{state['size']}-{changing}"
        return versions

    def reader(self, files: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The rows; columns are those of the first file.

        Parameters
        ----------
        files
            Some of `files`; None: all.

        Raises
        ------
        InvalidArgumentError
            Files of several formats or of none that is known, or what they hold is not in their
            format; names the location. Also while rows are read.
        """
        import pyarrow.dataset as datasets

        files = self.files if files is None else list(files)
        formats = {_format(file): file for file in files}
        if len(formats) > 1:
            one, other = list(formats.values())[:2]
            raise InvalidArgumentError(
                f"data: {redacted(self.location)}: expected files of one format, found {one} "
                f"and {other}"
            )
        kind = next(iter(formats))
        filesystem, folder = self._filesystem, ""
        base = _folder_of(self._path, is_directory=self._is_directory)
        if filesystem is not None and kind[0] == "json":
            # pyarrow holds the interpreter's lock while it waits for the threads that read JSON.
            folder = tempfile.mkdtemp(prefix="fermion-")
            base = f"{folder}/{base.lstrip('/')}"
        try:
            with self._told():
                if folder and filesystem is not None:
                    copies = [f"{folder}/{file.lstrip('/')}" for file in files]
                    for file, copy in zip(files, copies, strict=True):
                        os.makedirs(os.path.dirname(copy), exist_ok=True)
                        filesystem.get_file(file, copy)
                    filesystem, files = None, copies
                dataset = partial(datasets.dataset, format=_options(kind), filesystem=filesystem)
                own = dataset(files[:1]).schema.names if _key_of(base) else ()
                while (key := _key_of(base)) and key not in own:
                    base = os.path.dirname(base)
                hive = datasets.partitioning(flavor="hive")
                rows = dataset(files, partitioning=hive, partition_base_dir=base or None)
                reader = rows.scanner().to_reader()
        except BaseException:
            _remove(folder, os.getpid())
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            with self._told():
                yield from reader

        made = batches()
        weakref.finalize(made, _remove, folder, os.getpid())
        return pa.RecordBatchReader.from_batches(reader.schema, made)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the files as ours, which name them."""
        try:
            yield
        except StorageError:
            raise
        except (pa.ArrowException, OSError) as error:
            if self._filesystem is not None and not isinstance(error, pa.ArrowException):
                raise storage_error("read", self.location, error) from error
            raise InvalidArgumentError(f"data: {redacted(self.location)}: {error}") from error


def _found(filesystem: AbstractFileSystem | None, path: str) -> tuple[bool, list[str]]:
    """Whether a location is a directory, and the files that it means."""
    if filesystem is not None:
        filesystem.invalidate_cache()  # of listings that fsspec keeps: files may have come since
    is_directory, is_file = (
        (os.path.isdir, os.path.isfile)
        if filesystem is None
        else (filesystem.isdir, filesystem.isfile)
    )
    if is_directory(path):
        return True, _files_below(filesystem, path, path)
    if is_file(path):
        return False, [path]
    if not any(sign in path for sign in "*?["):
        return False, []
    base = _folder_of(path, is_directory=False)
    if filesystem is None:
        named = {match: os.path.isdir(match) for match in glob.iglob(path, recursive=True)}
    else:
        states = filesystem.glob(path, detail=True)
        named = {match: state["type"] == "directory" for match, state in states.items()}
    folders = [match for match, is_folder in named.items() if is_folder]
    inside = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    files = [match for match in named if match not in folders and not match.startswith(inside)]
    files += [file for folder in folders for file in _files_below(filesystem, folder, base)]
    return False, list(dict.fromkeys(files))  # a folder and one below it may both fit


def _files_below(filesystem: AbstractFileSystem | None, folder: str, base: str) -> list[str]:
    """The files in a folder and in those below it, without what is hidden from a base on."""
    if filesystem is not None:
        files = filesystem.find(folder)
    else:
        pattern = os.path.join(glob.escape(folder), "**", "*")
        files = [file for file in glob.iglob(pattern, recursive=True) if os.path.isfile(file)]
    return [file for file in files if not _is_hidden(os.path.relpath(file, base or None))]


def _folder_of(path: str, *, is_directory: bool) -> str:
    """The folder that a location names, or that the files it names lie in, without wildcards."""
    if not is_directory:
        path = os.path.dirname(re.split(r"[*?\[]", path, maxsplit=1)[0])
    return path.rstrip("/")


def _key_of(folder: str) -> str:
    """The column of a Hive partition, by its folder; empty for other folders."""
    key, equals, _ = os.path.basename(folder).partition("=")
    return key if equals else ""


def _remove(folder: str, process: int) -> None:
    """Remove a folder of copies, unless this is a fork of the process that made it."""
    if folder and process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


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
