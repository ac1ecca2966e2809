"""`fermion table verify`: checks the history, and with --data every byte."""

from __future__ import annotations

import argparse
import dataclasses

from fermion.cli import Console
from fermion_table.checks.data_files import verify_table
from fermion_table.cli.arguments import add_flag, add_table
from fermion_table.cli.printing import print_lines
from fermion_table.metadata.references import load_branch, missing_name
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import MAIN

HELP = "check the history and all files it refers to; exit status 1 if there is a problem"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_flag(parser, "--data", "also read data files: checksums, ids and rows")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Verify a table; whether it is OK."""
    store = open_store(arguments.path)  # the table need not open
    if arguments.branch != MAIN and load_branch(store, arguments.branch) is None:
        raise missing_name(store, "branch", arguments.branch)
    report = verify_table(store, data=arguments.data)
    if arguments.json:
        console.print_json({**dataclasses.asdict(report), "ok": report.ok})
    else:
        print_lines(console, str(report))
    return report.ok
