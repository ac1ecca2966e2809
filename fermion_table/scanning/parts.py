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
from fermion_table.planning.plan import LiveFiles, prune_manifests
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
    def _files(self) -> tuple[LiveFiles, object]:
        """The files of its plan."""

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
    _ordinals: range | np.ndarray | None = None  # of the only manifest; None: all

    __repr__ = short_repr

    def scan(self) -> AnyScan:
        """The part as a scan: its `plan` lists the files, `to_batches` reads their rows."""
        return self.of(self._scan)

    def of(self, bare: AnyScan) -> AnyScan:
        """The same of a part that was sent without its scan: see `planned_parts`."""
        manifests = self._manifests
        if self._ordinals is not None:
            (whole,), own = manifests, self._ordinals
            others = {*whole.dead, *set(range(whole.entries)).difference(own)}
            manifests = (msgspec.structs.replace(whole, dead=tuple(sorted(others))),)
        some = msgspec.structs.replace(bare.snapshot, manifests=manifests, tail=self._tail)
        return replace(bare, snapshot=some)


def scan_parts(scan: AnyScan, target: int) -> Iterator[ScanPart[AnyScan]]:
    """See `Scan.parts`; target: Bytes of files a part, and `OPEN_COST_BYTES` for each file."""
    snapshot, store = scan.snapshot, scan.store
    bare = _bare(scan)
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
        for (start, stop), files, size in pieces:
            yield ScanPart(
                files=files,
                bytes=size,
                _scan=bare,
                _manifests=(reference,),
                _ordinals=range(start, stop),
            )
    if small or snapshot.tail:
        yield _part(bare, small, snapshot.tail)


def planned_parts(scan: AnyScan, target: int) -> tuple[AnyScan, Iterator[ScanPart[Any]]]:
    """The files that the plan of a scan lists, in parts for tasks that make their own splits.

    The scan has no limit, and no primary key. Of a part whose files are all of one manifest the
    manifest is read again, by each process that reads parts once.

    Returns: The scan that all parts are `ScanPart.of`, to be sent once; and the parts, small.
    """

    def parts() -> Iterator[ScanPart[Any]]:
        for reference, ordinals, sizes in scan._files[0].listed():
            ends = _ends(np.cumsum(sizes + OPEN_COST_BYTES), target)
            for start, stop in pairwise([0, *ends, len(ordinals)]):
                own = ordinals[start:stop]
                tail = () if reference is not None else scan.snapshot.tail
                yield ScanPart[Any](
                    files=stop - start,
                    bytes=int(sizes[start:stop].sum()),
                    _scan=None,
                    _manifests=() if reference is None else (reference,),
                    _tail=tuple(tail[each] for each in own.tolist()) if tail else (),
                    _ordinals=None if reference is None else own.astype(np.int32),
                )

    return _bare(scan), parts()


def _bare(scan: AnyScan) -> AnyScan:
    """The scan of no file."""
    empty = msgspec.structs.replace(scan.snapshot, manifests=(), tail=(), delta=Delta())
    return replace(scan, snapshot=empty)


def _ends(costs: np.ndarray, target: int) -> list[int]:
    """Where to cut files into pieces of about equal cost: ordinals within them.

    costs: ``int64``, of all files up to each one.
    """
    count = min(-(-int(costs[-1]) // target), len(costs))
    ends = np.searchsorted(costs, float(costs[-1]) * np.arange(1, count) / count)
    cuts: list[int] = ends[np.diff(ends, prepend=0) > 0].tolist()
    return cuts


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
    if min(-(-_cost(reference) // target), reference.live_entries) < 2:
        return []
    with in_time(store), until_expiry(store, snapshot):
        sizes = file_sizes(store, reference)
    alive = np.ones(reference.entries, bool)
    if reference.dead:
        alive[list(reference.dead)] = False
        sizes = sizes * alive
    starts = [0, *_ends(np.cumsum(sizes + OPEN_COST_BYTES * alive), target)]
    sums = (np.add.reduceat(each, starts).tolist() for each in (alive * 1, sizes))
    bounds = pairwise([*starts, reference.entries])
    return list(zip(bounds, *sums, strict=True))
