"""Processes that work on a table at once, and the check of the history they made.

Every row carries the commit that wrote it. A commit's message says what it did, so that the state
of each snapshot can be computed by doing the same to plain lists, one commit after the other.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any

import fsspec
import pyarrow as pa

from fermion.errors import FermionError
from fermion_table import CommitConflict, CommitStateUnknown, Table, lit
from fermion_table.storage.fsspec import FsspecStore

SCHEMA = pa.schema([("c", pa.string()), ("v", pa.int64())])
PROCESSES = 16
Place = tuple[str, dict[str, Any]]
"""Where a table goes: path or URL, and storage options."""
KEPT = 40
"""Snapshots that expiry keeps; their slots stay longer than any test runs."""

VALUES = 1 << 20
SELECTED = 1 << 15
"""How many values in a row a delete or an update selects."""

Rows = Counter[tuple[str, int]]


def where(first: int) -> str:
    """The filter of a delete or an update."""
    return f"v BETWEEN {first} AND {first + SELECTED}"


def selects(operation: dict[str, Any], value: int) -> bool:
    """What `where` means."""
    first: int = operation["first"]
    return first <= value <= first + SELECTED


def rows_of(table: Table, **version: Any) -> Rows:
    """The rows of a version, as a multiset."""
    found = table.scan(columns=["c", "v"], threads=1, **version).to_arrow()
    return Counter(zip(found["c"].to_pylist(), found["v"].to_pylist(), strict=True))


def after(rows: Rows, operation: dict[str, Any]) -> Rows:
    """The rows after an operation."""
    kind = operation["kind"]
    if kind == "append":
        return rows + Counter({(operation["of"], value): 1 for value in operation["values"]})
    if kind == "delete":
        return Counter({row: n for row, n in rows.items() if not selects(operation, row[1])})
    if kind == "update":
        changed: Rows = Counter()
        for (commit, value), number in rows.items():
            name = operation["of"] if selects(operation, value) else commit
            changed[name, value] += number
        return changed
    return rows


class Worker:
    """A process of its own: some random operations, and more until the time is over."""

    def __init__(
        self,
        path: str,
        number: int,
        options: dict[str, Any],
        steps: int = 0,
        seconds: float = 0,
    ) -> None:
        self.path = path
        self.options = options
        self.number = number
        self.steps = steps
        self.ends = time.monotonic() + seconds
        self.dice = random.Random(number)
        self.done: Counter[str] = Counter()
        self.acknowledged: dict[str, int] = {}
        self.unknown: list[str] = []

    def open(self) -> Table:
        table = Table.open(self.path, durability="fast", storage_options=self.options or None)
        if isinstance(table.store, FsspecStore):
            table.store._trusted = True  # who made the table has probed the storage
        return table

    def run(self) -> dict[str, Any]:
        """Work, then tell what was acknowledged and how often what was done."""
        step = 0
        while step < self.steps or time.monotonic() < self.ends:
            step += 1
            action = self.dice.choice(
                [self.append] * 6 + [self.delete, self.update, self.compact, self.expire]
                + [self.read] * 2 + ([self.add_column] if self.number < 4 else [])
            )  # fmt: skip
            name = f"{self.number}.{step}"
            try:
                action(self.open(), name)
                self.done[action.__name__] += 1
            except CommitConflict as conflict:
                self.done[f"conflict of {conflict.mine}"] += 1
            except CommitStateUnknown:
                self.unknown.append(name)
                self.done["unknown outcome"] += 1
        return {"acknowledged": self.acknowledged, "unknown": self.unknown, "done": self.done}

    def append(self, table: Table, name: str) -> None:
        values = [self.dice.randrange(VALUES) for _ in range(self.dice.randint(1, 5))]
        values = sorted(set(values))
        message = json.dumps({"of": name, "kind": "append", "values": values})
        data = pa.table({"c": [name] * len(values), "v": values}, schema=SCHEMA)
        self.acknowledged[name] = table.append(data, message=message).id

    def delete(self, table: Table, name: str) -> None:
        first = self.dice.randrange(VALUES)
        message = json.dumps({"of": name, "kind": "delete", "first": first})
        made = table.delete(where(first), message=message)
        if made.message == message:
            self.acknowledged[name] = made.id

    def update(self, table: Table, name: str) -> None:
        first = self.dice.randrange(VALUES)
        message = json.dumps({"of": name, "kind": "update", "first": first})
        made = table.update(where(first), {"c": lit(name)}, message=message)
        if made.message == message:
            self.acknowledged[name] = made.id

    def compact(self, table: Table, name: str) -> None:
        table.compact(threads=1)

    def expire(self, table: Table, name: str) -> None:
        if self.number == 1:  # one expiry at a time
            table.expire_snapshots(older_than=timedelta(0), retain_last=KEPT)

    def add_column(self, table: Table, name: str) -> None:
        if len(table.schema.fields) < 30:
            table.add_columns({f"c{name}": pa.int64()})

    def read(self, table: Table, name: str) -> None:
        """The rows are those that the snapshot counts; all of a commit's rows or none."""
        try:
            rows = rows_of(table)
        except (FermionError, FileNotFoundError):
            newest = self.open()
            if newest.snapshot.id - table.snapshot.id < KEPT:
                raise
            return
        assert rows.total() == table.snapshot.totals.rows - table.snapshot.totals.rows_deleted


def check_history(table: Table, acknowledged: dict[str, int], unknown: set[str]) -> int:
    """Every kept snapshot holds what the commits up to it did, one after the other.

    Returns
    -------
    int
        Commits in the history.
    """
    slots = sorted(
        item.path for item in table.store.list("snapshot") if item.path.endswith(".json")
    )
    assert len(slots) == table.snapshot.id + 1, "slots stay an hour"
    rows: Rows = Counter()
    kept = {snapshot.id for snapshot in table.snapshots()}
    found: dict[str, int] = {}
    for number, slot in enumerate(slots):
        message = json.loads(table.store.read(slot)).get("message") or ""
        if message.startswith("{"):
            operation = json.loads(message)
            assert operation["of"] not in found, "committed twice"
            found[operation["of"]] = number
            rows = after(rows, operation)
        if number in kept:
            assert rows_of(table, snapshot_id=number) == rows, f"snapshot {number}"
    told = {name: number for name, number in found.items() if name not in unknown}
    assert told == acknowledged, "each acknowledged commit is there once, and no other"
    report = table.verify(data=True)
    assert report.ok, report
    return table.snapshot.id


def main(path: str, processes: int, until: dict[str, Any], options: dict[str, Any]) -> None:
    """Fork the processes, once everything is imported, and print what each of them tells."""
    fsspec.get_filesystem_class(fsspec.utils.get_protocol(path))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as executor:
        running = [
            executor.submit(_run, path, number, options, until) for number in range(processes)
        ]
        print(json.dumps([process.result() for process in running]))


def _run(path: str, number: int, options: dict[str, Any], until: dict[str, Any]) -> dict[str, Any]:
    return Worker(path, number, options, **until).run()


def work(
    place: Place, environment: dict[str, str], processes: int = PROCESSES, **until: float
) -> tuple[int, Counter[str]]:
    """Let all processes work, and check what they made: commits, and what was done how often."""
    path, options = place
    table = Table.create(path, SCHEMA, storage_options=options or None)
    finished = subprocess.run(
        [sys.executable, __file__, json.dumps([path, processes, until, options])],
        capture_output=True,
        text=True,
        env=environment,
        timeout=until.get("seconds", 0) + 500,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    acknowledged: dict[str, int] = {}
    unknown: set[str] = set()
    done: Counter[str] = Counter()
    for told in json.loads(finished.stdout):
        acknowledged.update(told["acknowledged"])
        unknown.update(told["unknown"])
        done.update(told["done"])
    table.refresh()
    commits = check_history(table, acknowledged, unknown)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    report = table.verify(data=True)
    assert report.ok, report
    return commits, done


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
