"""Settings kept in a table's schema: their names, defaults and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fermion
from fermion.arguments import integer
from fermion.errors import InvalidArgumentError

TARGET_FILE_SIZE = "target_file_size"
STATISTICS_COLUMNS = "statistics_columns"
PROFILE = "file.profile"
WRITE_BUFFER_SIZE = "write_buffer_size"
COLUMN_FILES_MAX = "column_files_max"

RESERVED = ("file.", "fermion.")
"""Beginnings of names that are kept for settings of ours."""

TARGET_FILE_BYTES = 256 * 1024 * 1024
WRITE_BUFFER_BYTES = 512 * 1024 * 1024
COLUMN_FILES_DEFAULT = 8
STATISTICS_COLUMNS_MAX = 32
"""Leaf columns, beside partition, key and sort columns, whose statistics entries keep."""

_SIZE = re.compile(r"\s*(\d{1,18})\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*", re.IGNORECASE)
_MILLISECONDS = {
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """What a table's settings say.

    Attributes
    ----------
    target_file_bytes
        Size that data files should have.
    statistics_columns
        Columns whose statistics entries keep beyond the usual ones.
    profile
        Of `fermion.WriteOptions`; None for its default.
    write_buffer_bytes
        Arrow bytes that a writer keeps in memory before rows go to storage, all its files together.
    column_files_max
        Compaction rewrites a data file that has more column files.
    """

    target_file_bytes: int = TARGET_FILE_BYTES
    statistics_columns: tuple[str, ...] = ()
    profile: str | None = None
    write_buffer_bytes: int = WRITE_BUFFER_BYTES
    column_files_max: int = COLUMN_FILES_DEFAULT


def parse_properties(properties: Mapping[str, str]) -> TableProperties:
    """Read the settings; names that are not known here are left alone.

    Raises
    ------
    InvalidArgumentError
        A value that is not of its setting's form.
    """
    columns = properties.get(STATISTICS_COLUMNS, "")
    return TableProperties(
        target_file_bytes=parse_size(properties.get(TARGET_FILE_SIZE, TARGET_FILE_BYTES)),
        statistics_columns=tuple(name.strip() for name in columns.split(",") if name.strip()),
        profile=properties.get(PROFILE),
        write_buffer_bytes=parse_size(properties.get(WRITE_BUFFER_SIZE, WRITE_BUFFER_BYTES)),
        column_files_max=_parse_count(properties.get(COLUMN_FILES_MAX), COLUMN_FILES_DEFAULT),
    )


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Settings that are to be stored, as texts by name; a copy.

    Names that begin with ``file.`` or ``fermion.`` are ours: those that are not known are refused.
    All others that are not known are the user's.

    Raises
    ------
    InvalidArgumentError
        A value that is not of its setting's form, or a name of ours that is not known.
    """
    for name, value in properties.items():
        if name.startswith(RESERVED) and name != PROFILE:
            raise InvalidArgumentError(
                f"property {name!r}: names that begin with {' or '.join(map(repr, RESERVED))} are "
                f"reserved; known is {PROFILE!r}"
            )
        try:
            parsed = parse_properties({name: value})
            if parsed.profile is not None:
                profile: Any = parsed.profile
                fermion.WriteOptions(profile=profile)
        except ValueError as error:
            raise InvalidArgumentError(f"property {name!r}: {error}") from None
    return dict(properties)


def parse_size(size: int | str, parameter: str = "") -> int:
    """Bytes from a number or a text such as ``256MB`` (powers of 1024).

    Parameters
    ----------
    parameter
        That it was given for, named in the message.

    Raises
    ------
    InvalidArgumentError
        Not a size, or not above 0.
    """
    count = 0 if isinstance(size, str) else integer(size, parameter or "size")
    if isinstance(size, str) and (match := _SIZE.fullmatch(size)):
        count = int(match[1]) * 1024 ** _POWERS[match[2].lower()]
    if count < 1:
        named = f"{parameter}={size!r}" if parameter else repr(size)
        raise InvalidArgumentError(f"{named} is not a size: expected bytes, or as in '256MB'")
    return count


def _parse_count(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgumentError(f"{text!r} is not a count: expected a number from 0 on")
    return int(text)


def parse_duration(text: str, parameter: str) -> int:
    """Milliseconds from a text such as ``30 min``.

    Parameters
    ----------
    parameter
        That it was given for, named in the message.

    Raises
    ------
    InvalidArgumentError
        Not a duration, without a unit, or not above 0.
    """
    match = _DURATION.fullmatch(text)
    unit = None if match is None else _MILLISECONDS.get(match[2].lower())
    duration = 0 if match is None or unit is None else int(match[1]) * unit
    if not duration:
        raise InvalidArgumentError(
            f"{parameter}={text!r} is not a duration: expected a number and a unit (ms, s, min, h "
            "or d), as in '30 min'"
        )
    return duration
