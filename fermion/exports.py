"""A package's exported names, each loaded from its module when it is first asked for (PEP 562).

So ``import fermion`` costs next to nothing, and a program that only reads never loads the writer,
the converter or the file systems.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def load_when_asked_for(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The module-level ``__getattr__`` of a package.

    Parameters
    ----------
    package
        The package's dotted name.
    homes
        Exported name to ``"module"``, or ``"module:name"`` where the name there is another one;
        modules relative to the package.

    Returns
    -------
    callable
        Takes a name that the package does not hold yet; gives the exported object, or the
        submodule of that name, and keeps it in the package.
    """

    def find(name: str) -> Any:
        if name not in homes:
            return _submodule(package, name)
        module, _, original = homes[name].partition(":")
        found = getattr(importlib.import_module(f"{package}.{module}"), original or name)
        setattr(importlib.import_module(package), name, found)
        return found

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
