"""`fermion maintain`: maintains a table, or every table of a warehouse, by their policies."""

from __future__ import annotations

import argparse
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fermion.cli import Console, storage_options
from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.catalog.catalog import Catalog
from fermion_table.catalog.names import SNAPSHOTS_PATH, TABLES_PATH
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
from fermion_table.errors import TableNotFound
from fermion_table.expiry.maintenance import MaintenanceStep
from fermion_table.schema.properties import maintenance_policy
from fermion_table.storage.paths import MAIN
from fermion_table.table.maintaining import maintenance_steps
from fermion_table.table.table import Table

HELP = "compact, expire and clean up a table, or all tables of a warehouse, by their policies"
FOUND_PROBLEM = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_table(parser)
    add_flag(parser, "--dry-run", "only print what would be done")
    help_ = "instead of the tables' properties, such as snapshot_age=30d"
    add_repeated(parser, "--policy", "NAME=VALUE", help_)
    add_watch(parser, "1h")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Maintain tables; the exit status: 1 if a table or a step failed in the last round."""
    policy = named_values(arguments.policy, "--policy")
    maintenance_policy({}, policy)
    is_ok = every(interval(arguments), lambda stop: _round(arguments, policy, console, stop))
    return 0 if is_ok else FOUND_PROBLEM


def _round(
    arguments: argparse.Namespace,
    policy: dict[str, str],
    console: Console,
    stop: threading.Event,
) -> bool:
    """Maintain every table once, or until the signal; whether nothing has failed."""
    done: list[dict[str, Any]] = []
    for name, opened in _tables(arguments):
        for step in _steps(opened, policy, arguments.dry_run):
            done.append({"table": name, **dataclasses.asdict(step)})
            if not arguments.json:
                console.print(f"{name}: {step}")
            if stop.is_set():
                break
        if stop.is_set():
            break
    if arguments.json:
        console.print_json(done)
    return all(each["outcome"] != "failed" for each in done)


def _steps(
    opened: Callable[[], Table], policy: dict[str, str], dry_run: bool
) -> Iterator[MaintenanceStep]:
    """The steps of one table; a failed one where it can't be opened."""
    try:
        for step, _ in maintenance_steps(opened(), policy, dry_run=dry_run):
            yield step
    except (FermionError, OSError) as error:
        yield MaintenanceStep(name="open", outcome="failed", text=str(error))


def _tables(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Table]]]:
    """Names of the tables, and what opens each: the one at the path, or those of the warehouse.

    The lists that the catalog keeps are tables, too.

    Raises TableNotFound: There is neither.
    """
    path, options = arguments.path, storage_options(arguments)
    if Table.exists(path, storage_options=options):
        yield path, lambda: open_table(arguments)
        return
    if arguments.branch != MAIN:
        raise InvalidArgumentError("--branch: is for one table, not for a warehouse")
    catalog = Catalog.open(path, storage_options=options)
    names = catalog.tables()
    places = [f"{path.rstrip('/')}/{place}" for place in (TABLES_PATH, SNAPSHOTS_PATH)]
    lists = [place for place in places if Table.exists(place, storage_options=options)]
    if not names and not lists:
        raise TableNotFound(f"{path}: neither a table nor a warehouse with tables")
    for name in names:
        yield name, lambda name=name: catalog.table(name)  # type: ignore[misc]
    for place in lists:
        yield place, lambda place=place: Table.open(place, storage_options=options)  # type: ignore[misc]
