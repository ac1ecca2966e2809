"""The version of this distribution: ``__version__``, looked up when it is first asked for."""

from __future__ import annotations

from functools import cache


@cache
def created_by() -> str:
    """What a file's footer names as its writer."""
    return f"fermion {_installed_version()}"


def __getattr__(name: str) -> str:
    if name == "__version__":
        return _installed_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


@cache
def _installed_version() -> str:
    # It brings the email parser along, which takes longer to load than a small file to read.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fermion")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
