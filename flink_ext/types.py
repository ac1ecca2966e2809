"""Arrow types ⇄ Flink's: which type of Flink SQL holds a column, and how its values travel.

===============================================  ==================================================
Arrow                                            Flink
===============================================  ==================================================
bool, int8-64, float32/64, date32                the same
uint8, uint16, uint32, uint64                    SMALLINT, INT, BIGINT, DECIMAL(20, 0)
float16, date64                                  FLOAT, DATE
decimals of up to 38 digits                      DECIMAL(p, s)
timestamp without, with a zone                   TIMESTAMP(p), TIMESTAMP_LTZ(p): 0, 3, 6 or 9 digits
time32                                           TIME(0), TIME(3)
time64, duration in us or ns                     BIGINT, in that unit: Flink counts milliseconds
duration in s or ms                              INTERVAL DAY TO SECOND(3)
string, binary in every form                     STRING, BYTES; of a fixed size BINARY(n)
list in every form, map, struct                  ARRAY, MAP, ROW
null                                             BOOLEAN, always null
dictionary, run-end encoded, extension           the type of their values
===============================================  ==================================================

A new table gets the types that it would show again: of a timestamp or time of fewer digits the next
unit that holds them, and no nulls among the keys of maps. CHAR, VARCHAR, VARBINARY of a length and
MULTISET, RAW, INTERVAL YEAR TO MONTH and structured types are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import strip_wrappers
from flink_ext.errors import UnsupportedByFlink

DECIMAL_DIGITS_MAX = 38
_LENGTH_MAX = 2**31 - 1
"""What STRING and BYTES are: VARCHAR and VARBINARY of this length."""
_UNITS = ("s", "ms", "us", "ns")
_INTERVAL = "INTERVAL DAY(6) TO SECOND(3)"
_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.string(): "STRING",
    pa.binary(): "BYTES",
}
"""Types that have one name on each side."""
_ALIKE: dict[pa.DataType, str] = {
    pa.null(): "BOOLEAN",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.uint64(): "DECIMAL(20, 0)",
    pa.float16(): "FLOAT",
    pa.date64(): "DATE",
    pa.time32("s"): "TIME(0)",
    pa.time32("ms"): "TIME(3)",
    pa.time64("us"): "BIGINT",
    pa.time64("ns"): "BIGINT",
    pa.duration("s"): _INTERVAL,
    pa.duration("ms"): _INTERVAL,
    pa.duration("us"): "BIGINT",
    pa.duration("ns"): "BIGINT",
    pa.large_string(): "STRING",
    pa.string_view(): "STRING",
    pa.large_binary(): "BYTES",
    pa.binary_view(): "BYTES",
}
_NAMED = {name: dtype for dtype, name in _PLAIN.items()} | {
    "INTEGER": pa.int32(),
    "DOUBLE PRECISION": pa.float64(),
}


def flink_type(dtype: pa.DataType, where: str) -> str:
    """The type of Flink SQL, as its DDL has it, that holds the values of an Arrow type.

    where: The column, for messages.
    Raises UnsupportedByFlink: Flink has no such type.
    """
    dtype = strip_wrappers(dtype)
    known = _PLAIN.get(dtype) or _ALIKE.get(dtype)
    if known is not None:
        return known
    if pat.is_timestamp(dtype):
        kind = "TIMESTAMP" if dtype.tz is None else "TIMESTAMP_LTZ"
        return f"{kind}({3 * _UNITS.index(dtype.unit)})"
    if pat.is_decimal(dtype):
        digits, scale = dtype.precision, dtype.scale
        if scale < 0:  # 12 * 10**2 needs two more digits when written without an exponent
            digits, scale = digits - scale, 0
        digits = max(digits, scale)
        if digits <= DECIMAL_DIGITS_MAX:
            return f"DECIMAL({digits}, {scale})"
    if pat.is_fixed_size_binary(dtype):
        return f"BINARY({dtype.byte_width})" if dtype.byte_width else "BYTES"
    if pat.is_struct(dtype):
        return f"ROW<{', '.join(_child(child, where) for child in dtype)}>"
    if pat.is_map(dtype):
        key = flink_type(dtype.key_type, f"{where}.key")
        return f"MAP<{key} NOT NULL, {_nullable(dtype.item_field, f'{where}.value')}>"
    if hasattr(dtype, "value_field"):
        return f"ARRAY<{_nullable(dtype.value_field, f'{where}.element')}>"
    raise UnsupportedByFlink(f"{where}: Flink has no type for Arrow's {dtype}")


def _child(field: pa.Field, where: str) -> str:
    return f"{quoted(field.name)} {_nullable(field, f'{where}.{field.name}')}"


def _nullable(field: pa.Field, where: str) -> str:
    return flink_type(field.type, where) + ("" if field.nullable else " NOT NULL")


def quoted(name: str) -> str:
    """A name in backquotes, as Flink SQL and catalogs have it."""
    return "`" + name.replace("`", "``") + "`"


def arrow_field(name: str, text: str) -> pa.Field:
    """The Arrow field of a column, given its type as Flink writes it, ``NOT NULL`` included.

    Raises UnsupportedByFlink: A table would not return values of the type unchanged. The message
        has the path of the field that is the cause.
    """
    parser = _Parser(text, f"column {name!r}")
    field = parser.field(name, parser.where)
    parser.expect("")
    return field


_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^']|'')*')|(\w+)|([<>(),]))\s*")


class _Parser:
    """Reads one type, from left to right."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self._text = text
        self._tokens = self._cut(text)
        self._next = next(self._tokens, "")

    def _cut(self, text: str) -> Iterator[str]:
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._refused(self.where, f"expected a type of Flink at character {place}")
            yield match[0].strip()
            place = match.end()

    def _refused(self, where: str, why: str) -> UnsupportedByFlink:
        return UnsupportedByFlink(f"{where}: type {self._text}: {why}")

    def _take(self) -> str:
        taken, self._next = self._next, next(self._tokens, "")
        return taken

    def expect(self, token: str) -> None:
        """Take a token; an empty one is the end."""
        if self._next.upper() != token:
            found = self._next or "its end"
            raise self._refused(self.where, f"expected {token or 'its end'}, found {found}")
        self._take()

    def _skip(self, *words: str) -> bool:
        """Take words if they come next: the first one decides."""
        if self._next.upper() != words[0]:
            return False
        for word in words:
            self.expect(word)
        return True

    def field(self, name: str, where: str) -> pa.Field:
        """A type, and whether it may be null."""
        dtype = self._type(where)
        nullable = not self._skip("NOT", "NULL")
        if nullable:
            self._skip("NULL")
        return pa.field(name, dtype, nullable)

    def _numbers(self, *defaults: int) -> list[int]:
        """Parameters in parentheses, which may be left out."""
        found = list(defaults)
        if self._skip("("):
            for place in range(len(found)):
                if place and not self._skip(","):
                    break
                if not self._next.isdigit():
                    raise self._refused(self.where, f"expected a number, found {self._next!r}")
                found[place] = int(self._take())
            self.expect(")")
        return found

    def _type(self, where: str) -> pa.DataType:
        word = self._take().upper()
        if word == "DOUBLE" and self._skip("PRECISION"):
            return pa.float64()
        if word in _NAMED:
            return _NAMED[word]
        make = _KINDS.get(word)
        if make is None:
            raise self._refused(where, f"tables have no {word or 'such type'}")
        return make(self, where)

    def row(self, where: str) -> pa.DataType:
        """After ROW: fields in brackets."""
        closing = ">" if self._skip("<") else ")"
        if closing == ")":
            self.expect("(")
        fields: list[pa.Field] = []
        while not self._skip(closing):
            if fields:
                self.expect(",")
            name = self._take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            fields.append(self.field(name, f"{where}.{name}"))
            if self._next.startswith("'"):
                self._take()  # a description
        return pa.struct(fields)

    def array(self, where: str) -> pa.DataType:
        """After ARRAY."""
        self.expect("<")
        element = self.field("element", f"{where}.element")
        self.expect(">")
        return pa.list_(element)

    def map(self, where: str) -> pa.DataType:
        """After MAP: keys that say that they may be null may not."""
        self.expect("<")
        key = self.field("key", f"{where}.key")
        self.expect(",")
        value = self.field("value", f"{where}.value")
        self.expect(">")
        return pa.map_(key.type, value)

    def decimal(self, where: str) -> pa.DataType:
        """After DECIMAL."""
        return pa.decimal128(*self._numbers(10, 0))

    def timestamp(self, where: str) -> pa.DataType:
        """After TIMESTAMP."""
        (digits,) = self._numbers(6)
        if self._skip("WITHOUT", "TIME", "ZONE"):
            return pa.timestamp(_UNITS[-(-digits // 3)])
        if self._skip("WITH"):
            if not self._skip("LOCAL"):
                raise self._refused(where, "tables keep no zone of each value; use TIMESTAMP_LTZ")
            self.expect("TIME")
            self.expect("ZONE")
            return pa.timestamp(_UNITS[-(-digits // 3)], "UTC")
        return pa.timestamp(_UNITS[-(-digits // 3)])

    def timestamp_ltz(self, where: str) -> pa.DataType:
        """After TIMESTAMP_LTZ."""
        (digits,) = self._numbers(6)
        return pa.timestamp(_UNITS[-(-digits // 3)], "UTC")

    def time(self, where: str) -> pa.DataType:
        """After TIME."""
        (digits,) = self._numbers(0)
        self._skip("WITHOUT", "TIME", "ZONE")
        if digits > 3:
            raise self._refused(where, "Flink counts milliseconds of a time; use TIME(3)")
        return pa.time32("s" if digits == 0 else "ms")

    def varchar(self, where: str) -> pa.DataType:
        """After VARCHAR."""
        if self._numbers(1) != [_LENGTH_MAX]:
            raise self._refused(where, "tables keep no length of texts; use STRING")
        return pa.string()

    def char(self, where: str) -> pa.DataType:
        """After CHAR."""
        raise self._refused(where, "tables keep no length of texts; use STRING")

    def varbinary(self, where: str) -> pa.DataType:
        """After VARBINARY."""
        if self._numbers(1) != [_LENGTH_MAX]:
            raise self._refused(where, "tables keep no greatest length of bytes; use BYTES")
        return pa.binary()

    def binary(self, where: str) -> pa.DataType:
        """After BINARY."""
        return pa.binary(*self._numbers(1))

    def interval(self, where: str) -> pa.DataType:
        """After INTERVAL: days to seconds, of any precision."""
        units = []
        while self._next and self._next.upper() in ("YEAR", "MONTH", "DAY", "TO", "SECOND"):
            units.append(self._take().upper())
            self._numbers(0)
        if units[:1] not in (["DAY"], ["SECOND"]) or "MONTH" in units:
            raise self._refused(where, "tables have no intervals of months; use INT")
        return pa.duration("ms")


_KINDS: dict[str, Callable[[_Parser, str], pa.DataType]] = {
    "ROW": _Parser.row,
    "ARRAY": _Parser.array,
    "MAP": _Parser.map,
    "DECIMAL": _Parser.decimal,
    "DEC": _Parser.decimal,
    "NUMERIC": _Parser.decimal,
    "TIMESTAMP": _Parser.timestamp,
    "TIMESTAMP_LTZ": _Parser.timestamp_ltz,
    "TIME": _Parser.time,
    "VARCHAR": _Parser.varchar,
    "CHAR": _Parser.char,
    "VARBINARY": _Parser.varbinary,
    "BINARY": _Parser.binary,
    "INTERVAL": _Parser.interval,
}
