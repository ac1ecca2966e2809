"""A package's exported names, each loaded from its module when it is first asked for (PEP 562).

So ``import fermion`` costs next to nothing, and a program that only reads never loads the writer,
the converter or the file systems.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any


def load_when_asked_for(
    package: str,
    homes: Mapping[str, str],
    *,
    into: str | None = None,
    moved_to_engine: Collection[str] = (),
) -> Callable[[str], Any]:
    """The module-level ``__getattr__`` of a package, or of a module of it that exports names.

    homes: Exported name to ``"module"``, or ``"module:name"`` where the name there is another one;
        modules relative to the package.
    into: Dotted name of the module that exports the names; the package itself by default.
    moved_to_engine: Names that the package exported once, and its module ``engine`` exports now.
        They are found with a `DeprecationWarning` that says so.
    Returns: Takes a name that the module does not hold yet; gives the exported object, or the
        package's submodule of that name, and keeps it in the module.
    """
    exporting = into or package

    def find(name: str) -> Any:
        if name in moved_to_engine:
            place = f"{package}.engine"
            warnings.warn(
                f"{package}.{name} is now {place}.{name}; the old name goes with the next version",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(importlib.import_module(place), name)
        if name not in homes:
            return _submodule(exporting, name)
        module, _, original = homes[name].partition(":")
        exported = getattr(importlib.import_module(f"{package}.{module}"), original or name)
        setattr(importlib.import_module(exporting), name, exported)
        return exported

    return find


def _submodule(package: str, name: str) -> Any:
    """``fermion.errors`` works without an import of its own, as if everything were loaded."""
    dotted = f"{package}.{name}"
    if not name.startswith("_"):
        try:
            return importlib.import_module(dotted)
        except ModuleNotFoundError as error:
            if error.name != dotted:
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)


class LoadedWhenAskedFor:
    """A module that is loaded when the first of its names is asked for.

    For what a program may never do: ``clone = LoadedWhenAskedFor("fermion_table.commit.clone")``.
    Type checkers and import contracts see the import beside it, under ``TYPE_CHECKING``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


class MethodsWhenAskedFor:
    """Functions of a module as methods of a class; each loads the module when it is asked for.

    In the body of the class ``append = appending.append`` stands as if ``appending`` were the
    module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return _Method(self._name, name)


class _Method:
    """Stands for a method in its class until it is asked for."""

    def __init__(self, module: str, function: str) -> None:
        self._module, self._function = module, function

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        function = getattr(importlib.import_module(self._module), self._function)
        setattr(self._owner, self._name, function)
        return function.__get__(instance, owner)
