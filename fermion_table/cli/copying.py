"""`fermion table copy`: copies a table with its history to another storage."""

from __future__ import annotations

import argparse
import dataclasses

from fermion.cli import Console, add_storage_options, storage_options
from fermion_table.cli.arguments import add_flag
from fermion_table.cli.printing import print_result
from fermion_table.storage.location import open_store
from fermion_table.table.copying import copy_table

HELP = "copy a table with its history to another storage, or bring such a copy up to date"
_TARGET = "target-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="directory or URL of the table")
    parser.add_argument("target", metavar="TARGET", help="directory or URL of the copy")
    add_flag(parser, "--incremental", "bring a copy up to date, or finish one that was interrupted")
    add_flag(parser, "--json", "print JSON")
    add_storage_options(parser)
    add_storage_options(parser, _TARGET)


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Copy the table and print what was copied."""
    source = open_store(arguments.path, storage_options=storage_options(arguments))
    options = storage_options(arguments, _TARGET)
    target = open_store(arguments.target, storage_options=options, what="target")
    copied = copy_table(source, target, incremental=arguments.incremental)
    result = dataclasses.asdict(copied)
    print_result(arguments, console, result, f"{arguments.target}: {copied}")
    return True
