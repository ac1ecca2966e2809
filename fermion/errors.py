"""The errors of the file format.

FermionError
├── InvalidFileError            bad magic, broken structure; also a ValueError
│   └── ChecksumError           stored and computed checksums differ
├── TruncatedFileError          a range past the end, a short read; also an EOFError
├── UnsupportedVersionError     a newer major version or an unknown feature bit
├── UnsupportedEncodingError    an encoding or codec id this reader does not know
├── UnsupportedTypeError        an Arrow type the format cannot hold; also a TypeError
├── InvalidArgumentError        a wrong argument; also a ValueError
└── ColumnNotFoundError         a name that is not in the schema; also a KeyError

StorageError (an OSError)       a storage failed, other than "not found"
├── StorageDenied               it refused access; also a PermissionError
└── StorageTimeout              it did not answer in time; also a TimeoutError

A failure of the storage is not a `FermionError`, because it does not mean that a file is damaged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fermion.exports import LoadedWhenAskedFor
from fermion.redaction import redacted_text

if TYPE_CHECKING:
    import difflib
else:
    difflib = LoadedWhenAskedFor("difflib")


class FermionError(Exception):
    """Root of every error raised by this project; URLs in messages lose credentials."""

    def __init__(self, *arguments: object) -> None:
        shown = (redacted_text(each) if isinstance(each, str) else each for each in arguments)
        super().__init__(*shown)


class InvalidFileError(FermionError, ValueError):
    """The bytes are not a well-formed Fermion file."""


class ChecksumError(InvalidFileError):
    """A stored checksum differs from the one computed over the bytes read."""


class TruncatedFileError(FermionError, EOFError):
    """A range lies past the end of the file, or a read came back short."""


class UnsupportedVersionError(FermionError):
    """The file needs a newer reader: its major version or a feature bit is unknown."""


class UnsupportedEncodingError(FermionError):
    """A page names an encoding or codec id that this reader does not know."""


class UnsupportedTypeError(FermionError, TypeError):
    """An Arrow type that the format cannot store (unions, and two interval types)."""


class StorageError(OSError):
    """A storage failed; it is not known whether the object exists. The original error is the cause.

    Attributes
    ----------
    operation
        What was asked for: ``"read"``, ``"list"``, ``"create"``.
    url
        The object's address, without user info and signatures.
    """

    def __init__(self, code: int, message: str, *, operation: str = "", url: str = "") -> None:
        super().__init__(code, message)
        self.operation = operation
        self.url = url

    def __str__(self) -> str:
        return str(self.args[1])

    def __reduce__(self) -> Any:
        return _storage_error, (type(self), self.args, self.operation, self.url)


def _storage_error(kind: type[StorageError], arguments: Any, operation: str, url: str) -> Any:
    return kind(*arguments, operation=operation, url=url)


class StorageDenied(StorageError, PermissionError):
    """A storage refused access: no right to the object, or an expired or wrong credential."""


class StorageTimeout(StorageError, TimeoutError):
    """A storage did not answer in time."""


@contextlib.contextmanager
def on_local_disk(operation: str, path: str) -> Iterator[None]:
    """Say of a failure of the operating system what failed and where: it often names no file.

    What tells of the name alone (no such file, one that is there, a directory) stays as it is.

    operation: A verb, for the message: ``"write"``.
    Raises StorageError: A disk that is full, a quota, a read-only file system, a device that fails.
    Raises StorageDenied, StorageTimeout.
    """
    try:
        yield
    except (StorageError, *_ABOUT_NAMES):
        raise
    except OSError as error:
        code = error.errno or errno.EIO
        text = f"{operation} {path}: {error.strerror or error}"
        kind = StorageError
        if isinstance(error, PermissionError):
            kind = StorageDenied
        elif isinstance(error, TimeoutError):
            kind = StorageTimeout
        raise kind(code, text, operation=operation, url=path) from error


_ABOUT_NAMES = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


class InvalidArgumentError(FermionError, ValueError):
    """A wrong argument; the message says what is expected."""


class ColumnNotFoundError(FermionError, KeyError):
    """A column that is not in the schema; the message names the closest matches."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def column_not_found(name: object, known: Iterable[str], *, where: str) -> ColumnNotFoundError:
    """Build the error for a missing column, with those that differ by case, or close matches.

    name: What the caller asked for.
    where: The file or table searched, for the message.
    """
    names, asked = list(known), str(name)
    alike = [each for each in names if each.casefold() == asked.casefold()]
    close = difflib.get_close_matches(asked, names, n=3, cutoff=0.5)
    hint = f"; closest matches: {', '.join(map(repr, close))}" if close else ""
    if alike:
        hint = f"; names are case-sensitive: write {' or '.join(map(repr, alike))}"
    return ColumnNotFoundError(f"{where}: no column {name!r}{hint}")


def is_a_directory(path: str) -> IsADirectoryError:
    """The error for a directory where a file is meant."""
    found = "a directory"
    if os.path.isdir(os.path.join(path, "snapshot")):
        found = "the directory of a table, which fermion_table.Table.open opens"
    return IsADirectoryError(errno.EISDIR, f"expected a file, found {found}", path)


def file_is_closed(name: str) -> InvalidArgumentError:
    """The error for what is asked of a file after it was closed."""
    return InvalidArgumentError(f"{name}: file is closed")


def short_read(name: str, offset: int, expected: int, found: int) -> TruncatedFileError:
    """The error for a read that came back shorter than the file's size promised."""
    return TruncatedFileError(
        f"{name}: offset {offset}: expected {expected} bytes, the storage returned {found}"
    )


def no_file(path: str, found: os.stat_result) -> Exception:
    """The error for what is there and no regular file."""
    if stat.S_ISDIR(found.st_mode):
        return is_a_directory(path)
    return InvalidArgumentError(
        f"{path}: expected a regular file, found a pipe, a socket or a device"
    )
