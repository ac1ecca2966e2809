"""A whole table under simulated faults: processes that work on it, and what they must find.

`simulate(seed)` runs writers, a compactor, expiry, taggers and readers on a `SimulatedStorage`;
what they did and saw is then checked by `history_check`. The seed decides everything, so that a
failure can be seen again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table.commit.clone import clone_table
from fermion_table.commit.commit import create_table
from fermion_table.commit.request import NewSchema
from fermion_table.errors import CommitConflict, CommitStateUnknown, VersionNotFound
from fermion_table.expiry.expire import expire_snapshots
from fermion_table.expiry.orphans import remove_orphan_files
from fermion_table.metadata.history import latest, reader_features, table_exists
from fermion_table.metadata.references import list_branches
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.schema import TableSchema, encode_schema
from fermion_table.storage.paths import MAIN
from fermion_table.table.table import Table
from tests.kit.simulation.history_check import (
    Attempt,
    Histories,
    Observation,
    Records,
    Violation,
    check_history,
    check_reachable,
    rows_of,
)
from tests.kit.simulation.history_rows import Rows
from tests.kit.simulation.operations import SCHEMA, WITH_IMAGES, carry_out, data_of
from tests.kit.simulation.scheduler import Scheduler
from tests.kit.simulation.separate_processes import separate_processes
from tests.kit.simulation.simulated_storage import (
    Faults,
    SimulatedFileSystem,
    SimulatedStorage,
    SimulatedStore,
)

SNAPSHOT_FILE_GRACE_MS = 300_000
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
    stalls=0.2,
    stall_ms=5 * SNAPSHOT_FILE_GRACE_MS,
    late=0.02,
    forgotten=0.01,
    outage=0.01,
    stale=0.2,
)
WEATHERS = (CALM, ROUGH, DISK, STALLING)

CHANGES = ("delete", "update", "overwrite", "fill")
NEEDS_NO_ROWS = ("append", "add column", "compute")
WITHOUT_IDENTITY = ("add column", "compute", "fill", "fast-forward")
"""Operations that can't be tried again once their outcome is unknown."""


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
        Sent to the storage, but for those of clones.
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
    return run_simulation(Simulation(seed, faults))


def run_simulation(simulation: Simulation) -> Report:
    """Run a simulation; its violations are told with its seed.

    Raises
    ------
    Violation
        See `simulate`.
    """
    seed = simulation.seed
    try:
        with separate_processes():
            return simulation.run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation
    except Exception as error:
        raise Violation(f"seed {seed}: {type(error).__name__}: {error}") from error
    finally:
        SimulatedFileSystem.storages.clear()


class Place:
    """A table and what was done to it."""

    def __init__(self, scheduler: Scheduler, faults: Faults, name: str) -> None:
        self.storage = SimulatedStorage(scheduler, faults)
        self.store = SimulatedStore(self.storage, name)
        self.records = Records()

    def latest(self, branch: str = MAIN) -> Table:
        """The table at the latest snapshot of a branch."""
        return Table(self.store, latest(self.store, branch=branch), branch=branch)

    def new_attempt(self, key: str, operation: dict[str, Any], branch: str = MAIN) -> Attempt:
        """Note an operation before it is tried."""
        attempt = Attempt(key, operation, branch)
        self.records.attempts.append(attempt)
        return attempt

    def check(self, cloned: Rows = ()) -> tuple[Histories, int]:
        """Check the histories: see `check_history`."""
        if self.storage.violations:
            raise Violation("; ".join(self.storage.violations))
        return check_history(self.store, self.storage, self.records, cloned)


@dataclass(slots=True)
class _Clone:
    """A clone of a snapshot; whether whoever made it was told so."""

    place: Place
    source: Snapshot
    is_acknowledged: bool = False


class Simulation:
    """An append table, and processes that work on it.

    Parameters
    ----------
    seed, faults
        See `simulate`.
    """

    adds = "append"
    """The kind of operations that add rows."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        self.dice = self.scheduler.random
        self.main = Place(self.scheduler, faults or WEATHERS[seed % len(WEATHERS)], "main")
        self.clones: list[_Clone] = []
        self.outcomes: dict[str, int] = {}

    def schema(self) -> TableSchema:
        """The table's."""
        return schema_from_arrow(WITH_IMAGES if self.seed // 4 % 2 else SCHEMA)

    def processes(self) -> dict[str, Callable[[str], None]]:
        """What always runs, by name."""
        return {
            "writer-1": self.writer,
            "writer-2": self.writer,
            "writer-3": self.writer,
            "compactor": self.compactor,
            "expiry-1": self.expiry,
            "expiry-2": self.expiry,
            "tagger": self.tagger,
            "reader": self.reader,
        }

    def prepare(self) -> None:
        """Write what is there before the processes begin."""

    def run(self) -> Report:
        """Let the processes work, and check what came of it."""
        schema = self.schema()
        stored = NewSchema(schema.id, encode_schema(schema))
        create_table(self.main.store, stored, reader_features=reader_features(schema))
        self.prepare()
        processes = self.processes()
        if self.dice.random() < 0.5:
            processes["brancher"] = self.brancher
        if self.dice.random() < 0.3:
            processes["cloner"] = self.cloner
        for name, process in processes.items():
            self.scheduler.spawn(name, partial(process, name))
        self.scheduler.run()
        histories, newest = self.main.check()
        self.aftermath(histories)
        return Report(
            self.seed,
            snapshots=newest,
            requests=self.main.storage.requests,
            troubles=self.main.storage.troubles,
            outcomes=self.outcomes,
        )

    def aftermath(self, histories: Histories) -> None:
        """Orphans go, nothing else does; the next commit succeeds."""
        places = [self.main]
        for clone in self.clones:
            if table_exists(clone.place.store):
                places.append(clone.place)
            elif clone.is_acknowledged:
                raise Violation(f"the clone of snapshot {clone.source.id} was made, and is gone")
        later = self.scheduler.now_ms + 4 * ORPHAN_MS
        for place in places:
            remove_orphan_files(place.store, older_than_ms=later, now=later)
        for place in places:
            attempt = place.new_attempt("last", {"kind": self.adds, "rows": [["last", 0]]})
            table = place.latest()
            data = data_of(attempt.operation["rows"], table)
            attempt.acknowledged = table.append(data, message=attempt.message)
        cloned = {id(clone.place): histories.rows(clone.source.hash) for clone in self.clones}
        for place in places:
            histories, _ = place.check(cloned.get(id(place), ()))
            check_reachable(place.store, place.records, histories)

    def writer(self, name: str) -> None:
        """Do a few things to main."""
        for number in range(self.dice.randint(2, 5)):
            self.work(self.main, MAIN, name, number)

    def work(self, place: Place, branch: str, name: str, number: int) -> None:
        """Do something to a branch; again and again if the outcome is not known."""
        key = f"{name}.{number}"
        attempt = place.new_attempt(key, self.operation(key), branch)
        limit = self.scheduler.now_ms + SNAPSHOT_FILE_GRACE_MS  # then its identity may expire
        while attempt.is_open and self.scheduler.now_ms < limit:
            self.attempt(place, attempt, name, number)
            self.scheduler.pause(self.dice.randint(0, 2_000))

    def operation(self, key: str) -> dict[str, Any]:
        """What to do next: mostly append; changes concern the rows of an earlier operation."""
        earlier = [each.key for each in self.main.records.attempts if each.key != key]
        kind = self.dice.choice(["append"] * 5 + [*CHANGES, "add column", "compute"])
        if not earlier and kind not in NEEDS_NO_ROWS:
            kind = "append"
        rows = [[key, self.dice.randint(0, 9)] for _ in range(self.dice.randint(1, 4))]
        operation: dict[str, Any] = {"kind": kind}
        if kind in ("append", "overwrite"):
            operation["rows"] = rows
        if kind in CHANGES:
            operation["key"] = self.dice.choice(earlier)
        if kind in ("update", "fill"):
            operation["value"] = self.dice.randint(100, 109)
        return operation

    def attempt(self, place: Place, attempt: Attempt, user: str, number: int) -> None:
        """Try once; what is unknown is tried again under the same identity."""
        try:
            table = place.latest(attempt.branch)
            words = {"message": attempt.message, "commit_user": user, "commit_identifier": number}
            attempt.result(self.perform(table, attempt, words))
            self.count("acknowledged")
        except CommitStateUnknown:
            attempt.may_be_published = True
            attempt.is_settled = attempt.operation["kind"] in WITHOUT_IDENTITY
            self.count("unknown")
        except CommitConflict as conflict:
            if "which has expired since" not in str(conflict):
                attempt.refuse()
            self.count("conflict")
        except (OSError, FermionError) as error:
            place.records.complain(place.storage, error, user, attempt.branch)
            self.count(type(error).__name__)
            attempt.failure = error

    def perform(self, table: Table, attempt: Attempt, words: dict[str, Any]) -> Snapshot | None:
        """Carry out an operation; the snapshot, or None if there was nothing to change.

        Parameters
        ----------
        table, attempt
            Of the operation.
        words
            What the commit says of itself.
        """
        made = carry_out(table, attempt, words)
        return made if made.message == attempt.message else None

    def brancher(self, name: str) -> None:
        """Make branches."""
        for number in range(self.dice.randint(1, 2)):
            self.scheduler.pause(self.dice.randint(0, 10_000))
            self.tolerantly(name, partial(self.branch, f"b{number}"), "branch")

    def branch(self, name: str) -> None:
        """Make a branch and work on it; perhaps main moves to it, or it goes."""
        table = self.main.latest()
        kept = table.snapshots()
        table.branches.create(name, version=self.dice.choice([*kept, kept[-1], kept[-1]]).id)
        self.main.records.branches.add(name)
        for number in range(self.dice.randint(0, 3)):
            self.work(self.main, name, name, number)
        if self.dice.random() < 0.7:
            operation = {"kind": "fast-forward", "to": name}
            attempt = self.main.new_attempt(f"{name}.moved", operation)
            self.attempt(self.main, attempt, name, 0)
        if self.dice.random() < 0.3:
            self.main.records.branches.remove(name)
            self.main.records.branches_deleted.add(name)
            table.branches.delete(name)

    def cloner(self, name: str) -> None:
        """Make a clone."""
        self.scheduler.pause(self.dice.randint(0, 20_000))
        self.tolerantly(name, self.clone, "clone")

    def clone(self) -> None:
        """Clone a kept snapshot, work on the clone, and read it."""
        snapshot = self.dice.choice(self.main.latest().snapshots())
        place = Place(self.scheduler, self.main.storage.faults, "clone")
        made = _Clone(place, snapshot)
        self.clones.append(made)
        clone_table(self.main.store, snapshot, place.store, message='{"kind": "clone"}')
        made.is_acknowledged = True
        for number in range(self.dice.randint(0, 2)):
            self.work(place, MAIN, "cloner", number)
        self.observe(place, place.latest())

    def compactor(self, name: str) -> None:
        """Compact main now and then."""
        for _ in range(self.dice.randint(1, 3)):
            self.scheduler.pause(self.dice.randint(0, 10_000))
            self.tolerantly(name, self.compact, "compact")

    def compact(self) -> None:
        """Compact main once."""
        files_max = self.dice.choice([None, 0])
        self.main.latest().compact(threads=1, column_files_max=files_max)

    def expiry(self, name: str) -> None:
        """Expire snapshots now and then."""
        for _ in range(self.dice.randint(1, 5)):
            self.scheduler.pause(self.dice.randint(0, 2 * SNAPSHOT_FILE_GRACE_MS))
            self.tolerantly(name, self.expire, "expire")

    def expire(self) -> None:
        """Expire snapshots once; perhaps remove orphan files."""
        branches = list_branches(self.main.store) if self.dice.random() < 0.3 else []
        expire_snapshots(
            self.main.store,
            branch=self.dice.choice(branches).name if branches else MAIN,
            older_than_ms=self.scheduler.now_ms - self.dice.choice([0, 1_000, 10_000]),
            retain_last=self.dice.randint(1, 3),
            snapshot_file_grace_ms=SNAPSHOT_FILE_GRACE_MS,
        )
        if self.dice.random() < 0.3:
            remove_orphan_files(
                self.main.store,
                older_than_ms=self.scheduler.now_ms - ORPHAN_MS,
            )

    def tagger(self, name: str) -> None:
        """Make tags."""
        for number in range(self.dice.randint(1, 3)):
            self.scheduler.pause(self.dice.randint(0, 10_000))
            self.tolerantly(name, partial(self.tag, f"v{number}"), "tag")

    def tag(self, name: str) -> None:
        """Make a tag; perhaps it goes at once."""
        records, table = self.main.records, self.main.latest()
        kept = table.snapshots()
        tag = table.tags.create(name, version=self.dice.choice(kept).id)
        records.tags[name] = tag.snapshot_id
        if self.dice.random() < 0.2:
            del records.tags[name]
            records.tags_deleted.add(name)
            table.tags.delete(name)

    def reader(self, name: str) -> None:
        """Read now and then."""
        for _ in range(self.dice.randint(3, 6)):
            self.scheduler.pause(self.dice.randint(0, 5_000))
            self.tolerantly(name, self.read, "read")

    def read(self) -> None:
        """All rows of the latest snapshot, of an earlier one, or of a branch."""
        place = self.main
        table = place.latest()
        drawn = self.dice.random()
        if drawn < 0.3:
            table = Table(place.store, self.dice.choice(table.snapshots()))
        elif drawn < 0.5:
            branches = list_branches(place.store)
            if branches:
                table = place.latest(self.dice.choice(branches).name)
        self.observe(place, table)

    def observe(self, place: Place, table: Table) -> None:
        """Read a version; it may expire meanwhile, or its branch go."""
        snapshot, branch = table.snapshot, table.branch
        try:
            rows = rows_of(table)
        except FermionError as error:
            kept = snapshot.id == 0 or snapshot.id >= place.storage.first_kept(branch)
            if kept and branch not in place.records.branches_deleted:
                raise Violation(
                    f"snapshot {snapshot.id} has not expired, and can't be read: {error!r}"
                ) from error
            raise
        place.records.observations.append(Observation(snapshot.id, snapshot.hash, rows, branch))
        self.count("read")

    def tolerantly(self, name: str, action: Callable[[], None], kind: str) -> None:
        """Take part in what may fail; errors of kinds that faults explain are counted."""
        try:
            action()
            self.count(kind)
        except (CommitConflict, CommitStateUnknown, VersionNotFound, InvalidArgumentError) as error:
            self.count(type(error).__name__)
        except (OSError, FermionError) as error:
            self.main.records.complain(self.main.storage, error, name)
            self.count(type(error).__name__)

    def count(self, what: str) -> None:
        """Count an outcome."""
        self.outcomes[what] = self.outcomes.get(what, 0) + 1
