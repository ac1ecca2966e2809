"""What objects show of themselves: `repr` of a few lines, HTML for notebooks; both of bounded size.

A table may have ten thousand columns, and a commit as many files. What an object shows of them
fits on a screen, and takes no request to a storage.
"""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fermion.errors import FermionError
from fermion.exports import LoadedWhenAskedFor
from fermion.redaction import redacted, redacted_text

if TYPE_CHECKING:
    import html
else:
    html = LoadedWhenAskedFor("html")

LINE_LENGTH = 100
"""Of the lines of a `repr`."""
REPR_LENGTH = 800
"""What a `repr` is cut at, roughly."""
VALUE_LENGTH = 80
"""Of one value in a `repr`."""
CELL_LENGTH = 200
"""Of a cell in HTML."""
ITEMS_SHOWN = 3
"""Of a collection."""
FILTER_LENGTH = 250
"""Of a filter."""
NAMES_SHOWN = 10
"""Of columns, in a text."""
ROWS_SHOWN = 20
"""Of a table in HTML, and of a list of fields."""
_COLLECTIONS = (dict, list, tuple, set, frozenset)
_MISSING = object()


def shortened(text: str, length: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= length else text[: max(length - 3, 0)] + "..."


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str) -> str:
    """The text with every character that is not printable as an escape."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def location_text(location: str) -> str:
    """A path or URL in quotation marks, without credentials, shortened."""
    return repr(shortened(redacted(location), CELL_LENGTH))


def names_text(names: Sequence[str], noun: str) -> str:
    """Names, of many the first ones: ``a, b, ... 9,998 more columns``."""
    shown = [shortened(name, VALUE_LENGTH) for name in names[:NAMES_SHOWN]]
    return ", ".join([*shown, *more(len(shown), len(names), noun)])


def more(shown: int, total: int, noun: str = "") -> list[str]:
    """A last line that says how many are not shown; none if all are."""
    return [f"... {total - shown:,} more{noun and ' ' + noun}"] if total > shown else []


def facts_repr(title: str, facts: Mapping[str, Any]) -> str:
    """The `repr` of what is no plain value: ``<title, name value, ...>``, without what is None."""
    parts = [title, *(f"{name} {each}" for name, each in facts.items() if each is not None)]
    line = ", ".join(parts)
    return f"<{line}>" if len(line) < LINE_LENGTH else "<" + ",\n    ".join(parts) + ">"


def short_repr(value: Any) -> str:
    """The `repr` of a dataclass or a msgspec structure: ``Name(field=value, ...)``, shortened.

    Fields that have their default, are None or are empty are left out. Assign it to ``__repr__``
    in the class.
    """
    name = type(value).__qualname__
    parts = []
    length = 0
    fields = list(_fields(value))
    for field, each in fields:
        parts.append(f"{field}={brief(each)}")
        length += len(parts[-1]) + 2
        if length > REPR_LENGTH:
            parts += more(len(parts), len(fields))
            break
    line = f"{name}({', '.join(parts)})"
    if len(line) <= LINE_LENGTH:
        return line
    return f"{name}(\n" + "".join(f"    {each}\n" for each in _lines(parts)) + ")"


def brief(value: Any, length: int = VALUE_LENGTH) -> str:
    """The `repr` of any value, shortened: the first items of a collection and how many follow."""
    if isinstance(value, str):
        return repr(shortened(redacted_text(value), length))
    if isinstance(value, datetime):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value):,} bytes>"
    if isinstance(value, _COLLECTIONS) and type(value).__repr__ in _PLAIN:
        return _collection(value, length)
    if type(value) is int and value.bit_length() > 1_000:
        return f"<a number of {value.bit_length():,} bits>"
    if hasattr(value, "num_fields"):
        return type_text(value, length)
    if hasattr(value, "names") and hasattr(value, "metadata"):
        return f"<schema of {len(value.names):,} columns>"
    text = short_repr(value) if _has_generated_repr(type(value)) else repr(value)
    return shortened(" ".join(text[: REPR_LENGTH * 2].split()).replace("( ", "("), length)


def type_text(dtype: Any, length: int = CELL_LENGTH) -> str:
    """An Arrow type as text; of one with many fields, how many they are."""
    if dtype.num_fields > ROWS_SHOWN:
        return f"struct<{dtype.num_fields:,} fields>"
    return shortened(str(dtype), length)


_PLAIN = {each.__repr__ for each in _COLLECTIONS}


def _collection(values: Any, length: int) -> str:
    room = max(length // min(len(values), ITEMS_SHOWN), 20) if values else length
    if isinstance(values, Mapping):
        begin, end = "{}"
        items = (f"{brief(key, room)}: {brief(each, room)}" for key, each in values.items())
    else:
        begin, end = "()" if isinstance(values, tuple) else "[]"
        begin, end = "{}" if isinstance(values, set | frozenset) else (begin, end)
        items = (brief(each, room) for each in values)
    text = ", ".join(itertools.islice(items, ITEMS_SHOWN))
    if len(values) > ITEMS_SHOWN:
        text += f", {more(ITEMS_SHOWN, len(values))[0]}"
    elif isinstance(values, tuple) and len(values) == 1:
        text += ","
    return f"{begin}{text}{end}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields that are shown, by name."""
    names: Sequence[str]
    if dataclasses.is_dataclass(value):
        found = [field for field in dataclasses.fields(value) if field.repr]
        names, defaults = [field.name for field in found], [field.default for field in found]
    else:
        names, known = value.__struct_fields__, value.__struct_defaults__
        defaults = [_MISSING] * (len(names) - len(known)) + list(known)
    for name, default in zip(names, defaults, strict=True):
        each = getattr(value, name, None)
        is_empty = each is None or (isinstance(each, _COLLECTIONS) and not each)
        is_default = type(each) is type(default) and each == default
        if not (is_empty or is_default or name.startswith("_")):
            yield name, each


def _lines(parts: Sequence[str]) -> Iterator[str]:
    """Parts, as many on a line as fit."""
    line = ""
    for place, part in enumerate(parts):
        item = part if place == len(parts) - 1 else f"{part},"
        if line and len(line) + len(item) + 5 > LINE_LENGTH:
            yield line
            line = item
        else:
            line = f"{line} {item}" if line else item
    yield line


def _has_generated_repr(kind: type) -> bool:
    """Whether a dataclass or a msgspec structure has not got a `repr` of its own."""
    method: Any = kind.__repr__
    return (dataclasses.is_dataclass(kind) and hasattr(method, "__wrapped__")) or (
        hasattr(kind, "__struct_fields__") and not hasattr(method, "__code__")
    )


class ShownText(str):
    """A text of several lines, which prompts and notebooks show as these lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(printable(line) for line in self.split("\n"))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


_Named = TypeVar("_Named")


class NamedValues(ABC, Generic[_Named]):
    """What lists values by name: it is iterated, counted, searched and shown as that list."""

    __slots__ = ()

    @abstractmethod
    def list(self) -> Sequence[_Named]:
        """The values, each with a ``name``."""

    @abstractmethod
    def _facts(self, value: _Named) -> dict[str, Any]:
        """What people are shown of one."""

    def __iter__(self) -> Iterator[_Named]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __bool__(self) -> bool:
        return True  # an object with methods, whatever it lists

    def __contains__(self, name: object) -> bool:
        """Whether there is such a name, or such a value."""
        return any(name in (each, getattr(each, "name", None)) for each in self.list())

    def __repr__(self) -> str:
        kind = type(self).__name__
        try:
            values = self.list()
        except (OSError, FermionError) as error:  # whoever debugs that sees it, and no traceback
            return f"<{kind}, not readable: {shortened(str(error), VALUE_LENGTH)}>"
        lines = []
        for value in values[:NAMES_SHOWN]:
            facts = {name: each for name, each in self._facts(value).items() if each is not None}
            parts = (each if name == "name" else f"{name} {each}" for name, each in facts.items())
            lines.append(shortened(" ".join(", ".join(parts).split()), LINE_LENGTH - 2))
        lines += more(NAMES_SHOWN, len(values))
        return "\n  ".join([f"{kind}: {len(values):,}", *map(printable, lines)])

    def _repr_html_(self) -> str:
        values = self.list()
        rows = [self._facts(value) for value in values[:ROWS_SHOWN]]
        cells = (["" if each is None else each for each in row.values()] for row in rows)
        return html_table(type(self).__name__, tuple(rows[0]) if rows else (), cells, len(values))


def html_facts(title: str, facts: Mapping[str, Any]) -> str:
    """A title over a table of names and values; values that are None are left out."""
    rows = ((name, each) for name, each in facts.items() if each is not None)
    return html_table(title, (), rows, len(facts))


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], total: int) -> str:
    """A title over the first rows of a table, and how many follow.

    title, header, rows: Any text: it is escaped, and shortened.
    total: How many rows there are.
    """
    shown = [[_cell(each) for each in row] for row in itertools.islice(rows, ROWS_SHOWN)]
    head = "".join(f"<th>{_cell(each)}</th>" for each in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{each}</td>" for each in row) + "</tr>"
        for row in shown
    )
    rest = "".join(f"<div>{each}</div>" for each in more(ROWS_SHOWN, total))
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<div><b>{_cell(title)}</b><table>{top}<tbody>{body}</tbody></table>{rest}</div>"


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return html.escape(shortened(value if isinstance(value, str) else str(value), CELL_LENGTH))
