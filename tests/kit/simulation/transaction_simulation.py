"""Clients whose transactions change several tables under simulated faults, and what must be true.

`simulate_transactions(seed)` lets clients commit transactions and ordinary commits to two to five
tables, compact, expire, and read. Whenever a snapshot file or a decision was stored, the history of
every table is worked out anew from the stored objects alone, as the format document says: each
transaction is there in all of its tables or in none, and nothing that counted is ever lost.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa

from fermion.errors import FermionError
from fermion_table.catalog import view
from fermion_table.catalog.catalog import Catalog
from fermion_table.catalog.rows import CatalogRow
from fermion_table.catalog.tables import Placed
from fermion_table.commit.replacement import TableDefinition, create_defined
from fermion_table.errors import CommitConflict, CommitStateUnknown, VersionNotFound
from fermion_table.metadata import decisions
from tests.kit.simulation.catalog_simulation import WEATHERS, SimulatedWarehouse
from tests.kit.simulation.history_check import Violation
from tests.kit.simulation.scheduler import Scheduler
from tests.kit.simulation.separate_processes import separate_processes
from tests.kit.simulation.simulated_storage import Faults, SimulatedFileSystem, SimulatedStorage

SCHEMA = pa.schema({"id": pa.int64()})
KINDS = ("transaction", "transaction", "transaction", "append", "read", "compact", "expire")
STEPS_AFTERWARDS_MAX = 2_000
"""Requests that a client needs at most for a commit to each table, once all others are dead."""


@dataclass(slots=True)
class TransactionReport:
    """What a simulation did: how often operations ended how, how many commits count, how long."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    void: int = 0
    switches: int = 0
    elapsed_ms: int = 0


class Histories:
    """The histories of the tables, worked out from the stored objects as the document says."""

    def __init__(self, storages: dict[str, SimulatedStorage]) -> None:
        self.storages = storages
        self.counted: dict[str, list[int]] = {}

    def check(self) -> None:
        """Each transaction is in all of its tables or in none, and what counted still does."""
        found: dict[str, dict[str, int]] = {}
        for path in [each for each in self.storages if each and not each.startswith("_")]:
            ids = self._history(path, found)
            before = self.counted.get(path, [])
            if ids[: len(before)] != before:
                raise Violation(f"{path}: {before} counted, and now {ids}")
            self.counted[path] = ids
        for transaction, there in found.items():
            wanted = {each["path"]: each["snapshot_id"] for each in self._members(transaction)}
            if wanted != there:
                raise Violation(f"transaction {transaction} is {wanted}, and {there} are there")

    def _history(self, path: str, found: dict[str, dict[str, int]]) -> list[int]:
        """The ids that count, ascending."""
        objects = self.storages[path].objects
        slots = {int(name[9:29]): name for name in objects if _is_slot(name)}
        if not slots:
            return []
        current = max(slots)
        stored = json.loads(objects[slots[current]][0])
        part = stored.get("transaction")
        is_void = part is not None and not self._members(part["id"])
        ids = []
        while True:
            if not is_void:
                ids.append(current)
                if stored.get("transaction"):
                    found.setdefault(stored["transaction"]["id"], {})[path] = current
            if stored["parent"] is None:
                return ids[::-1]
            is_void, current = stored.get("parent_void", False), current - 1
            if stored["parent"]["id"] != current:
                raise Violation(f"{path}: snapshot {current + 1} follows {stored['parent']}")
            stored = json.loads(objects[slots[current]][0])

    def _members(self, transaction: str) -> list[dict[str, Any]]:
        """The snapshots that a transaction has committed; none if it is not."""
        name = decisions.decision_path(transaction)
        stored = self.storages[""].objects.get(name)
        return [] if stored is None else json.loads(stored[0]).get("participants", [])


def simulate_transactions(
    seed: int, *, faults: Faults | None = None, kinds: Sequence[str] = KINDS
) -> TransactionReport:
    """Let clients change several tables at once under faults, and check what came of it.

    Parameters
    ----------
    kinds
        What they do, each as often as it is named.

    Raises
    ------
    Violation
        A promise was broken; the message begins with the seed.
    """
    try:
        with separate_processes():
            return _Simulation(seed, faults, kinds).run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation
    except Exception as error:
        raise Violation(f"seed {seed}: {type(error).__name__}: {error}") from error
    finally:
        SimulatedFileSystem.storages.clear()


class _OwnThread:
    """A pool without threads: requests of a process are made by its own, where others come between.

    Parameters
    ----------
    count
        Of threads, as a pool takes it.
    """

    def __init__(self, count: int) -> None:
        self.map = map

    def __enter__(self) -> _OwnThread:
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing to do."""


def _is_slot(name: str) -> bool:
    return name.startswith("snapshot/0") and name.endswith(".json")


class _Simulation:
    def __init__(self, seed: int, faults: Faults | None, kinds: Sequence[str]) -> None:
        self.kinds = kinds
        self.scheduler = Scheduler(seed)
        self.dice = self.scheduler.random
        self.faults = faults or WEATHERS[seed % len(WEATHERS)]
        self.storages: dict[str, SimulatedStorage] = {}
        self.histories = Histories(self.storages)
        self.names = [f"t{number}" for number in range(self.dice.randint(2, 5))]
        self.values = 0
        self.changed: dict[int, list[str]] = {}
        self.ended: dict[int, str] = {}
        self.report = TransactionReport(seed)

    def catalog(self) -> Catalog:
        """A new client, which knows where the tables are: their list is not what is tried here."""
        warehouse = SimulatedWarehouse(self.storages, self.scheduler, self.faults, set())
        catalog = Catalog(warehouse)
        rows = [CatalogRow(namespace="", name=name, kind="table", path=name) for name in self.names]
        catalog._names.rows = lambda: rows  # type: ignore[method-assign]
        catalog._tables.required = lambda name: Placed(  # type: ignore[method-assign]
            name.name, warehouse.store(name.name)
        )
        return catalog

    def run(self) -> TransactionReport:
        """Let the clients work, and check what came of it."""
        catalog = self.catalog()
        with mock.patch.object(uuid, "uuid4", self.scheduler.uuid4):  # commits go in their order
            for name in self.names:
                create_defined(catalog._warehouse.store(name), TableDefinition(schema=SCHEMA))
        root = catalog._warehouse.root
        real = SimulatedStorage._put

        def put(storage: SimulatedStorage, path: str, data: bytes) -> None:
            real(storage, path, data)
            if _is_slot(path) or path.startswith("_catalog/transactions/"):
                self.histories.check()

        with (
            mock.patch.object(SimulatedStorage, "_put", put),
            mock.patch.object(decisions, "open_store", return_value=root),
            mock.patch.object(view, "ThreadPoolExecutor", _OwnThread),
        ):
            for number in range(self.dice.randint(2, 3)):
                self.scheduler.spawn(f"client-{number}", self.client)
            self.scheduler.run()
            self.report.switches = self.scheduler.switches
            self.report.elapsed_ms = self.scheduler.elapsed_ms
            self.histories.check()
            self.check()
        self.report.commits = sum(len(ids) for ids in self.histories.counted.values())
        stored = sum(
            _is_slot(name)
            for path in self.histories.counted
            for name in self.storages[path].objects
        )
        self.report.void = stored - self.report.commits
        return self.report

    def client(self) -> None:
        """Do a few things to the tables."""
        catalog = self.catalog()
        for _ in range(self.dice.randint(2, 4)):
            kind = self.dice.choice(self.kinds)
            name = self.dice.choice(self.names)
            acts: dict[str, Callable[[], Any]] = {
                "transaction": partial(self.transaction, catalog),
                "append": partial(self.append, catalog, [name]),
                "read": partial(self.read, catalog),
                "compact": partial(self.maintain, catalog, name, is_compaction=True),
                "expire": partial(self.maintain, catalog, name, is_compaction=False),
            }
            outcome = self.outcome(acts[kind])
            self.report.outcomes[f"{kind} {outcome}"] += 1
            self.scheduler.pause(self.dice.choice((0, 100, 300, 12_000)))

    def transaction(self, catalog: Catalog) -> None:
        """Append a row of one value to several tables at once."""
        count = self.dice.randint(2, len(self.names))
        self.append(catalog, self.dice.sample(self.names, count))

    def append(self, catalog: Catalog, names: list[str]) -> None:
        """Append a row of a new value to tables, and note how that ended."""
        self.values += 1
        value, rows = self.values, pa.table({"id": [self.values]})
        self.changed[value] = names
        self.ended[value] = "unknown"
        try:
            if len(names) == 1:
                catalog.table(names[0]).append(rows)
            else:
                with catalog.transaction(commit_user="u", commit_identifier=value) as tx:
                    shown = {name: tx.table(name).to_arrow()["id"].to_pylist() for name in names}
                    self.refuse_halves(shown)
                    for name in names:
                        tx.table(name).append(rows)
        except CommitConflict:
            self.ended[value] = "absent"
            raise
        self.ended[value] = "there"

    def maintain(self, catalog: Catalog, name: str, *, is_compaction: bool) -> None:
        """Compact a table, or let all but its newest snapshot expire."""
        table = catalog.table(name)
        if is_compaction:
            table.compact()
        else:
            table.expire_snapshots(older_than="0s", retain_last=1)

    def outcome(self, act: Callable[[], Any]) -> str:
        """How an operation ended."""
        try:
            act()
        except CommitStateUnknown:
            return "unknown"
        except (CommitConflict, VersionNotFound):
            return "conflict"
        except (OSError, FermionError):
            return "failed"
        return "acknowledged"

    def read(self, catalog: Catalog) -> None:
        """Look at all tables at once: each transaction is there in all of its tables or in none."""
        view = catalog.read_at()
        shown = {name: view.table(name).to_arrow()["id"].to_pylist() for name in self.names}
        self.refuse_halves(shown)

    def refuse_halves(self, shown: dict[str, list[int]]) -> None:
        """Raise where rows of one transaction are in some of its tables only, or twice."""
        for value, names in list(self.changed.items()):
            counts = {shown[name].count(value) for name in names if name in shown}
            if len(counts) > 1 or counts - {0, 1}:
                raise Violation(f"value {value} of {names}: {shown}")

    def check(self) -> None:
        """What was acknowledged is there; a client goes on whatever the others have left."""
        shown = {
            name: self.catalog().table(name).to_arrow()["id"].to_pylist() for name in self.names
        }
        self.refuse_halves(shown)
        for value, names in self.changed.items():
            is_there = shown[names[0]].count(value) == 1
            if self.ended[value] != "unknown" and is_there != (self.ended[value] == "there"):
                raise Violation(f"value {value} of {names} ended as {self.ended[value]}: {shown}")
        self.scheduler._processes.clear()
        self.faults = Faults()
        for storage in self.storages.values():
            storage.faults = self.faults
        requests = sum(storage.requests for storage in self.storages.values())
        last = Scheduler(-1 - self.report.seed)  # other unique names than before
        self.values += 1

        def go_on() -> None:
            self.append(self.catalog(), self.names)
            for name in self.names:
                problems = self.catalog().table(name).verify().problems
                if problems:
                    raise Violation(f"{name}: {problems}")

        self.scheduler = last
        for storage in self.storages.values():
            storage.scheduler = last
        last.elapsed_ms = 10_000_000
        last.spawn("last", go_on)
        last.run()
        took = sum(storage.requests for storage in self.storages.values()) - requests
        if took > STEPS_AFTERWARDS_MAX:
            raise Violation(f"{took} requests for a transaction once all others are dead")
