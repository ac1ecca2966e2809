"""What expiry and the removal of orphan files share: result, retries, directories."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal, TypeVar

from fermion.display import short_repr
from fermion.exports import dataclass
from fermion_table.errors import TableError
from fermion_table.metadata import pointers
from fermion_table.metadata.references import list_branches
from fermion_table.storage.paths import (
    DATA_DIRECTORY,
    DELETION_DIRECTORY,
    MAIN,
    MANIFEST_DIRECTORY,
    PENDING_DIRECTORY,
    PROBE_DIRECTORY,
    SCHEMA_DIRECTORY,
)
from fermion_table.storage.store import AtomicStore

_Plan = TypeVar("_Plan")

ORPHAN_DIRECTORIES = (
    DATA_DIRECTORY,
    DELETION_DIRECTORY,
    MANIFEST_DIRECTORY,
    SCHEMA_DIRECTORY,
    PENDING_DIRECTORY,
    PROBE_DIRECTORY,
)
EXPIRY_TRIES = 3
"""How often an expiry begins anew where another one gets in its way."""


Outcome = Literal["done", "left", "failed", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One step of `Table.maintain`.

    name: ``compact``, ``expire`` or ``remove_orphans``.
    outcome: ``done``; ``left``: concurrent commits have left something to the next run; ``failed``;
        or ``off`` by the policy.
    text: What was done, would be done, or failed, in words.
    figures: Numbers of the result, by name.
    """

    name: str
    outcome: Outcome
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)

    __repr__ = short_repr

    def __str__(self) -> str:
        said = self.text.replace("\n", "; ")
        return ": ".join([self.name, *([] if self.outcome == "done" else [self.outcome]), said])


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """What was deleted, or with ``dry_run`` would have been.

    Attributes
    ----------
    snapshots
        Snapshots expired by this run.
    slots
        Snapshot files deleted of snapshots that expired, now or earlier.
    tags
        Tags whose time was over.
    consumers
        Positions of consumers that had said nothing for too long.
    files
        Data files and deletion vectors.
    objects
        Manifests, schemas, temporary files.
    bytes
        Of files and objects.
    paths
        Everything deleted, sorted.
    dry_run
        Whether nothing was.
    retries
        How often it began anew, as another expiry deleted what it was reading.
    seconds
        From begin to end.
    steps
        Of `Table.maintain`: what each step did.
    """

    snapshots: int = 0
    slots: int = 0
    tags: int = 0
    consumers: int = 0
    files: int = 0
    objects: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = ()
    dry_run: bool = False
    retries: int = 0
    seconds: float = field(default=0.0, compare=False)
    steps: tuple[MaintenanceStep, ...] = ()

    __repr__ = short_repr

    @property
    def ok(self) -> bool:
        """Whether no step has failed."""
        return all(step.outcome != "failed" for step in self.steps)

    def __str__(self) -> str:
        if self.steps:
            return "\n".join(map(str, self.steps))
        gone = {
            "snapshots": self.snapshots,
            "snapshot files": self.slots,
            "tags": self.tags,
            "consumers": self.consumers,
            "data files": self.files,
            "metadata objects": self.objects,
        }
        listed = ", ".join(f"{count:,} {noun}" for noun, count in gone.items() if count)
        verb = "would delete" if self.dry_run else "deleted"
        return f"{verb} {listed or 'nothing'} ({self.bytes:,} bytes)"


def despite_expiry(store: AtomicStore, plan: Callable[[], _Plan]) -> tuple[_Plan, int]:
    """What a plan gives, made anew where what it reads was deleted by another expiry; how often."""
    for tried in itertools.count():
        seen = _expired_before(store)
        try:
            return plan(), tried
        except (TableError, OSError):
            if tried == EXPIRY_TRIES or _expired_before(store) == seen:
                raise
    raise AssertionError


def _expired_before(store: AtomicStore) -> dict[str, tuple[int, int]]:
    """What has expired of every branch: snapshots, and changelogs."""
    names = [MAIN, *(left.name for left in list_branches(store))]
    marks = {name: pointers.marks(store, name) for name in names}
    return {
        name: (max(mark.kept for mark in found), max(mark.recorded for mark in found))
        for name, found in marks.items()
    }


def is_data(path: str) -> bool:
    """Whether a path is that of a data file or a deletion vector."""
    return path.startswith((f"{DATA_DIRECTORY}/", f"{DELETION_DIRECTORY}/"))
