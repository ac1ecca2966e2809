"""The parts of a scan, each of which is planned by whoever reads it.

Dividing a scan costs one column of those manifests that
have to be cut, nothing file by file, and the memory of a few manifests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
import numpy as np

from fermion.display import short_repr
from fermion.engine import read_ahead
from fermion.exports import dataclass
from fermion_table.metadata.history import until_expiry
from fermion_table.metadata.manifest import Entry, ManifestReference
from fermion_table.metadata.manifest_store import file_sizes
from fermion_table.metadata.snapshot import Delta, Snapshot
from fermion_table.options import OPEN_COST_BYTES
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.plan import prune_manifests
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.store import AtomicStore, in_time


class Divisible(Protocol):
    """What is asked of a scan, which is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def store(self) -> AtomicStore:
        """Of the table."""

    @property
    def snapshot(self) -> Snapshot:
        """The files."""

    @property
    def table_schema(self) -> TableSchema:
        """Which the filter is bound to."""

    @property
    def filter(self) -> TableFilter | None:
        """Rows that are wanted; None: all."""

    @property
    def key(self) -> object:
        """By which rows are merged; None: they are not."""

    @property
    def limit(self) -> int | None:
        """Rows that are wanted, at most."""

    @property
    def threads(self) -> int | None:
        """That read; None: as many as there are processors."""


AnyScan = TypeVar("AnyScan", bound=Divisible)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPart(Generic[AnyScan]):
    """Some files of a scan, which are not looked at before the part is read. Small, picklable.

    Attributes
    ----------
    files, bytes
        How many data files there are, and their bytes (those of column files beside them do not
        count), before the filter leaves out any of them.
    """

    files: int
    bytes: int
    _scan: AnyScan  # of a snapshot without files
    _manifests: tuple[ManifestReference, ...]
    _tail: tuple[Entry, ...] = ()
    _ordinals: tuple[int, int] | None = None  # of the only manifest; None: all

    __repr__ = short_repr

    def scan(self) -> AnyScan:
        """The part as a scan: its `plan` lists the files, `to_batches` reads their rows."""
        manifests = self._manifests
        if self._ordinals is not None:
            (whole,), (start, stop) = manifests, self._ordinals
            others = {*whole.dead, *range(start), *range(stop, whole.entries)}
            manifests = (msgspec.structs.replace(whole, dead=tuple(sorted(others))),)
        snapshot = self._scan.snapshot
        some = msgspec.structs.replace(snapshot, manifests=manifests, tail=self._tail)
        return replace(self._scan, snapshot=some)


def scan_parts(scan: AnyScan, target: int) -> Iterator[ScanPart[AnyScan]]:
    """See `Scan.parts`; target: Bytes of files a part, and `OPEN_COST_BYTES` for each file."""
    snapshot, store = scan.snapshot, scan.store
    bare = replace(
        scan, snapshot=msgspec.structs.replace(snapshot, manifests=(), tail=(), delta=Delta())
    )
    if scan.key is not None or scan.limit is not None:
        whole = _part(bare, snapshot.manifests, snapshot.tail)
        yield replace(whole, files=snapshot.totals.files)  # some manifests may be lists of others
        return
    with in_time(store), until_expiry(store, snapshot):
        references, _ = prune_manifests(store, snapshot, scan.filter, scan.table_schema)
    tasks = (partial(_cut, store, snapshot, each, target) for each in references)
    if "://" in store.location:
        threads = scan.threads or os.cpu_count() or 1
        cuts = read_ahead(tasks, threads + 1, threads=threads)
    else:  # most of the time goes into Python, which threads would only pass to and fro
        cuts = (task() for task in tasks)
    small: list[ManifestReference] = []
    for reference, pieces in zip(references, cuts, strict=True):
        fits = not pieces and sum(map(_cost, small)) + _cost(reference) <= target
        if small and not fits:
            yield _part(bare, small)
            small = []
        if not pieces:
            small.append(reference)
        for ordinals, files, size in pieces:
            yield ScanPart(
                files=files,
                bytes=size,
                _scan=bare,
                _manifests=(reference,),
                _ordinals=ordinals,
            )
    if small or snapshot.tail:
        yield _part(bare, small, snapshot.tail)


def _cost(reference: ManifestReference) -> int:
    return reference.bytes + OPEN_COST_BYTES * reference.live_entries


def _part(
    bare: AnyScan, references: Sequence[ManifestReference], tail: tuple[Entry, ...] = ()
) -> ScanPart[AnyScan]:
    """A part of whole manifests, and of files that the snapshot itself lists."""
    return ScanPart(
        files=sum(each.live_entries for each in references) + len(tail),
        bytes=sum(each.bytes for each in references) + sum(each.size for each in tail),
        _scan=bare,
        _manifests=tuple(references),
        _tail=tail,
    )


Piece = tuple[tuple[int, int], int, int]
"""Ordinals of a manifest's files, stop exclusive; how many there are, and their bytes."""


def _cut(
    store: AtomicStore, snapshot: Snapshot, reference: ManifestReference, target: int
) -> list[Piece]:
    """Where to cut a manifest into pieces of about equal cost; none: it is small enough.

    Raises CorruptMetadata: The manifest is not what its reference says.
    """
    count = min(-(-_cost(reference) // target), reference.live_entries)
    if count < 2:
        return []
    with in_time(store), until_expiry(store, snapshot):
        sizes = file_sizes(store, reference)
    alive = np.ones(reference.entries, bool)
    if reference.dead:
        alive[list(reference.dead)] = False
        sizes = sizes * alive
    costs = np.cumsum(sizes + OPEN_COST_BYTES * alive)
    ends = np.searchsorted(costs, costs[-1] * np.arange(1, count) / count)
    starts = np.concatenate(([0], ends[np.diff(ends, prepend=0) > 0]))
    sums = (np.add.reduceat(each, starts).tolist() for each in (alive * 1, sizes))
    bounds = pairwise([*starts.tolist(), reference.entries])
    return list(zip(bounds, *sums, strict=True))
