"""What callers pass, checked by its type and named in errors; nothing is coerced.

Integers are Python's, NumPy's and Arrow's. A bool is no integer here, nor is a float with a whole
value or text with digits, as in pyarrow.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError
from fermion.layout import INT64_MAX as INT64_MAX
from fermion.layout import INT64_MIN as INT64_MIN

_Several = TypeVar("_Several", bound=Iterable[Any])
_Hashable = TypeVar("_Hashable", bound=Hashable)


def flag(value: Any, name: str) -> bool:
    """An argument that has to be True or False, of Python or NumPy.

    Raises TypeError: It is neither.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r}: expected True or False, found {type(value).__name__}")
    return bool(value)


def text(value: Any, name: str) -> str:
    """An argument that has to be text.

    Raises TypeError: It is none.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}: expected text, found {type(value).__name__}")
    return value


def several(values: _Several, name: str, expected: str) -> _Several:
    """An argument that has to be a sequence or another iterable; text, bytes and mappings are none.

    expected: What is expected, for the message: ``"a list of names"``.
    Raises TypeError: It is none.
    """
    wrong = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    if wrong or getattr(values, "ndim", 1) == 0:  # a scalar of NumPy
        raise TypeError(f"{name}={values!r}: expected {expected}, found {type(values).__name__}")
    return values


def names_like(pattern: str, names: Iterable[str]) -> list[int]:
    """The numbers of the names that a pattern stands for: ``*`` is any text, no other sign is."""
    whole = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return [number for number, name in enumerate(names) if whole.fullmatch(name)]


def first_repeated(values: Iterable[_Hashable]) -> _Hashable | None:
    """The first value that was there before; None if each is there once."""
    seen: set[_Hashable] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def mapping(value: Any, name: str) -> None:
    """Refuse an argument that is neither a mapping with names as keys nor None.

    Raises TypeError: It is neither.
    """
    if value is None or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        return
    raise TypeError(f"{name}: expected a mapping by name, found {type(value).__name__}")


def function(value: Callable[..., Any] | None, name: str) -> None:
    """Refuse an argument that is neither a function nor None.

    Raises TypeError: It is neither.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{name}={value!r}: expected a function, found {type(value).__name__}")


def integer(
    value: Any, name: str, *, minimum: int | None = None, maximum: int | None = None
) -> int:
    """An argument that has to be an integer, as Python's ``int``.

    value: What the caller passed: an ``int``, a NumPy integer, an integer scalar of Arrow, or
        anything else with ``__index__``.
    name: Of the parameter, for the message.
    minimum, maximum: Bounds, both inclusive; None: none. A number with a least value, of rows
        say, is no greater than an int64, either.
    Raises TypeError: It is no integer.
    Raises InvalidArgumentError: It is out of bounds.
    """
    if type(value) is int:
        found = value
    else:
        found = _index(value, name)
    if minimum is not None and maximum is None and found > INT64_MAX:
        maximum = INT64_MAX
    if (minimum is not None and found < minimum) or (maximum is not None and found > maximum):
        if maximum is None:
            expected = f"at least {minimum}"
        elif minimum is None:
            expected = f"at most {maximum}"
        else:
            expected = f"{minimum} to {maximum}"
        raise InvalidArgumentError(f"{name}={found}: expected {expected}")
    return found


def _index(value: Any, name: str) -> int:
    number = value
    if isinstance(value, pa.Scalar) and pat.is_integer(value.type):
        number = value.as_py()
    if not isinstance(number, (bool, np.bool_)):
        try:
            return operator.index(number)
        except TypeError:
            pass
    raise TypeError(f"{name}={value!r}: expected an integer, found {type(value).__name__}")


def integers(values: Any, name: str) -> np.ndarray:
    """An argument that has to be a sequence of integers: ``int64``, shape (n,).

    values: An integer array of NumPy or Arrow (without nulls), or any iterable of what `integer`
        takes.
    name: Of the parameter, for the message.
    Returns: May be a view of ``values``.
    Raises TypeError: It is no sequence, or something in it is no integer.
    Raises InvalidArgumentError: It has several dimensions, or a number that is no int64.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = _of_arrow(values, name)
    elif not isinstance(values, np.ndarray) and hasattr(values, "__array__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _of_array(values, name)
    several(values, name, "integers")
    found: Any = values if isinstance(values, (list, tuple, range)) else list(values)
    if set(map(type, found)) - {int}:  # a range of them is one step in C
        for at, each in enumerate(found):
            if isinstance(each, (list, tuple)) or np.ndim(each):
                raise InvalidArgumentError(f"{name}[{at}]: expected one dimension, found more")
        found = [integer(each, f"{name}[{at}]") for at, each in enumerate(found)]
    try:
        return np.array(found, np.int64)
    except OverflowError:
        raise _too_large(name) from None


def _of_arrow(values: pa.Array | pa.ChunkedArray, name: str) -> np.ndarray:
    if not pat.is_integer(values.type) and not (pat.is_null(values.type) and not len(values)):
        raise TypeError(f"{name}: expected integers, found an array of {values.type}")
    if values.null_count:
        raise InvalidArgumentError(f"{name}: expected integers, found {values.null_count} nulls")
    if pat.is_null(values.type):
        return np.zeros(0, np.int64)
    found: np.ndarray = values.to_numpy()
    return found


def _of_array(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, found an array of {values.dtype}")
    if values.ndim != 1:
        raise InvalidArgumentError(f"{name}: expected one dimension, found {values.ndim}")
    if values.dtype == np.uint64 and len(values) and values.max() > INT64_MAX:
        raise _too_large(name)
    return values.astype(np.int64, copy=False)


def _too_large(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name}: expected integers from {INT64_MIN} to {INT64_MAX}")


def plain_path(location: str | os.PathLike[str]) -> str | None:
    """The local path of a location, ``~`` expanded, if no part of it can be a URL; else None.

    Only what may be a URL is taken apart by `fermion.io.remote`, which looks for credentials.
    """
    text = os.fspath(location)
    is_plain = not any(mark in text for mark in ("://", "::", "@", "%40"))
    return os.path.expanduser(text) if is_plain else None


def with_method(given: Any, name: str, method: str) -> None:
    """Refuse an object without a method; None is none.

    Raises TypeError.
    """
    if given is not None and not callable(getattr(given, method, None)):
        raise TypeError(f"{name}: expected an object with {method}(), found {type(given).__name__}")
