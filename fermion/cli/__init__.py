"""The command line: `fermion inspect`, `schema`, `head`, `stats`, `verify`, `convert`."""

from fermion.cli.program import main

__all__ = ["main"]
