"""``pyarrow.compute``, without loading it for the functions that a filter needs.

It builds some three hundred functions at import, which takes about as long as loading the whole
reader. Arrow's own registry has those that take no options.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Any:
    found = globals()[name] = _of_registry(name) or _of_module(name)
    return found


def _of_module(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def _of_registry(name: str) -> Callable[..., Any] | None:
    """A function of values alone; None if it is none, or the module is loaded anyhow."""
    if name.startswith("_") or "pyarrow.compute" in sys.modules:
        return None
    try:
        from pyarrow._compute import Expression, get_function

        function = get_function(name)
        if function._doc.options_class:
            return None
    except (ImportError, AttributeError, KeyError):  # another version of pyarrow
        return None

    def call(*values: Any, **options: Any) -> Any:
        if options or isinstance(values[0], Expression):
            return _of_module(name)(*values, **options)
        return function.call(values, None, None)

    return call


def filtered(values: Any, mask: Any) -> Any:
    """The values, or the rows, at which a mask is true; as their method ``filter``."""
    return _called("filter", values, mask)


def taken(values: Any, indices: Any) -> Any:
    """The values, or the rows, with some numbers; as their method ``take``."""
    return _called("take", values, indices)


def _called(method: str, values: Any, argument: Any) -> Any:
    """What a method gives that would load the module."""
    if "pyarrow.compute" in sys.modules:
        return getattr(values, method)(argument)
    try:
        from pyarrow._compute import call_function
    except ImportError:  # another version of pyarrow
        return getattr(values, method)(argument)
    return call_function(method, [values, argument])
