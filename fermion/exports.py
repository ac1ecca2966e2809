"""A package's exported names, each loaded from its module when it is first asked for (PEP 562).

So ``import fermion`` costs next to nothing, and a program that only reads never loads the writer,
the converter or the file systems.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def load_when_asked_for(
    package: str,
    names: Mapping[str, Sequence[str]],
    *,
    into: str | None = None,
    moved_to_engine: bool = False,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, or of a module that exports names.

    names: Module, relative to the package, to the names that it has.
    into: Dotted name of the module that exports the names; the package itself by default.
    moved_to_engine: Whether names of the package's module ``engine`` are found here too, with a
        `DeprecationWarning` that says where they are.
    Returns: Names; what takes a name that the module does not hold yet, and gives the exported
        object, or the package's submodule of that name, and keeps it in the module; what lists the
        names.
    """
    exporting = into or package
    homes = {name: module for module, listed in names.items() for name in listed}

    def find(name: str) -> Any:
        if name not in homes:
            engine = importlib.import_module(f"{package}.engine") if moved_to_engine else None
            if engine is None or name not in engine.__all__:
                return _submodule(exporting, name)
            place = engine.__name__
            warnings.warn(
                f"{package}.{name} is now {place}.{name}; the old name goes with the next version",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(engine, name)
        exported = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(importlib.import_module(exporting), name, exported)
        return exported

    exported_names = list(homes)
    return exported_names, find, exported_names.copy


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
