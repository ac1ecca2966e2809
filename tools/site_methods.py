"""An extension of griffe, which reads the docstrings for the site.

`Table` takes its methods from the modules of its folder: ``append = appending.append``. The
reference shows them as methods, not as attributes without a text.
"""

from __future__ import annotations

import copy
from typing import Any

import griffe


class Methods(griffe.Extension):
    """Replaces attributes of classes that are functions of modules by these functions."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change the classes of a package that was read."""
        self._change(pkg, loader)

    def _change(self, owner: griffe.Module | griffe.Class, loader: griffe.GriffeLoader) -> None:
        for name, member in list(owner.members.items()):
            if member.is_alias:
                continue
            if isinstance(member, griffe.Module | griffe.Class):
                self._change(member, loader)
            elif isinstance(owner, griffe.Class) and isinstance(member, griffe.Attribute):
                function = _function(member, loader)
                if function is not None:
                    method = copy.copy(function)
                    method.name, method.parent = name, owner
                    owner.members[name] = method


def _function(attribute: griffe.Attribute, loader: griffe.GriffeLoader) -> griffe.Function | None:
    """The function that an attribute names as ``module.function``."""
    if not isinstance(attribute.value, griffe.ExprAttribute):
        return None
    try:
        found = loader.modules_collection[attribute.value.canonical_path]
    except (KeyError, griffe.AliasResolutionError):
        return None  # an attribute of something else than a module that was read
    return found if isinstance(found, griffe.Function) else None
