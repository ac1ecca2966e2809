"""Clients of one catalog under simulated faults, and what must be true afterwards.

`simulate_catalog(seed)` lets clients create, drop and rename tables of the same few names on
simulated storages. The seed decides everything, so that a failure can be seen again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.catalog import tables
from fermion_table.catalog.catalog import Catalog
from fermion_table.catalog.names import TABLES_PATH, directory_of, table_name
from fermion_table.catalog.walking import uuid_of
from fermion_table.catalog.warehouse import Folder, Warehouse
from fermion_table.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptMetadata,
    TableExists,
    TableNotFound,
)
from fermion_table.expiry.drop import DroppedTable, delete_own_files
from fermion_table.metadata.history import table_exists
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore
from tests.kit.simulation.history_check import Violation
from tests.kit.simulation.scheduler import Scheduler
from tests.kit.simulation.separate_processes import separate_processes
from tests.kit.simulation.simulated_storage import (
    Faults,
    SimulatedFileSystem,
    SimulatedStorage,
    SimulatedStore,
)
from tests.kit.simulation.simulation import CALM, DISK, ROUGH

NAMES = ("a", "b", "db.`c.d`")
SCHEMA = pa.schema({"id": pa.int64()})
TABLES_OF_NAME_MAX = 2
"""That with the row, and one in the directory of the name."""
WITH_DROPS = ("create", "create", "create", "drop", "purge", "rename")
WITHOUT_DROPS = ("create", "create", "rename", "rename")
"""Without drops no table may be lost."""
WEATHERS = (Faults(), CALM, ROUGH, DISK)


class SimulatedWarehouse(Warehouse):
    """A warehouse of simulated storages, one for each table.

    Parameters
    ----------
    storages
        By path; shared by the clients.
    scheduler, faults
        Of new ones.
    purged
        Gets the identities of tables whose files were to be deleted.
    """

    def __init__(
        self,
        storages: dict[str, SimulatedStorage],
        scheduler: Scheduler,
        faults: Faults,
        purged: set[str],
    ) -> None:
        self._purged = purged
        self._storages = storages
        self._scheduler = scheduler
        self._faults = faults
        self.root = self.store("")

    def store(self, path: str) -> AtomicStore:
        """The store of a table."""
        if path not in self._storages:
            self._storages[path] = SimulatedStorage(self._scheduler, self._faults)
        return SimulatedStore(self._storages[path], f"warehouse-{path.replace('/', '|')}")

    def folders(self, path: str) -> list[Folder]:
        """The directories directly below one: of tables that hold something, and above them."""
        top = f"{path}/" if path else ""
        used = [each for each, storage in self._storages.items() if storage.objects]
        below = {each[len(top) :].partition("/")[0] for each in used if each.startswith(top)}
        return [Folder(name) for name in sorted(below) if name]

    def is_empty(self, path: str) -> bool:
        """Whether nothing lies below a directory."""
        return not self.folders(path)

    def make_folder(self, path: str) -> None:
        """Nothing to do."""

    def remove_folder(self, path: str) -> None:
        """Nothing to do."""

    def drop(self, path: str, *, dry_run: bool = False) -> DroppedTable:
        """Delete the files of a table."""
        store = self.store(path)
        if not table_exists(store):
            raise TableNotFound(f"{path}: no table here")
        first = self._storages[path].objects.get(snapshot_path(0))
        if first is not None and not dry_run:
            self._purged.add(json.loads(first[0])["table_uuid"])
        files, total = delete_own_files(store, dry_run=dry_run)
        return DroppedTable(files=files, bytes=total, location=path)


@dataclass(slots=True)
class CatalogReport:
    """What a simulation did.

    Attributes
    ----------
    seed
        Of it.
    outcomes
        How often operations ended how: ``create acknowledged``.
    commits
        Of the list of tables.
    """

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    commits: int = 0


def simulate_catalog(seed: int, *, clients: int = 2, faults: Faults | None = None) -> CatalogReport:
    """Let clients of a catalog work under faults, and check what came of it.

    Parameters
    ----------
    seed
        Decides everything.
    clients
        How many.
    faults
        What goes wrong; None takes one of `WEATHERS`.

    Raises
    ------
    Violation
        A promise of the catalog was broken; the message begins with the seed.
    """
    try:
        with (
            separate_processes(),
            mock.patch.object(tables, "ENTERED_EVERY", (1, 2, 1000)[seed // 4 % 3]),
        ):
            return _Simulation(seed, clients, faults).run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation
    except Exception as error:
        raise Violation(f"seed {seed}: {type(error).__name__}: {error}") from error
    finally:
        SimulatedFileSystem.storages.clear()


class _Simulation:
    def __init__(self, seed: int, clients: int, faults: Faults | None) -> None:
        self.scheduler = Scheduler(seed)
        self.dice = self.scheduler.random
        self.clients = clients
        self.faults = faults or WEATHERS[seed % len(WEATHERS)]
        self.storages: dict[str, SimulatedStorage] = {}
        self.report = CatalogReport(seed)
        self.kinds = self.dice.choice((WITH_DROPS, WITHOUT_DROPS))
        self.created: dict[str, str] = {}
        """Of tables whose creation was acknowledged: the name by the identity."""
        self.purged: set[str] = set()
        self.closed: set[str] = set()
        """Names whose tables can't be opened."""

    def catalog(self) -> Catalog:
        """A new client."""
        return Catalog(SimulatedWarehouse(self.storages, self.scheduler, self.faults, self.purged))

    def run(self) -> CatalogReport:
        """Let the clients work, and check what came of it."""
        for number in range(self.clients):
            self.scheduler.spawn(f"client-{number}", self.client)
        self.scheduler.run()
        self.check()
        return self.report

    def client(self) -> None:
        """Do a few things to the names."""
        catalog = self.catalog()
        for _ in range(self.dice.randint(3, 6)):
            kind = self.dice.choice(self.kinds)
            name, other = self.dice.choice(NAMES), self.dice.choice(NAMES)
            acts: dict[str, Callable[[], Any]] = {
                "create": partial(self.create, catalog, name),
                "drop": partial(catalog.drop_table, name),
                "purge": partial(catalog.drop_table, name, purge=True),
                "rename": partial(catalog.rename_table, name, other),
            }
            self.report.outcomes[f"{kind} {self.outcome(acts[kind])}"] += 1
            self.scheduler.pause(self.dice.randint(0, 300))

    def create(self, catalog: Catalog, name: str) -> None:
        """Make a table, and note that it was acknowledged."""
        table = catalog.create_table(name, SCHEMA)
        self.created[table.snapshot.table_uuid] = name

    def outcome(self, act: Callable[[], Any]) -> str:
        """How an operation ended."""
        try:
            act()
        except (TableExists, TableNotFound):
            return "refused"
        except CommitStateUnknown:
            return "unknown"
        except CommitConflict:
            return "conflict"
        except (InvalidArgumentError, CorruptMetadata):
            raise
        except (OSError, FermionError):
            return "failed"
        return "acknowledged"

    def check(self) -> None:
        """The list and the tables agree, and no table is lost that nobody has dropped."""
        self.check_list(self.catalog())
        live = self.live(self.catalog())
        listed = self.catalog().tables()
        kept = set(self.created) - self.purged
        unlisted = {name for name, uuid in live.items() if uuid in kept} - set(listed)
        if unlisted:
            raise Violation(f"{unlisted}: created and there, but not among {listed}")
        outcomes = self.report.outcomes
        drops = sum(
            outcomes[f"{kind} {how}"]
            for kind in ("drop", "purge")
            for how in ("acknowledged", "unknown", "failed")
        )
        if self.kinds == WITH_DROPS:  # a client that died may have been about to drop one
            drops += sum(each.troubles.get("killed", 0) for each in self.storages.values())
        lost = set(self.created) - set(live.values())
        if len(lost) > drops:
            raise Violation(f"{len(lost)} tables are gone, and {drops} were dropped: {lost}")
        done = self.catalog().repair()
        repaired = self.live(self.catalog())
        for name, uuid in live.items():
            if repaired.get(name) != uuid:
                raise Violation(f"the repair took {name} away, or exchanged it: {done}")
        told = {each.partition(":")[0] for each in done.problems}
        if not self.closed - {*listed} <= told:
            raise Violation(f"{self.closed} can't be opened, which is not told: {done}")
        again = self.catalog().repair()
        if again.actions:
            raise Violation(f"a second repair did more: {again}")
        self.check_list(self.catalog())
        listed = self.catalog().tables()
        for name in NAMES:
            if self.catalog().table_exists(name) != (name in listed):
                raise Violation(f"{name}: not listed, but there, or the other way round: {listed}")
        self.aftermath()

    def check_list(self, catalog: Catalog) -> None:
        """Every table in the list is there, and has one name."""
        seen: dict[str, str] = {}
        for row in catalog._names.rows():
            if not row.is_table or row.path is None:
                continue
            store = catalog._warehouse.store(row.path)
            name = ".".join(filter(None, row.key))
            if uuid_of(store) != row.table_uuid:
                raise Violation(f"{name}: {row.path} holds {uuid_of(store)}, not {row.table_uuid}")
            if row.path in seen:
                raise Violation(f"{name} and {seen[row.path]} are one table")
            seen[row.path] = name

    def live(self, catalog: Catalog) -> dict[str, str]:
        """The identities of the tables, by name; those whose creation was acknowledged open.

        A request that was given up may bring a snapshot 0 later, when what it refers to is gone:
        because the table was not made, or because it was deleted since.
        """
        found: dict[str, str] = {}
        for name in NAMES:
            placed = catalog._tables.find(table_name(name))
            uuid = None if placed is None else uuid_of(placed.store)
            if uuid is None:
                continue
            found[name] = uuid
            try:
                catalog.table(name)
            except CorruptMetadata as error:
                self.closed.add(name)
                if uuid in self.created and uuid not in self.purged:
                    raise Violation(f"{name} was made, and can't be opened: {error}") from error
        return found

    def aftermath(self) -> None:
        """All names can be made and dropped once faults are over."""
        catalog = self.catalog()
        for name in NAMES:
            # Where a table without a row lies in the name's directory, the name has it next.
            for _ in range(TABLES_OF_NAME_MAX):
                if catalog.table_exists(name):
                    catalog.drop_table(name, purge=True)
            catalog.create_table(name, SCHEMA)
            catalog.drop_table(name, purge=True)
            if catalog.table_exists(name):
                raise Violation(f"{name} is there after it was dropped")
            path = directory_of(table_name(name))
            assert path != TABLES_PATH
        for row in catalog._names.rows():
            if row.is_table:
                raise Violation(f"{row.key} is listed after all were dropped")
        self.report.commits = sum(
            path.startswith("snapshot/0") for path in self.storages[TABLES_PATH].objects
        )
