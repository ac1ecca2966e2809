"""Public functions and methods by introspection, and wrong values for each of their parameters."""

from __future__ import annotations

import contextlib
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fermion import FermionError

VALUES: dict[str, Any] = {
    "None": None,
    "number": 5,
    "text": "5",
    "fraction": 1.5,
    "NaN": float("nan"),
    "bytes": b"5",
    "NumPy integer": np.int64(5),
    "NumPy float": np.float64(1.5),
    "NumPy NaN": np.float32("nan"),
    "NumPy text": np.str_("5"),
    "NumPy bool": np.bool_(True),
    "NumPy time": np.datetime64("2020-01-01"),
    "list of fractions": [1.5],
    "mapping of numbers": {5: 1.5},
    "object": object(),
}
"""Each is wrong for a parameter unless the parameter's annotation takes it."""

INTEGERS = frozenset({"number", "NumPy integer"})
NUMBERS = INTEGERS | {"fraction", "NumPy float"}
TEXTS = frozenset({"text", "NumPy text"})
EVERYTHING = frozenset(VALUES)
TAKEN: dict[str, frozenset[str]] = {
    "None": frozenset({"None"}),
    "bool": frozenset({"NumPy bool"}),
    "int": INTEGERS,
    "float": NUMBERS,
    "str": TEXTS,
    "bytes": frozenset({"bytes"}),
    "ColumnName": TEXTS | INTEGERS,
    "Location": TEXTS,
    "Name": TEXTS,
    "PartitionBy": TEXTS,
    "PathLike": TEXTS,
    "ShowsProgress": frozenset({"None", "NumPy bool"}),
    "Path": TEXTS,
    "Version": TEXTS | INTEGERS | {"NumPy time"},
    "Written": TEXTS,
    "history.Version": TEXTS | INTEGERS | {"NumPy time"},
    "Moment": TEXTS | NUMBERS | {"NumPy time"},
    "datetime": frozenset({"NumPy time"}),
}
"""By the name of a type in an annotation; what is not here takes none of the values.

A literal, such as ``Literal["merge"]``, takes none of them either: text is legal there by its type,
but not by its value.
"""

Untyped = dict[str, frozenset[str]]
"""The values that ``Any`` takes, by the name of the parameter, and those that a parameter takes
whatever its annotation says, by ``function.parameter``."""


@dataclass(frozen=True)
class Case:
    """A valid call.

    Attributes
    ----------
    call
        The function or bound method.
    arguments
        Its valid arguments; every parameter of the function that has no entry is a mistake.
    state
        What has to stay the same beside the files: what objects in memory answer.
    """

    call: Callable[..., Any]
    arguments: dict[str, Any]
    state: Callable[[], Any] = lambda: None


def public_callables(package: types.ModuleType, also: Iterable[type] = ()) -> Iterator[str]:
    """The names of what takes arguments: functions, classes, ``Class.method``.

    Parameters
    ----------
    also
        Classes whose methods are reached through what the package exports.
    """
    exported = [(name, getattr(package, name)) for name in package.__all__]
    for name, found in [*exported, *((each.__name__, each) for each in also)]:
        if inspect.isfunction(found) and _parameters(found):
            yield name
        if not inspect.isclass(found) or issubclass(found, (Exception, Warning)):
            continue
        if (name, found) in exported:
            yield name
        inspect.getmembers(found)  # methods whose modules are loaded when they are asked for
        for method, member in inspect.getmembers_static(found):
            bound = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if method.startswith("_") or not inspect.isfunction(bound):
                continue
            if _parameters(bound).keys() - {"self", "cls"}:
                yield f"{name}.{method}"


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def taken(call: str, parameter: inspect.Parameter, untyped: Untyped) -> frozenset[str]:
    """The names of the values that a parameter of a function takes, by its annotation."""
    own = f"{call}.{parameter.name}"
    if own in untyped:
        return untyped[own]
    found: frozenset[str] = frozenset()
    flat = re.sub(r"\[[^\[\]]*(\[[^\]]*\][^\[\]]*)*\]", "", str(parameter.annotation))
    for kind in flat.split("|"):
        name = kind.strip()
        found |= untyped[parameter.name] if name == "Any" else TAKEN.get(name, frozenset())
    return found


def findings(call: str, case: Case, directory: Path, untyped: Untyped) -> list[str]:
    """What is wrong, in words, with the answers to wrong values of each parameter.

    Parameters
    ----------
    call
        The name of the function.
    directory
        Whose files have to stay as they are.
    """
    found, parameters = [], _parameters(case.call)
    before = contents(directory), case.state()
    for name in case.arguments.keys() - parameters.keys():
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            found.append(f"{name}: a case names it, but there is no such parameter")
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            calls = [("an option that nobody knows", {"no_such_option": 5})]
            name = "no_such_option"
        else:
            if name not in case.arguments:
                found.append(f"{name}: the case has no valid value for it")
                continue
            legal = taken(call, parameter, untyped)
            calls = [(kind, {name: VALUES[kind]}) for kind in VALUES if kind not in legal]
        for kind, wrong in calls:
            said = _answer(case, {**case.arguments, **wrong}, name)
            if said:
                found.append(f"{name}={kind}: {said}")
            after = contents(directory), case.state()
            if after != before:
                found.append(f"{name}={kind}: something changed")
            before = after
    return found


def _answer(case: Case, arguments: dict[str, Any], name: str) -> str | None:
    try:
        result = called(case.call, arguments)
    except (FermionError, TypeError, ValueError) as error:
        if re.search(rf"\b{name}\b", str(error)):
            return None
        return f"the message does not name it: {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - whatever else is raised is a finding
        return f"raised {type(error).__name__}: {error}"
    for release in ("abort", "close"):
        with contextlib.suppress(Exception):
            getattr(result, release)()
    return f"was taken: {type(result).__name__}"


def called(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call with arguments by name, and those without a name as such."""
    several = [name for name, each in _parameters(call).items() if each.kind is each.VAR_POSITIONAL]
    named = {name: value for name, value in arguments.items() if name not in several}
    return call(*(arguments[name] for name in several), **named)


def as_numpy(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with integers, texts and flags of NumPy."""
    return {name: _of_numpy(value) for name, value in arguments.items()}


def _of_numpy(value: Any) -> Any:
    kinds = {int: np.int64, str: np.str_, bool: np.bool_}
    return kinds[type(value)](value) if type(value) in kinds else value


def contents(directory: Path) -> dict[str, bytes | None]:
    """Every file below with its bytes, and every directory."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }
