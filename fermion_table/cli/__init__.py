"""The command `fermion table`, found by the program `fermion` through an entry point."""

from fermion_table.cli.arguments import age_or_time
from fermion_table.cli.program import HELP, configure, run

__all__ = ["HELP", "age_or_time", "configure", "run"]
