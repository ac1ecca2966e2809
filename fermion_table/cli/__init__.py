"""The command `fermion table`, found by the program `fermion` through an entry point."""

from fermion_table.cli.program import HELP, configure, run

__all__ = ["HELP", "configure", "run"]
