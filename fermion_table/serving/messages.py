"""The messages of Arrow Flight SQL that the server reads and writes, in protobuf's encoding.

Each kind is a row of `_FIELDS`: the names of its numbers, and how their values are stored. There
are only varints and bytes in them, so no library with generated classes is needed. The numbers are
those of ``FlightSql.proto``: never change one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple

_URL = "type.googleapis.com/arrow.flight.protocol.sql."
_TEXT, _BYTES, _NUMBER, _FLAG, _TEXTS, _NUMBERS = (
    "text",
    "bytes",
    "number",
    "flag",
    "texts",
    "numbers",
)
_KEYS = {1: ("catalog", _TEXT), 2: ("db_schema", _TEXT), 3: ("table", _TEXT)}
_HANDLE = {1: ("prepared_statement_handle", _BYTES)}
_FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    "ActionCancelQueryRequest": {1: ("info", _BYTES)},
    "ActionCancelQueryResult": {1: ("result", _NUMBER)},
    "ActionClosePreparedStatementRequest": _HANDLE,
    "ActionCreatePreparedStatementRequest": {1: ("query", _TEXT), 2: ("transaction_id", _BYTES)},
    "ActionCreatePreparedStatementResult": {
        **_HANDLE,
        2: ("dataset_schema", _BYTES),
        3: ("parameter_schema", _BYTES),
    },
    "CommandGetCatalogs": {},
    "CommandGetCrossReference": {},
    "CommandGetDbSchemas": {1: ("catalog", _TEXT), 2: ("db_schema_filter_pattern", _TEXT)},
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetSqlInfo": {1: ("info", _NUMBERS)},
    "CommandGetTableTypes": {},
    "CommandGetTables": {
        1: ("catalog", _TEXT),
        2: ("db_schema_filter_pattern", _TEXT),
        3: ("table_name_filter_pattern", _TEXT),
        4: ("table_types", _TEXTS),
        5: ("include_schema", _FLAG),
    },
    "CommandGetXdbcTypeInfo": {1: ("data_type", _NUMBER)},
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandStatementQuery": {1: ("query", _TEXT), 2: ("transaction_id", _BYTES)},
    "TicketStatementQuery": {1: ("statement_handle", _BYTES)},
}
_EMPTY: dict[str, Any] = {
    _TEXT: None,  # a filter that is empty is another one than none
    _BYTES: b"",
    _NUMBER: 0,
    _FLAG: False,
    _TEXTS: (),
    _NUMBERS: (),
}


class Message(NamedTuple):
    """A message: its kind, such as ``CommandGetTables``, and what its fields hold."""

    kind: str
    values: Mapping[str, Any]


def read_message(data: bytes) -> Message:
    """The message in an ``Any`` of protobuf.

    A kind that is not known here has no values.

    Raises InvalidArgumentError: The bytes are no such message.
    """
    envelope = dict(_fields(data))
    url, body = envelope.get(1, b""), envelope.get(2, b"")
    if not isinstance(url, bytes) or not isinstance(body, bytes) or not url:
        raise _broken("no Any with a message of Flight SQL")
    kind = url.decode("utf-8", "replace").rpartition("/")[2].rpartition(".")[2]
    return Message(kind, _values(_FIELDS.get(kind, {}), body))


def written(kind: str, **values: Any) -> bytes:
    """A message in an ``Any`` of protobuf; text and bytes, and numbers."""
    body = b""
    for number, (name, _) in _FIELDS[kind].items():
        if name in values:
            body += _field(number, values[name])
    return _field(1, f"{_URL}{kind}".encode()) + _field(2, body)


def bare(number: int, value: bytes | int) -> bytes:
    """A message of one field, without an ``Any`` around it."""
    return _field(number, value)


def bare_field(data: bytes, number: int) -> bytes:
    """The bytes of a field of a message without an ``Any`` around it; none if it has none."""
    value = dict(_fields(data)).get(number, b"")
    if not isinstance(value, bytes):
        raise _broken(f"a number in field {number}")
    return value


def _values(fields: Mapping[int, tuple[str, str]], body: bytes) -> dict[str, Any]:
    values = {name: _EMPTY[kind] for name, kind in fields.values()}
    for number, value in _fields(body):
        name, kind = fields.get(number, ("", ""))
        if not name:
            continue
        read = _READ[kind](value)
        if read is None:
            raise _broken(f"{name}={value!r}")
        values[name] = (*values[name], *read) if kind in (_TEXTS, _NUMBERS) else read
    return values


def _text(value: bytes | int) -> str | None:
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


def _texts(value: bytes | int) -> list[str] | None:
    text = _text(value)
    return None if text is None else [text]


def _number(value: bytes | int) -> int | None:
    """With its sign, which is in the highest of 64 bits."""
    if not isinstance(value, int):
        return None
    return value - (1 << 64) if value >> 63 else value


def _numbers(value: bytes | int) -> list[int]:
    """Those of a field that repeats: packed, or one."""
    return [value] if isinstance(value, int) else list(_varints(value))


_READ: dict[str, Callable[[bytes | int], Any]] = {
    _TEXT: _text,
    _BYTES: lambda value: value if isinstance(value, bytes) else None,
    _NUMBER: _number,
    _FLAG: lambda value: bool(value) if isinstance(value, int) else None,
    _TEXTS: _texts,
    _NUMBERS: _numbers,
}
"""Values of fields by how they are stored; None: they are not stored so."""


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Numbers and values of the fields of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if tag & 7 == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, position = _varint(data, position)
            if size > len(data) - position:
                raise _broken("it ends early")
            yield tag >> 3, data[position : position + size]
            position += size
        else:
            raise _broken(f"wire type {tag & 7}")


def _varints(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _broken("it ends early")
        value |= (data[position] & 127) << shift
        position += 1
        if data[position - 1] < 128:
            return value, position
    raise _broken("a number of more than ten bytes")


def _field(number: int, value: str | bytes | int) -> bytes:
    if isinstance(value, int):
        return _encoded(number << 3) + _encoded(value)
    data = value.encode() if isinstance(value, str) else value
    return _encoded(number << 3 | 2) + _encoded(len(data)) + data


def _encoded(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes((*parts, value))


def _broken(found: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"expected a message of Arrow Flight SQL, found {found}")
