"""`fermion table mirror`: publishes mirrors for other engines; makes, lists or forgets one."""

from __future__ import annotations

import argparse
import dataclasses
import threading
from typing import Any

from fermion.cli import Console
from fermion.display import counted
from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.cli.arguments import (
    add_flag,
    add_repeated,
    add_table,
    add_watch,
    every,
    interval,
    named_values,
    open_table,
)
from fermion_table.mirrors.publish import Publication
from fermion_table.mirrors.registry import Mirrors

HELP = "publish a table as Delta, Iceberg or Paimon tables, for other engines"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    parser.add_argument("--name", metavar="NAME", help="this mirror (default: all of the branch)")
    what = parser.add_mutually_exclusive_group()
    add_flag(what, "--list", "print the mirrors, and publish nothing")
    add_flag(what, "--drop", "forget the mirror; its files stay")
    what.add_argument(
        "--create",
        nargs=2,
        metavar=("KIND", "LOCATION"),
        help="make a mirror, such as: delta /lake/sales; then publish it",
    )
    add_flag(
        parser, "--history", "with --create: begin with the oldest snapshot (default: the newest)"
    )
    help_ = "with --create: of the kind, such as catalog=prod"
    add_repeated(parser, "--option", "NAME=VALUE", help_)
    add_watch(parser, "10s")


def run(arguments: argparse.Namespace, console: Console) -> bool:
    """Publish mirrors, or change the list of them; whether the last round was without failures."""
    if arguments.create is None and (arguments.history or arguments.option):
        raise InvalidArgumentError("--history, --option: are for --create")
    wait = interval(arguments)
    mirrors = open_table(arguments).mirrors
    if arguments.list or arguments.drop:
        if arguments.drop:
            if arguments.name is None:
                raise InvalidArgumentError("--drop: expected --name NAME")
            mirrors.drop(arguments.name)
        _print_list(mirrors, arguments, console)
        return True
    name = arguments.name
    if arguments.create is not None:
        kind, location = arguments.create
        options = named_values(arguments.option, "--option")
        name = mirrors.create(kind, location, name=name, history=arguments.history, **options).name
    return every(wait, lambda stop: _round(mirrors, name, arguments, console, stop))


def _print_list(mirrors: Mirrors, arguments: argparse.Namespace, console: Console) -> None:
    listed = mirrors.list()
    if arguments.json:
        console.print_json([dataclasses.asdict(mirror) for mirror in listed])
        return
    for mirror in listed:
        console.print(f"{mirror.name}: {mirror.kind} at {mirror.location}")
    if not listed:
        console.print("no mirrors")


def _round(
    mirrors: Mirrors,
    name: str | None,
    arguments: argparse.Namespace,
    console: Console,
    stop: threading.Event,
) -> bool:
    """Publish once; whether nothing has failed. A mirror that fails stops no other."""
    done: list[dict[str, Any]] = []
    is_watched = arguments.watch is not None
    for each in [mirror.name for mirror in mirrors.list()] if name is None else [name]:
        try:
            (published,) = mirrors.publish(each)
        except (FermionError, OSError) as error:
            if not is_watched:
                raise
            done.append({"name": each, "error": str(error)})
            text = f"{each}: failed: {error}"
        else:
            done.append(dataclasses.asdict(published))
            text = f"{each}: {_told(published)}"
            if is_watched and not published.snapshots:
                continue
        if not arguments.json:
            console.print(text)
        if stop.is_set():
            break
    if arguments.json and (done or not is_watched):
        console.print_json(done)
    if not done and not arguments.json and not is_watched:
        console.print("no mirrors")
    return all("error" not in each for each in done)


def _told(done: Publication) -> str:
    """A publication in words."""
    if not done.snapshots:
        return f"shows snapshot {done.snapshot_id} already"
    return (
        f"shows snapshot {done.snapshot_id}, {counted(len(done.snapshots), 'snapshot')} published, "
        f"{counted(done.files_added, 'file')} added, {counted(done.files_removed, 'file')} removed"
    )
