"""The version of this distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fermion")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

CREATED_BY = f"fermion {__version__}"
