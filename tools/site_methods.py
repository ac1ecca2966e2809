"""An extension of griffe, which reads the docstrings for the site.

`Table` takes its methods from the modules of its folder: ``append = appending.append``. The
reference shows them as methods, not as attributes without a text.

Where a docstring explains several parameters at once (``commit_user, commit_identifier``), griffe
gives all of them the type of the first. So each gets an entry of its own, with the same text.

Classes of our own decorator of dataclasses get the parameters of those of the standard library.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import griffe

SEVERAL = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)+)$\n?((?: {4}.*\n?|\n(?= {4}))*)", re.M)
SECTION = re.compile(r"^\w[\w ]*\n-{3,}$", re.M)


class Methods(griffe.Extension):
    """Makes functions of modules methods of classes, and gives each parameter its own entry."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change the classes of a package that was read."""
        self._change(pkg, loader)

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Give each parameter of a docstring an entry of its own."""
        if obj.docstring is not None:
            text = obj.docstring.value
            found = SECTION.search(text)
            start = found.start() if found else len(text)
            obj.docstring.value = text[:start] + SEVERAL.sub(_each_alone, text[start:])

    def _change(self, owner: griffe.Module | griffe.Class, loader: griffe.GriffeLoader) -> None:
        for name, member in list(owner.members.items()):
            if member.is_alias:
                if member.target_path == "fermion.exports.dataclass":
                    member.target_path = "dataclasses.dataclass"  # which griffe knows
                continue
            if isinstance(member, griffe.Module | griffe.Class):
                self._change(member, loader)
            elif isinstance(owner, griffe.Class) and isinstance(member, griffe.Attribute):
                function = _function(member, loader)
                if function is not None:
                    method = copy.copy(function)
                    method.name, method.parent = name, owner
                    owner.members[name] = method


def _each_alone(entry: re.Match[str]) -> str:
    """An entry for several names as one for each."""
    text = entry[2] if entry[2].endswith("\n") or not entry[2] else entry[2] + "\n"
    return "".join(f"{name}\n{text}" for name in entry[1].split(", "))


def _function(attribute: griffe.Attribute, loader: griffe.GriffeLoader) -> griffe.Function | None:
    """The function that an attribute names as ``module.function``."""
    if not isinstance(attribute.value, griffe.ExprAttribute):
        return None
    try:
        found = loader.modules_collection[attribute.value.canonical_path]
    except (KeyError, griffe.AliasResolutionError):
        return None  # an attribute of something else than a module that was read
    return found if isinstance(found, griffe.Function) else None
