"""`fermion catalog`: the commands for the tables of a warehouse."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fermion
from fermion.cli import Console, add_storage_options, storage_options
from fermion.errors import InvalidArgumentError
from fermion_table.catalog.catalog import Catalog
from fermion_table.cli.arguments import add_flag, add_repeated, named_values
from fermion_table.cli.printing import json_ready, print_result
from fermion_table.table.table import Table

HELP = "list, create, drop, rename, snapshot and repair the tables of a warehouse"
FOUND_PROBLEM = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    commands = parser.add_subparsers(dest="catalog_command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("warehouse", metavar="WAREHOUSE", help="directory or URL")
        add_flag(added, "--json", "print JSON")
        add_storage_options(added)
        return added

    listing = command("list", "show the names of tables")
    listing.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="only tables in it")
    listing.add_argument("--pattern", metavar="TEXT", help="what the name is like, with * and ?")
    add_flag(listing, "--namespaces", "show namespaces instead")
    creation = command("create", "create a table without rows, or register one that exists")
    creation.add_argument("name", metavar="NAME", help="such as db.events")
    source = creation.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--like", metavar="FILE", help="Fermion or Parquet file, or table, with the columns"
    )
    source.add_argument("--register", metavar="PATH", help="name the table that is there")
    add_repeated(creation, "--primary-key", "COLUMN", "a column that identifies rows")
    add_repeated(creation, "--partition-by", "TEXT", 'a column, or a function such as "day(at)"')
    add_repeated(creation, "--property", "NAME=VALUE", "a setting")
    drop = command("drop", "drop a table; its files stay, unless --purge is given")
    drop.add_argument("name", metavar="NAME", help="of the table")
    add_flag(drop, "--purge", "delete the files of the table")
    rename = command("rename", "give a table another name")
    rename.add_argument("name", metavar="OLD", help="the name that the table has")
    rename.add_argument("new", metavar="NEW", help="the name that it gets")
    snapshot = command("snapshot", "show, create or delete snapshots of many tables")
    snapshot.add_argument("name", nargs="?", metavar="NAME", help="of the snapshot")
    add_repeated(snapshot, "--table", "NAME", "only this table")
    snapshot.add_argument("--message", "-m", metavar="TEXT", help="description")
    add_flag(snapshot, "--delete", "delete the snapshot")
    repair = command("repair", "make the list of tables true again")
    add_flag(repair, "--dry-run", "only print what would be done")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run a command; the exit status: 0, or 1 if it found a problem."""
    catalog = Catalog.open(arguments.warehouse, storage_options=storage_options(arguments))
    ok = _COMMANDS[arguments.catalog_command](catalog, arguments, console)
    return 0 if ok else FOUND_PROBLEM


def _list(catalog: Catalog, arguments: argparse.Namespace, console: Console) -> bool:
    if arguments.namespaces and (arguments.namespace or arguments.pattern):
        raise InvalidArgumentError("list: expected --namespaces alone")
    if arguments.namespaces:
        found = catalog.namespaces()
    else:
        found = catalog.tables(arguments.namespace, pattern=arguments.pattern)
    if arguments.json:
        console.print_json(found)
    else:
        for name in found:
            console.print(name)
    return True


def _create(catalog: Catalog, arguments: argparse.Namespace, console: Console) -> bool:
    if arguments.register is not None:
        if arguments.primary_key or arguments.partition_by or arguments.property:
            raise InvalidArgumentError("create: expected --register without options of a new table")
        table = catalog.register_table(arguments.name, arguments.register)
    else:
        properties = named_values(arguments.property, "--property")
        table = catalog.create_table(
            arguments.name,
            _columns(arguments.like, storage_options(arguments)),
            primary_key=arguments.primary_key,
            partition_by=arguments.partition_by,
            properties=properties,
        )
    print_result(
        arguments,
        console,
        {"name": arguments.name, "location": table.location},
        f"{arguments.name}: {table.location}",
    )
    return True


def _drop(catalog: Catalog, arguments: argparse.Namespace, console: Console) -> bool:
    dropped = catalog.drop_table(arguments.name, purge=arguments.purge)
    line = f"dropped {arguments.name}"
    result: dict[str, Any] = {"dropped": arguments.name}
    if dropped is not None:
        result |= {"files": dropped.files, "bytes": dropped.bytes, "left": list(dropped.left)}
        line += f", deleted {dropped.files:,} files ({dropped.bytes:,} bytes)"
    print_result(arguments, console, result, line)
    return True


def _rename(catalog: Catalog, arguments: argparse.Namespace, console: Console) -> bool:
    catalog.rename_table(arguments.name, arguments.new)
    result = {"old": arguments.name, "new": arguments.new}
    print_result(arguments, console, result, f"{arguments.name} is now {arguments.new}")
    return True


def _snapshot(catalog: Catalog, arguments: argparse.Namespace, console: Console) -> bool:
    name = arguments.name
    if name is None:
        if arguments.delete or arguments.table or arguments.message:
            raise InvalidArgumentError("snapshot: expected a name")
        kept = catalog.snapshots.list()
        lines = [
            f"{each.name}: {each.table_count:,} tables, {each.created:%Y-%m-%d %H:%M}"
            + (f", {each.state}" if each.state != "ready" else "")
            + (f", {each.message}" if each.message else "")
            for each in kept
        ]
        result = [json_ready(dataclasses.asdict(each)) for each in kept]
        print_result(arguments, console, result, "\n".join(lines) or "no snapshots")
        return True
    if arguments.delete:
        if arguments.table or arguments.message:
            raise InvalidArgumentError("snapshot: expected --delete without --table and --message")
        catalog.snapshots.delete(name)
        print_result(arguments, console, {"deleted": name}, f"deleted snapshot {name}")
        return True
    made = catalog.snapshots.create(name, arguments.table, message=arguments.message)
    result = json_ready(dataclasses.asdict(made))
    print_result(arguments, console, result, f"snapshot {name}: {made.table_count:,} tables")
    return True


def _repair(catalog: Catalog, arguments: argparse.Namespace, console: Console) -> bool:
    done = catalog.repair(dry_run=arguments.dry_run)
    print_result(arguments, console, dataclasses.asdict(done), str(done))
    return done.ok


def _columns(like: str, options: dict[str, Any] | None) -> pa.Schema:
    """The columns of a file or a table."""
    suffix = Path(like).suffix
    if suffix == ".parquet":
        return pq.read_schema(like)
    if suffix == ".fermion":
        with fermion.open(like, storage_options=options) as file:
            return file.schema
    return Table.open(like, storage_options=options).schema.to_arrow(field_ids=False)


_COMMANDS: dict[str, Callable[[Catalog, argparse.Namespace, Console], bool]] = {
    "list": _list,
    "create": _create,
    "drop": _drop,
    "rename": _rename,
    "snapshot": _snapshot,
    "repair": _repair,
}
