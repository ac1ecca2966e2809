"""Checks of the arguments that go into metadata: texts, names and settings.

What is stored must be what the caller gave, and what a reader takes back: nothing is converted
silently, and what JSON can't hold is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from fermion.arguments import several
from fermion.engine import VariantValue
from fermion.errors import InvalidArgumentError

_Kind = TypeVar("_Kind")

IDENTIFIER_RANGE = range(-(2**63), 2**63)
"""What a whole number in metadata can be."""


def check_text(value: Any, parameter: str) -> str:
    """A text that JSON can hold.

    Raises TypeError: Not a text.
    Raises InvalidArgumentError: It holds a lone surrogate, which UTF-8 has no bytes for.
    """
    if not isinstance(value, str):
        raise TypeError(f"{parameter}: expected text, found {described(value)}")
    text = value if type(value) is str else str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{parameter}: expected Unicode text: {error}") from None
    return text


def check_optional_text(value: Any, parameter: str) -> str | None:
    """A text that JSON can hold, or None; raises as `check_text`."""
    return None if value is None else check_text(value, parameter)


def check_text_map(value: Any, parameter: str) -> dict[str, str]:
    """Texts by name; a copy. None is none of them. Raises as `check_text`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{parameter}: expected a mapping of texts, found {described(value)}")
    return {
        check_text(key, f"a key of {parameter}"): check_text(each, f"{parameter}[{key!r}]")
        for key, each in value.items()
    }


def check_texts(value: Any, parameter: str) -> tuple[str, ...]:
    """Several texts; a single one is none of them. Raises as `check_text`."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{parameter}: expected a list of texts, found {described(value)}")
    return tuple(check_text(each, f"an item of {parameter}") for each in value)


def check_identifier(value: Any, parameter: str) -> int | str | None:
    """A text, a whole number of 64 bits, or None.

    Raises TypeError: Something else, such as a bool.
    Raises InvalidArgumentError: A greater number, or a text that JSON can't hold.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return check_text(value, parameter)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{parameter}: expected a whole number or text, found {described(value)}")
    number = int(value)
    if number not in IDENTIFIER_RANGE:
        raise InvalidArgumentError(f"{parameter}: expected a number of 64 bits, found {number}")
    return number


def check_bool(value: Any, parameter: str) -> bool:
    """True or False.

    Raises TypeError: Something else.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{parameter}: expected True or False, found {described(value)}")
    return bool(value)


def check_columns(value: Any, parameter: str) -> tuple[str | tuple[str, ...], ...]:
    """Columns by name or path, and parts of Variant columns; one name alone is no list of them.

    Raises InvalidArgumentError: One name alone.
    Raises TypeError: No list, or something in it is neither text nor a sequence of texts.
    """
    if isinstance(value, str):
        raise InvalidArgumentError(f"{parameter}={value!r}: expected a list of names")
    listed = several(value, parameter, "a list of names")
    item = f"an item of {parameter}"
    texts = (each.to_sql() if isinstance(each, VariantValue) else each for each in listed)
    return tuple(each if isinstance(each, str) else check_texts(each, item) for each in texts)


def check_column(value: Any, parameter: str) -> str | tuple[str, ...]:
    """A column by name or path; raises as `check_text`."""
    return value if isinstance(value, str) else check_texts(value, parameter)


def check_schema_mode(value: Any) -> Literal["merge"] | None:
    """How an append treats columns that the table lacks: ``merge`` adds them, None refuses them.

    Raises InvalidArgumentError: Something else.
    """
    if value is not None and not (isinstance(value, str) and value == "merge"):
        raise InvalidArgumentError(f"schema_mode={value!r}: expected None or 'merge'")
    return None if value is None else "merge"


def check_kind(value: Any, kind: type[_Kind], parameter: str) -> _Kind:
    """An object of a class.

    Raises TypeError: Of another one.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{parameter}: expected a {kind.__name__}, found {described(value)}")
    return value


def check_kinds(values: Any, kind: type[_Kind], parameter: str) -> list[_Kind]:
    """Objects of a class; raises as `check_kind`, before anything is done with the first."""
    listed = list(several(values, parameter, f"a list of {kind.__name__} objects"))
    return [check_kind(each, kind, f"an item of {parameter}") for each in listed]


def described(value: Any) -> str:
    """A value for a message: its type, and what it is, cut short."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '...'}"
