"""`fermion table import-paimon`: a table of Apache Paimon with its history."""

from __future__ import annotations

import argparse

from fermion.cli import Console, add_storage_options, counted, storage_options
from fermion_table.cli.arguments import add_flag, add_repeated
from fermion_table.paimon.definitions import LEFT_OUT
from fermion_table.paimon.importing import from_paimon

HELP = "import a table of Apache Paimon with its history, or what is new in it"
_SOURCE = "source-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="SOURCE", help="directory or URL of the Paimon table")
    parser.add_argument("path", metavar="PATH", help="directory or URL of the table")
    help_ = "import without this option of Paimon's, which has no counterpart"
    add_repeated(parser, "--leave-out", "OPTION", help_)
    add_flag(parser, "--json", "print JSON")
    add_storage_options(parser, _SOURCE)
    add_storage_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Import what is new and print what there is."""
    table = from_paimon(
        arguments.source,
        arguments.path,
        leave_out=arguments.leave_out or (),
        source_options=storage_options(arguments, _SOURCE),
        storage_options=storage_options(arguments),
    )
    snapshot, tags = table.snapshot, len(table.tags.list())
    left_out = table.properties.get(LEFT_OUT)
    if arguments.json:
        facts = {"snapshot_id": snapshot.id, "rows": snapshot.totals.rows, "tags": tags}
        console.print_json(facts | {"left_out": left_out.split(", ") if left_out else []})
        return True
    stored = f"the table stores {counted(snapshot.totals.rows, 'row')}, {counted(tags, 'tag')}"
    console.print(f"snapshot {snapshot.id}: {stored}")
    if left_out:
        console.print(f"left out: {left_out}")
    return True
