"""Rows of Flink as JSON: what runs in Flink's environment writes them, and tests read them back.

Both environments import this module, so it imports nothing but Python's own library.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

_TO_TEXT = {
    Decimal: str,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    bytes: lambda value: base64.b64encode(value).decode(),
}
_FROM_TEXT = {
    "Decimal": Decimal,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "bytes": base64.b64decode,
}


def encoded(value: Any) -> str:
    """A value of Flink in one line of JSON; a row is a list, a map a list of pairs."""
    return json.dumps(_plain(value))


def decoded(line: str) -> Any:
    """The value; rows are tuples, maps are dicts."""
    return json.loads(line, object_hook=_value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytearray):
        value = bytes(value)
    if type(value) in _TO_TEXT:
        return {"type": type(value).__name__, "text": _TO_TEXT[type(value)](value)}
    if isinstance(value, dict):
        return {
            "type": "dict",
            "pairs": [[_plain(each) for each in pair] for pair in value.items()],
        }
    if hasattr(value, "get_row_kind"):  # a row of PyFlink
        return {"type": "row", "values": [_plain(each) for each in value]}
    return [_plain(each) for each in value]


def _value(found: dict[str, Any]) -> Any:
    match found["type"]:
        case "dict":
            return dict(found["pairs"])
        case "row":
            return tuple(found["values"])
        case name:
            return _FROM_TEXT[name](found["text"])
