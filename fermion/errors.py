"""The errors of the file format.

FermionError
├── InvalidFileError            bad magic, broken structure; also a ValueError
│   └── ChecksumError           stored and computed checksums differ
├── TruncatedFileError          a range past the end, a short read; also an EOFError
├── UnsupportedVersionError     a newer major version or an unknown feature bit
├── UnsupportedEncodingError    an encoding or codec id this reader does not know
├── UnsupportedTypeError        an Arrow type the format cannot hold; also a TypeError
├── InvalidArgumentError        a call that cannot be carried out; also a ValueError
└── ColumnNotFoundError         a name that is not in the schema; also a KeyError
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FermionError(Exception):
    """Root of every error raised by this project."""


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
    """An Arrow type that the format cannot hold (unions, and the two older intervals)."""


class InvalidArgumentError(FermionError, ValueError):
    """An argument that no call could satisfy; the message says what to do."""


class ColumnNotFoundError(FermionError, KeyError):
    """A column that the schema lacks; the message names the closest matches."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def column_not_found(name: object, known: Iterable[str], *, where: str) -> ColumnNotFoundError:
    """Build the error for a missing column, with up to three close matches.

    Parameters
    ----------
    name
        What the caller asked for.
    known
        The names that exist.
    where
        The file or table searched, for the message.
    """
    close = difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.5)
    hint = f"; closest matches: {', '.join(map(repr, close))}" if close else ""
    return ColumnNotFoundError(f"{where}: no column {name!r}{hint}")
