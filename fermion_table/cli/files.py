"""`fermion table files`: the data files of a snapshot."""

from __future__ import annotations

import argparse

from fermion.cli import Console, counted, rows_json
from fermion_table.cli.arguments import add_flag, add_table, add_version, open_table
from fermion_table.cli.printing import print_rows

HELP = "show the data files"
FILES_SHOWN = 50
PATH_LENGTH = 100
SHOWN = ("path", "rows", "rows_deleted", "bytes", "added_snapshot", "source")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_version(parser)
    add_flag(parser, "--all", f"show more than the first {FILES_SHOWN} files")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Print the files."""
    files = open_table(arguments).inspect.files()
    if arguments.json:
        console.print_json(rows_json(files))
        return True
    shown = files.num_rows if arguments.all else FILES_SHOWN
    if files.num_rows:
        table = files.select(SHOWN).slice(0, shown)
        print_rows(console, table, whole=True, cell_length=PATH_LENGTH)
    if files.num_rows > shown:
        console.print(f"... and {counted(files.num_rows - shown, 'more file')} (--all shows them)")
    if not files.num_rows:
        console.print("no files")
    return True
