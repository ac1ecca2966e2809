"""The forms of values of properties: text in a schema, and what it is parsed to."""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import fermion
from fermion.arguments import first_repeated, integer
from fermion.engine import split_key_name
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass

NUMBER_MAX = 2**31 - 1
"""The greatest value of a property that is a number."""
_SIZE = re.compile(r"\s*(\d{1,18})\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*", re.IGNORECASE)
_MILLISECONDS = {
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_BETWEEN_COMMAS = re.compile(r"(?:[^,']|'[^']*')+")
"""Names with commas between them, also with commas in quotes."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(size: int | str, parameter: str = "") -> int:
    """Bytes from a number or a text such as ``256MB`` (powers of 1024).

    parameter: That it was given for, named in the message.
    Raises InvalidArgumentError: Not a size, or not above 0.
    """
    count = 0 if isinstance(size, str) else integer(size, parameter or "size")
    if isinstance(size, str) and (match := _SIZE.fullmatch(size)):
        count = int(match[1]) * 1024 ** _POWERS[match[2].lower()]
    if count < 1:
        named = f"{parameter}={size!r}" if parameter else repr(size)
        raise InvalidArgumentError(f"{named} is not a size: expected bytes, or as in '256MB'")
    return count


def parse_duration(text: str, parameter: str) -> int:
    """Milliseconds from a text such as ``30 min``.

    parameter: That it was given for, named in the message.
    Raises InvalidArgumentError: Not a duration, without a unit, or not above 0.
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


class Kind(ABC):
    """The form of a property's value."""

    names_columns = False
    """Whether it names columns of the table."""

    @abstractmethod
    def parse(self, name: str, text: str) -> Any:
        """Read a value; raises `InvalidArgumentError`, which names the property."""


class Text(Kind):
    """Any text, as it stands."""

    def parse(self, name: str, text: str) -> str:
        """Return the text."""
        return text


class Flag(Kind):
    """``true`` or ``false``."""

    def parse(self, name: str, text: str) -> bool:
        """Return the flag; letters may be upper-case."""
        plain = text.strip().lower()
        if plain not in ("true", "false"):
            raise InvalidArgumentError(f"{name}={plain!r}: expected true or false")
        return plain == "true"


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A whole number between two bounds, both included."""

    least: int = 1
    most: int = NUMBER_MAX

    def parse(self, name: str, text: str) -> int:
        """Return the number."""
        plain = text.strip()
        if not re.fullmatch(r"-?\d{1,10}", plain) or not self.least <= int(plain) <= self.most:
            raise InvalidArgumentError(
                f"{name}={plain!r}: expected a number from {self.least} to {self.most}"
            )
        return int(plain)


class Size(Kind):
    """A number of bytes, with a unit or without one."""

    def parse(self, name: str, text: str) -> int:
        """Return bytes."""
        return parse_size(text, name)


class Duration(Kind):
    """A number with a unit of time."""

    def parse(self, name: str, text: str) -> int:
        """Return milliseconds."""
        return parse_duration(text, name)


class Word(Kind):
    """A word, in upper or lower case, with ``_`` or ``-``."""

    def parse(self, name: str, text: str) -> str:
        """Return the word, in lower case with ``_``."""
        return text.strip().lower().replace("-", "_")


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of some words, as `Word` takes them."""

    words: tuple[str, ...]

    def parse(self, name: str, text: str) -> str:
        """Return the word, in lower case with ``_``."""
        word = Word().parse(name, text)
        if word not in self.words:
            raise InvalidArgumentError(
                f"{name}={word!r}: expected one of {', '.join(self.words)}"
                f"{nearest(word, self.words)}"
            )
        return word


class Column(Text):
    """The name of a column."""

    names_columns = True


class Fields(Kind):
    """Names with commas between them, each once."""

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        """Return the names."""
        columns = tuple(column.strip() for column in text.split(","))
        if not all(columns):
            raise InvalidArgumentError(f"{name}={text!r}: expected names of columns")
        check_no_repeats(name, columns)
        return columns


class Columns(Fields):
    """Names of columns with commas between them, each once."""

    names_columns = True


class AnyColumns(Kind):
    """Names of columns as `Columns`, or none."""

    names_columns = True

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        """Return the names; empty ones and repeated ones are left out."""
        return tuple(dict.fromkeys(column.strip() for column in text.split(",") if column.strip()))


class Shredded(Kind):
    """Which keys of a map get columns: ``all``, a number, or keys with commas between them."""

    def parse(self, name: str, text: str) -> fermion.Shred:
        """Return what `fermion.WriteOptions` takes; a comma makes a list of one key."""
        if text == "all":
            return fermion.Shred()
        if text.isdecimal():
            return fermion.Shred(int(text))
        return fermion.Shred([each.strip() for each in text.split(",") if each.strip()])


class MapKeys(Kind):
    """Keys of maps with commas between them: ``features['age'], scores[7]``."""

    def parse(self, name: str, text: str) -> tuple[tuple[str, str], ...]:
        """Return the column and the key of each, as text; repeated ones are left out."""
        found = []
        for each in _BETWEEN_COMMAS.findall(text):
            if each.strip():
                found.append(split_key_name(each.strip()))
            if found and found[-1] is None:
                raise InvalidArgumentError(
                    f"{name}: {each.strip()!r} is no key of a map: expected such as features['age']"
                )
        return tuple(dict.fromkeys(found))  # type: ignore[arg-type]


class Profile(Kind):
    """A profile of `fermion.WriteOptions`."""

    def parse(self, name: str, text: str) -> str:
        """Return the name."""
        profile: Any = text
        fermion.WriteOptions(profile=profile)
        return text


def spelled_keys(text: str, spelled: Callable[[str], str | None]) -> str:
    """The value of `STATS_KEYS` with other names of maps; None leaves out the keys of a map."""
    parts = _BETWEEN_COMMAS.findall(text)
    made = []
    for part in parts:
        column = (split_key_name(part.strip()) or ("",))[0]
        name = spelled(column) if column else column
        if name is not None:
            made.append(part.replace(column, name, 1))
    return ",".join(made)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message that names what is most alike; empty where nothing is."""
    likes = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {likes[0]!r}?" if likes else ""


def check_no_repeats(setting: str, names: tuple[str, ...]) -> None:
    """Refuse a name that stands twice in a setting.

    Raises InvalidArgumentError: Names the setting and the column.
    """
    repeated = first_repeated(names)
    if repeated is not None:
        raise InvalidArgumentError(f"{setting}: column {repeated!r} is named twice")
