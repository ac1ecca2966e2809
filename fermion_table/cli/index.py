"""`fermion table index`: lists secondary indexes, makes or rebuilds one, or drops one."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import pyarrow as pa

from fermion.cli import Console
from fermion.errors import InvalidArgumentError
from fermion_table.cli.arguments import add_flag, add_table, open_table
from fermion_table.cli.printing import print_answer, print_result

HELP = "show, create, rebuild or drop secondary indexes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("column", nargs="?", metavar="COLUMN", help="column to index, or with one")
    parser.add_argument("--kind", metavar="KIND", help="of a new index (default: btree)")
    instead = parser.add_mutually_exclusive_group()
    add_flag(instead, "--drop", "drop the index of the column")
    add_flag(instead, "--rebuild", "make the index files that are missing, of the column or of all")
    add_flag(parser, "--full", "with --rebuild: make all files anew")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print or change the indexes."""
    name = arguments.column
    changes = arguments.drop or arguments.rebuild
    if name is None and (arguments.drop or arguments.kind):
        raise InvalidArgumentError("index: expected a column")
    if (arguments.kind and changes) or (arguments.full and not arguments.rebuild):
        raise InvalidArgumentError("index: expected --kind for a new index, --full with --rebuild")
    indexes = open_table(arguments).indexes
    if arguments.drop:
        indexes.drop(name)
        print_result(arguments, console, {"dropped": name}, f"dropped the index of {name}")
        return True
    if arguments.rebuild:
        shown = list(indexes.rebuild(name, full=arguments.full))
    elif name is None:
        shown = indexes.list()
    else:
        shown = [indexes.create(name, arguments.kind or "btree")]
    rows = pa.Table.from_pylist([asdict(each) for each in shown])
    print_answer(arguments, console, rows, none="no indexes")
    return True
