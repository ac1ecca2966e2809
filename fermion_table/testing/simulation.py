"""A whole table under simulated faults: processes that work on it, and what they must find.

`simulate(seed)` runs writers, a compactor, expiry, taggers and readers on a `SimulatedStorage`;
what they did and saw is then checked by `history_check`. The seed decides everything, so that a
failure can be seen again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from unittest import mock

import pyarrow as pa

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import merge
from fermion_table.arrow_schema import schema_from_arrow
from fermion_table.commit import create_table
from fermion_table.commit_request import NewSchema
from fermion_table.errors import CommitConflict, CommitStateUnknown, VersionNotFound
from fermion_table.history import latest
from fermion_table.maintenance import expire_snapshots, remove_orphan_files
from fermion_table.metadata_cache import shared_cache
from fermion_table.schema import encode_schema
from fermion_table.schema_store import schema_paths
from fermion_table.snapshot import Snapshot
from fermion_table.table import Table
from fermion_table.testing.history_check import (
    Attempt,
    Observation,
    Records,
    Violation,
    check_history,
    check_reachable,
    rows_of,
)
from fermion_table.testing.scheduler import Scheduler
from fermion_table.testing.simulated_storage import Faults, SimulatedStorage, SimulatedStore

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
SLOT_GRACE_MS = 300_000
"""Age up to which slots stay: longer than a commit takes, unless the storage stalls."""
ORPHAN_MS = 24 * 3600 * 1000
"""Age up to which a file may be a running writer's."""

CALM = Faults(fails=0.001, forgotten=0.005, lost=0.002, stale=0.1)
ROUGH = Faults(
    fails=0.005,
    lost=0.02,
    late=0.03,
    twice=0.03,
    forgotten=0.03,
    outage=0.03,
    killed=0.001,
    stale=0.3,
)
DISK = Faults(fails=0.004, forgotten=0.02, outage=0.02, killed=0.004, is_local=True)
STALLING = Faults(
    stalls=0.2, stall_ms=5 * SLOT_GRACE_MS, late=0.02, forgotten=0.01, outage=0.01, stale=0.2
)
WEATHERS = (CALM, ROUGH, DISK, STALLING)

_runs = iter(range(2**63))


@dataclass(slots=True)
class Report:
    """What a simulation did.

    Attributes
    ----------
    seed
        Of it.
    snapshots
        Commits in the history.
    requests
        Sent to the storage.
    troubles
        How often what went wrong.
    outcomes
        How often the operations of the processes ended how.
    """

    seed: int
    snapshots: int = 0
    requests: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)


def simulate(seed: int, *, faults: Faults | None = None) -> Report:
    """Run a table under faults, and check what came of it.

    Parameters
    ----------
    seed
        Decides everything.
    faults
        What goes wrong; None takes one of `WEATHERS`.

    Raises
    ------
    Violation
        A promise of the table was broken; the message begins with the seed.
    """
    simulation = _Simulation(seed, faults or WEATHERS[seed % len(WEATHERS)])
    try:
        with _one_process_each():
            return simulation.run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation
    except Exception as error:
        raise Violation(f"seed {seed}: {type(error).__name__}: {error}") from error


@contextmanager
def _one_process_each() -> Iterator[None]:
    """No cache or lock is shared, since the processes would not share one; tails are short."""
    with (
        mock.patch.object(shared_cache, "bytes_max", -1),
        mock.patch.object(cached_property, "__get__", _get_without_lock),
        mock.patch.object(merge, "TAIL_ENTRIES_MAX", 3),
    ):
        shared_cache.clear()
        yield


def _get_without_lock(wanted: Any, instance: Any, owner: Any = None) -> Any:
    """What `cached_property` does from Python 3.12 on; before, its instances share a lock."""
    if instance is None:
        return wanted
    if wanted.attrname not in instance.__dict__:
        instance.__dict__[wanted.attrname] = wanted.func(instance)
    return instance.__dict__[wanted.attrname]


class _Simulation:
    def __init__(self, seed: int, faults: Faults) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        self.dice = self.scheduler.random
        self.storage = SimulatedStorage(self.scheduler, faults)
        self.store = SimulatedStore(self.storage, f"run{next(_runs)}")
        self.records = Records()
        self.outcomes: dict[str, int] = {}

    def run(self) -> Report:
        schema = schema_from_arrow(SCHEMA)
        create_table(self.store, NewSchema(schema.id, encode_schema(schema)))
        processes: dict[str, Callable[[str], None]] = {
            "writer-1": self.writer,
            "writer-2": self.writer,
            "writer-3": self.writer,
            "compactor": self.compactor,
            "expiry-1": self.expiry,
            "expiry-2": self.expiry,
            "tagger": self.tagger,
            "reader": self.reader,
        }
        for name, process in processes.items():
            self.scheduler.spawn(name, partial(process, name))
        self.scheduler.run()
        if self.storage.violations:
            raise Violation("; ".join(self.storage.violations))
        chain = check_history(self.store, self.storage, self.records)
        check_reachable(self.store, self.records, chain)
        self.aftermath()
        return Report(
            self.seed,
            snapshots=len(chain.snapshots) - 1,
            requests=self.storage.requests,
            troubles=self.storage.troubles,
            outcomes=self.outcomes,
        )

    def aftermath(self) -> None:
        """Orphans go, nothing else does; the next commit succeeds."""
        later = self.scheduler.now_ms + 4 * ORPHAN_MS
        remove_orphan_files(
            self.store, schema_paths=self.schema_paths, older_than_ms=later, now=later
        )
        table = Table(self.store, latest(self.store))
        attempt = Attempt("last", {"kind": "append", "rows": [["last", 0]]})
        self.records.attempts.append(attempt)
        attempt.acknowledged = table.append(_data(attempt.operation), message=attempt.message)
        chain = check_history(self.store, self.storage, self.records)
        check_reachable(self.store, self.records, chain)

    @property
    def schema_paths(self) -> Any:
        return partial(schema_paths, self.store)

    def writer(self, name: str) -> None:
        for number in range(self.dice.randint(2, 5)):
            attempt = Attempt(f"{name}.{number}", self.operation(f"{name}.{number}"))
            self.records.attempts.append(attempt)
            limit = self.scheduler.now_ms + SLOT_GRACE_MS  # later its identity may have expired
            while attempt.is_open and self.scheduler.now_ms < limit:
                self.attempt(attempt, name, number)
                self.scheduler.pause(self.dice.randint(0, 2_000))

    def operation(self, key: str) -> dict[str, Any]:
        """What to do next: mostly append; changes concern the rows of an earlier operation."""
        earlier = [each.key for each in self.records.attempts]
        kind = self.dice.choice(["append"] * 5 + ["delete", "update", "overwrite", "add column"])
        if not earlier and kind not in ("append", "add column"):
            kind = "append"
        rows = [[key, self.dice.randint(0, 9)] for _ in range(self.dice.randint(1, 4))]
        operation: dict[str, Any] = {"kind": kind}
        if kind in ("append", "overwrite"):
            operation["rows"] = rows
        if kind in ("delete", "update", "overwrite"):
            operation["key"] = self.dice.choice(earlier)
        if kind == "update":
            operation["value"] = self.dice.randint(100, 109)
        return operation

    def attempt(self, attempt: Attempt, user: str, number: int) -> None:
        """Try once; what is unknown is tried again under the same identity."""
        try:
            table = Table(self.store, latest(self.store))
            attempt.result(self.perform(table, attempt, user, number))
            self.count("acknowledged")
        except CommitStateUnknown:
            attempt.may_be_published = True
            attempt.is_settled = attempt.operation["kind"] == "add column"  # has no identity
            self.count("unknown")
        except CommitConflict as conflict:
            if "which has expired since" not in str(conflict):
                attempt.refuse()
            self.count("conflict")
        except (OSError, FermionError) as error:
            self.records.complain(self.storage, error, user)
            self.count(type(error).__name__)
            attempt.failure = error

    def perform(self, table: Table, attempt: Attempt, user: str, number: int) -> Snapshot | None:
        """Carry out an operation; the snapshot, or None if there was nothing to change."""
        operation, key = attempt.operation, attempt.operation.get("key")
        words: dict[str, Any] = {
            "message": attempt.message,
            "commit_user": user,
            "commit_identifier": number,
        }
        match operation["kind"]:
            case "append":
                return table.append(_data(operation), **words)
            case "overwrite":
                return table.overwrite(_data(operation), filter=f"k = '{key}'", **words)
            case "delete":
                made = table.delete(f"k = '{key}'", **words)
            case "update":
                made = table.update(f"k = '{key}'", {"v": operation["value"]}, **words)
            case _:
                with table.update_schema(message=attempt.message) as update:
                    update.add_column(f"c{attempt.key}", pa.int64())
                made = table.snapshot
        return made if made.message == attempt.message else None

    def compactor(self, name: str) -> None:
        for _ in range(self.dice.randint(1, 3)):
            self.scheduler.pause(self.dice.randint(0, 10_000))
            self.tolerantly(name, self.compact)

    def compact(self) -> None:
        Table(self.store, latest(self.store)).compact(threads=1)

    def expiry(self, name: str) -> None:
        for _ in range(self.dice.randint(1, 5)):
            self.scheduler.pause(self.dice.randint(0, 2 * SLOT_GRACE_MS))
            self.tolerantly(name, self.expire)

    def expire(self) -> None:
        expire_snapshots(
            self.store,
            schema_paths=self.schema_paths,
            older_than_ms=self.scheduler.now_ms - self.dice.choice([0, 1_000, 10_000]),
            retain_last=self.dice.randint(1, 3),
            slot_grace_ms=SLOT_GRACE_MS,
        )
        if self.dice.random() < 0.3:
            remove_orphan_files(
                self.store,
                schema_paths=self.schema_paths,
                older_than_ms=self.scheduler.now_ms - ORPHAN_MS,
            )

    def tagger(self, name: str) -> None:
        for number in range(self.dice.randint(1, 3)):
            self.scheduler.pause(self.dice.randint(0, 10_000))
            self.tolerantly(name, partial(self.tag, f"v{number}"))

    def tag(self, name: str) -> None:
        table = Table(self.store, latest(self.store))
        kept = table.snapshots()
        tag = table.tags.create(name, version=self.dice.choice(kept).id)
        self.records.tags[name] = tag.snapshot_id
        if self.dice.random() < 0.2:
            del self.records.tags[name]
            self.records.tags_deleted.add(name)
            table.tags.delete(name)

    def reader(self, name: str) -> None:
        for _ in range(self.dice.randint(3, 6)):
            self.scheduler.pause(self.dice.randint(0, 5_000))
            self.tolerantly(name, self.read)

    def read(self) -> None:
        """All rows of the latest snapshot, or of an earlier one; it may expire meanwhile."""
        table = Table(self.store, latest(self.store))
        snapshot = table.snapshot
        if self.dice.random() < 0.3:
            snapshot = self.dice.choice(table.snapshots())
            table = Table(self.store, snapshot)
        try:
            rows = rows_of(table)
        except FermionError as error:
            if snapshot.id == 0 or snapshot.id >= self.storage.earliest:
                raise Violation(
                    f"snapshot {snapshot.id} has not expired, and can't be read: {error!r}"
                ) from error
            raise
        self.records.observations.append(Observation(snapshot.id, snapshot.hash, rows))
        self.count("read")

    def tolerantly(self, name: str, action: Callable[[], None]) -> None:
        """Take part in what may fail; errors of kinds that faults explain are counted."""
        try:
            action()
            self.count(action.__name__ if hasattr(action, "__name__") else "tag")
        except (CommitConflict, CommitStateUnknown, VersionNotFound, InvalidArgumentError) as error:
            self.count(type(error).__name__)
        except (OSError, FermionError) as error:
            self.records.complain(self.storage, error, name)
            self.count(type(error).__name__)

    def count(self, what: str) -> None:
        self.outcomes[what] = self.outcomes.get(what, 0) + 1


def _data(operation: dict[str, Any]) -> pa.Table:
    keys, values = zip(*operation["rows"], strict=True)
    return pa.table({"k": list(keys), "v": list(values)}, schema=SCHEMA)
