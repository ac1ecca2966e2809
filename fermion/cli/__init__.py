"""The command line: `fermion inspect`, `schema`, `head`, `verify`, `convert` and others."""

from fermion.cli.program import main

__all__ = ["main"]
