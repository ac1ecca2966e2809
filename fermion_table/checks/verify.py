"""Verifying a table: snapshots, parents' hashes, manifests, sorted runs of trees, data files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import msgspec

from fermion.display import short_repr
from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata, TableError, TableNotFound
from fermion_table.merging.sections import TreeFile, sorted_runs
from fermion_table.metadata import pointers
from fermion_table.metadata.bucket_counts import bucket_counts
from fermion_table.metadata.history import SchemaVersions, counts, list_ids
from fermion_table.metadata.manifest import (
    DeletionVector,
    Entry,
    ManifestReference,
    as_data_file,
    check_layouts,
    decode_manifest,
    problem_beside,
)
from fermion_table.metadata.manifest_store import (
    inherited,
    listed_manifests,
    manifests_of,
    read_list,
    read_stored,
)
from fermion_table.metadata.packed_manifest import decode_packed
from fermion_table.metadata.references import Reference, load_branch, load_tag, snapshot_of
from fermion_table.metadata.shared_files import SharedFiles, is_outside, options_for
from fermion_table.metadata.snapshot import Snapshot, SnapshotReference, Totals, decode_snapshot
from fermion_table.schema.schema import SchemaReference
from fermion_table.storage import json_codec
from fermion_table.storage.json_codec import read_hashed
from fermion_table.storage.location import location_size
from fermion_table.storage.paths import (
    BRANCH_DIRECTORY,
    MAIN,
    TAG_DIRECTORY,
    branch_path,
    snapshot_path,
)
from fermion_table.storage.store import AtomicStore


def check_trees(entries: Iterable[Entry]) -> Iterator[CorruptMetadata]:
    """What is wrong with the trees of a table: each run has files without keys in common.

    entries: Live files, with what they inherit; those without a bucket belong to no tree.
    Yields: Names the file, or the run; one a tree.
    """
    trees: dict[tuple[Any, ...], list[TreeFile]] = {}
    for entry in entries:
        if entry.bucket is None:
            continue
        if not _has_bounds(entry):
            found = f"{entry.min_key!r} to {entry.max_key!r} at level {entry.level}"
            yield CorruptMetadata(entry.file, "a level and bounds of keys", found)
            continue
        trees.setdefault((entry.partition, entry.bucket), []).append(_tree_file(entry))
    for (partition, bucket), files in trees.items():
        try:
            sorted_runs(files)
        except CorruptMetadata as error:
            where = f"{error.path} of bucket {bucket} of partition {partition!r}"
            yield CorruptMetadata(where, error.expected, error.found)


def _has_bounds(entry: Entry) -> bool:
    return isinstance(entry.min_key, str) and isinstance(entry.max_key, str) and entry.level >= 0


def _tree_file(entry: Entry) -> TreeFile:
    """A file whose keys are compared as texts: hexadecimal digits order as the bytes do."""
    return TreeFile(
        min_key=entry.min_key,
        max_key=entry.max_key,
        level=entry.level,
        order=entry.sequence_number if entry.level == 0 else 0,
        size=entry.size,
    )


CheckFile = Callable[[Entry], Iterable[str]]
ManifestKey = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """One object that is not what its referrer, or the format, says.

    path: The object, relative to the table.
    """

    path: str
    expected: str
    found: str

    __repr__ = short_repr

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was checked, and the problems.

    Attributes
    ----------
    snapshots, manifests, schemas, data_files
        Objects checked, each once.
    external_files
        Of them, those of other tables (a clone's).
    data_bytes
        Bytes of the data files.
    problems
        In the order found; empty if the table is OK.
    """

    snapshots: int
    manifests: int
    schemas: int
    data_files: int
    external_files: int
    data_bytes: int
    problems: tuple[Problem, ...]

    __repr__ = short_repr

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __str__(self) -> str:
        counts = (
            f"{self.snapshots} snapshots, {self.manifests} manifests, {self.schemas} schemas, "
            f"{self.data_files} data files ({self.data_bytes} bytes)"
        )
        if self.external_files:
            counts += f", {self.external_files} of them in other tables"
        verdict = "OK" if self.ok else f"{len(self.problems)} problems"
        return "\n".join([f"{counts}: {verdict}", *(f"  {problem}" for problem in self.problems)])


def verify(
    store: AtomicStore,
    *,
    check_file: CheckFile | None = None,
    external: bool = True,
) -> VerifyReport:
    """Check every snapshot of all branches that has not expired, tags, and what they refer to.

    Nothing is taken from a cache. Each object is read once, data files only measured.

    check_file: Looks into a data file and says what is wrong with it, in words.
    external: Whether files of other tables (a clone's) are looked at too.
    Raises TableNotFound: No snapshot at all.
    """
    if not list_ids(store):
        raise TableNotFound(f"{store.location}: no table here (no snapshot)")
    walk = _Walk(store, check_file, external)
    walk.check_branch(MAIN)
    for path in sorted(item.path for item in store.list(BRANCH_DIRECTORY)):
        if path.endswith("/branch.json"):
            walk.check_branch(path.split("/")[1])
    for path in sorted(item.path for item in store.list(TAG_DIRECTORY)):
        if path.endswith(".json"):
            walk.check_tag(path)
    return walk.report()


@dataclass(slots=True)
class _Walk:
    store: AtomicStore
    check_file: CheckFile | None
    looks_outside: bool = True
    branch: str = MAIN
    problems: list[Problem] = field(default_factory=list)
    snapshots: int = 0
    child: Snapshot | None = None
    manifests: dict[ManifestKey, tuple[Entry, ...] | None] = field(default_factory=dict)
    schemas: set[SchemaReference] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    vectors: set[DeletionVector] = field(default_factory=set)
    external: set[str] = field(default_factory=set)
    shared: SharedFiles = field(init=False)

    def __post_init__(self) -> None:
        self.shared = SharedFiles(self.store)

    def report(self) -> VerifyReport:
        return VerifyReport(
            snapshots=self.snapshots,
            manifests=len(self.manifests),
            schemas=len(self.schemas),
            data_files=len(self.files),
            external_files=len(self.external),
            data_bytes=sum(self.files.values()),
            problems=tuple(self.problems),
        )

    def check_branch(self, branch: str) -> None:
        """All slots of a branch, and that they go on from where it leaves another."""
        self.branch, self.child = branch, None
        left: SnapshotReference | None = None
        if branch != MAIN:
            left = self._check_copy(branch_path(branch), lambda: load_branch(self.store, branch))
        marks = pointers.marks(self.store, branch)
        ids = list_ids(self.store, branch)
        newest = max(ids, default=0 if left is None else left.id)
        for mark in marks:
            if mark.greatest > newest:
                found = f"{mark.greatest}: nothing can be committed until repair_table removes it"
                self._problem(mark.path, f"the id of a snapshot, up to {newest}", found)
        possible = [mark for mark in marks if mark.greatest <= newest]
        earliest = max((mark.kept for mark in possible), default=0)
        recorded = max((mark.recorded for mark in possible), default=0)
        self.check_ids([snapshot_id for snapshot_id in ids if not 0 < snapshot_id < earliest])
        for snapshot_id in reversed(ids):
            has_data = not 0 < snapshot_id < earliest
            if has_data or self._is_next(snapshot_id):
                has_changelog = snapshot_id >= recorded
                self.check_slot(snapshot_id, has_data=has_data, has_changelog=has_changelog)
        child = self.child
        if left is not None and child is not None and child.parent != left:
            if child.id > left.id + 1 and left.id + 1 < earliest:
                return  # what came after the snapshot that it left has expired
            path = snapshot_path(child.id, branch)
            self._problem(path, f"parent {left}, as in branch.json", f"parent {child.parent}")

    def check_tag(self, path: str) -> None:
        """A tag's copy of its snapshot, and what that refers to."""
        name = path.rsplit("/", 1)[-1].removesuffix(".json")
        self._check_copy(path, lambda: load_tag(self.store, name))

    def _check_copy(
        self, path: str, load: Callable[[], Reference | None]
    ) -> SnapshotReference | None:
        try:
            reference = load()
            if reference is None:
                raise FileNotFoundError(path)
            snapshot = snapshot_of(reference, path)
        except (TableError, OSError) as error:
            self._error(path, "a copy of a snapshot", error)
            return None
        self._check_content(snapshot, path)
        return snapshot.reference

    def check_ids(self, ids: list[int]) -> None:
        """Ids are contiguous but for one gap, of what expired, after snapshot 0."""
        if self.branch == MAIN and ids[:1] != [0]:
            self._problem(snapshot_path(0), "the creation, which never expires", "no such object")
        after_gap = ids[1:] if ids[:1] == [0] else ids
        for before, after in itertools.pairwise(after_gap):
            for missing in range(before + 1, after):
                path = snapshot_path(missing, self.branch)
                self._problem(path, f"a snapshot (there is a later one, {after})", "no such object")

    def check_slot(
        self, snapshot_id: int, *, has_data: bool = True, has_changelog: bool = True
    ) -> None:
        """One slot, newest first: its bytes against the child's parent hash, then its content."""
        path = snapshot_path(snapshot_id, self.branch)
        child, self.child = self.child, None
        try:
            data = _read_snapshot(self.store, path)
            self._check_parent_of(
                child, path, SnapshotReference(snapshot_id, json_codec.content_hash(data))
            )
            snapshot = decode_snapshot(data, path)
        except (TableError, OSError) as error:
            self._error(path, "a snapshot", error)
            return
        self.snapshots += 1
        self.child = snapshot
        if child.parent_void if child is not None else not self._counts(snapshot):
            return  # its transaction was given up, or is not committed: its files may be gone
        if snapshot.id != snapshot_id:
            self._problem(path, f"snapshot {snapshot_id}", f"snapshot {snapshot.id}")
        if child is not None:
            self._check_order(snapshot, child, path)
        if has_data:
            self._check_content(snapshot, path)
        elif has_changelog:
            self._check_recorded(snapshot)

    def _counts(self, snapshot: Snapshot) -> bool:
        """Whether the last snapshot of a branch is part of its history."""
        try:
            return counts(self.store, snapshot, self.branch)
        except (TableError, OSError) as error:
            self._error(snapshot_path(snapshot.id, self.branch), "a decision", error)
            return True

    def _is_next(self, snapshot_id: int) -> bool:
        """Whether an expired slot is the parent: a writer that stalled may have taken it since."""
        parent = self.child.parent if self.child is not None else None
        if parent is None or parent.id != snapshot_id:
            return False
        with contextlib.suppress(OSError):
            data = read_hashed(self.store, snapshot_path(snapshot_id, self.branch), parent.hash)
            return json_codec.content_hash(data) == parent.hash
        return False

    def _check_parent_of(self, child: Snapshot | None, path: str, found: SnapshotReference) -> None:
        """The hash a child has for its parent; one that expired can't be checked."""
        parent = child.parent if child is not None else None
        if parent is not None and parent.id == found.id and parent.hash != found.hash:
            by = f"hash {parent.hash} (the parent of snapshot {parent.id + 1})"
            self._problem(path, by, f"hash {found.hash}")

    def _check_order(self, snapshot: Snapshot, child: Snapshot, path: str) -> None:
        if snapshot.table_uuid != child.table_uuid:
            self._problem(path, f"table {child.table_uuid}", f"table {snapshot.table_uuid}")
        for name in ("time_ms", "row_id_next", "sequence_next"):
            mine, later = getattr(snapshot, name), getattr(child, name)
            if mine > later:
                self._problem(path, f"{name} up to {later} (snapshot {child.id})", str(mine))

    def _check_recorded(self, snapshot: Snapshot) -> None:
        """The metadata and changelog files of a snapshot whose data has expired."""
        self._check_schema(snapshot.schema)
        for reference in self._manifests_of(snapshot):
            self._manifest(reference)
        for entry in self._changelog(snapshot):
            self._check_data_file(entry)

    def _check_content(self, snapshot: Snapshot, path: str) -> None:
        self._check_schema(snapshot.schema)
        for reference in self._manifests_of(snapshot):
            self._manifest(reference)
        entries = list(snapshot.tail)
        listed, whole = self._listed(snapshot)
        for reference in listed:
            stored = self._manifest(reference)
            whole = whole and stored is not None
            dead = set(reference.dead)
            alive = [entry for at, entry in enumerate(stored or ()) if at not in dead]
            entries += [_of_tree(entry, reference) for entry in alive]
        for entry in (*entries, *self._changelog(snapshot)):
            self._check_data_file(entry)
        if whole:
            self._check_totals(snapshot, entries, path)
        for problem in (
            *self._tree_problems(snapshot, entries),
            *self._column_problems(snapshot, entries),
        ):
            self._problem(path, f"{problem.expected} in {problem.path}", problem.found)

    def _manifests_of(self, snapshot: Snapshot) -> Iterator[ManifestReference]:
        """The manifests that a snapshot refers to, as far as lists of them can be read."""
        changes = msgspec.structs.replace(snapshot, manifests=())
        yield from (*snapshot.manifests, *self._listed(snapshot)[0])
        yield from manifests_of(self.store, changes)

    def _listed(self, snapshot: Snapshot) -> tuple[list[ManifestReference], bool]:
        """The manifests of a snapshot's state, and whether all lists of them can be read."""
        found: list[ManifestReference] = []
        whole = True
        for reference in snapshot.manifests:
            try:
                found += listed_manifests(self.store, [reference])
            except (TableError, OSError):  # `_manifest` tells of it
                whole = False
        return found, whole

    def _tree_problems(
        self, snapshot: Snapshot, entries: Sequence[Entry]
    ) -> Iterator[CorruptMetadata]:
        yield from check_trees(entries)
        of_trees = [entry for entry in entries if entry.bucket is not None]
        try:
            if of_trees:
                bucket_counts(of_trees, SchemaVersions(self.store, snapshot))
        except CorruptMetadata as error:
            yield error

    def _column_problems(
        self, snapshot: Snapshot, entries: Sequence[Entry]
    ) -> Iterator[CorruptMetadata]:
        layouts = {entry.layout for entry in entries if entry.column_files}
        if not layouts:
            return
        try:
            check_layouts(layouts, SchemaVersions(self.store, snapshot), self.store.location)
        except CorruptMetadata as error:
            yield error

    def _changelog(self, snapshot: Snapshot) -> list[Entry]:
        """The changelog files of a snapshot, as far as they are known."""
        if snapshot.changelog is None:
            return []
        stored = [self._manifest(reference) for reference in snapshot.changelog.manifests]
        return [*snapshot.changelog.entries, *(each for some in stored for each in some or ())]

    def _check_totals(self, snapshot: Snapshot, entries: list[Entry], path: str) -> None:
        counts = msgspec.structs.asdict(Totals.of(entries))
        counts["files"] = len({entry.file for entry in entries})
        for name, counted in counts.items():
            said = getattr(snapshot.totals, name)
            if said != counted:
                self._problem(path, f"{said} {name} in total, as it says", f"{counted}")

    def _manifest(self, reference: ManifestReference) -> tuple[Entry, ...] | None:
        key = (reference.path, reference.hash, reference.size, reference.entries)
        if key not in self.manifests:
            self.manifests[key] = self._read_manifest(reference)
        return self.manifests[key]

    def _read_manifest(self, reference: ManifestReference) -> tuple[Entry, ...] | None:
        path = reference.path
        try:
            data = read_stored(self.store, path, reference.hash, reference.size)
            if reference.kind == "packed":
                entries = decode_packed(data, path)
            elif reference.kind == "list":
                read_list(self.store, reference)
                return ()
            else:
                entries = decode_manifest(data, path, entries_max=reference.entries).entries
        except (TableError, OSError) as error:
            self._error(path, "a manifest", error)
            return None
        if len(entries) != reference.entries:
            self._problem(path, f"{reference.entries} entries", str(len(entries)))
            return None
        return entries

    def _check_schema(self, reference: SchemaReference) -> None:
        if reference in self.schemas:
            return
        self.schemas.add(reference)
        try:
            read_stored(self.store, reference.path, reference.hash, reference.size)
        except (TableError, OSError) as error:
            self._error(reference.path, "a schema", error)

    def _check_data_file(self, entry: Entry) -> None:
        vector = entry.deletion_vector
        if vector is not None and vector not in self.vectors:
            self.vectors.add(vector)
            end = vector.offset + vector.size
            self._check_size(vector.path, end, is_outside(vector.path), exact=False)
        problem = problem_beside(entry.rows, entry.bucket, entry.column_files)
        if entry.column_files and problem is not None:
            self._problem(entry.file, *problem)
        for beside in (entry.column_files, entry.indexes):
            for each in beside:
                self._check_data_file(as_data_file(each))
        for blobs in entry.blob_files:
            if blobs.file not in self.files:
                self.files[blobs.file] = blobs.size
                is_outside_here = blobs.external_path is not None
                if self.looks_outside or not is_outside_here:
                    self._check_size(blobs.file, blobs.size, is_outside_here)
        if entry.file in self.files:
            return
        self.files[entry.file] = entry.size
        if entry.external_path is not None:
            self.external.add(entry.external_path)
            if not self.looks_outside:
                return
        outside = entry.external_path is not None
        if self._check_size(entry.file, entry.size, outside) and self.check_file is not None:
            for found in self.check_file(entry):
                self._problem(entry.file, "a valid data file", found)

    def _check_size(self, path: str, expected: int, outside: bool, *, exact: bool = True) -> bool:
        """Whether a file has the size it should have."""
        try:
            found = self._size(path, outside)
        except (TableError, OSError) as error:
            self._error(path, f"a file of {expected} bytes", error)
            return False
        if found < expected or (exact and found != expected):
            at_least = "" if exact else "at least "
            self._problem(path, f"{at_least}{expected} bytes", f"{found} bytes")
            return False
        return True

    def _size(self, path: str, outside: bool) -> int:
        """Bytes of a file: of this table by its name, of another one by its location."""
        if outside:
            location = self.shared.checked(path)
            return location_size(location, options_for(self.store, location))
        return self.store.size(path)

    def _error(self, path: str, expected: str, error: Exception) -> None:
        if isinstance(error, CorruptMetadata):
            self._problem(error.path, error.expected, error.found)
        elif isinstance(error, FileNotFoundError):
            self._problem(path, expected, "no such object")
        else:
            self._problem(path, expected, str(error))

    def _problem(self, path: str, expected: str, found: str) -> None:
        self.problems.append(Problem(path, expected, found))


def _of_tree(entry: Entry, reference: ManifestReference) -> Entry:
    """An entry of a manifest; one of a tree with what it inherits, which says what run it is of."""
    return entry if entry.bucket is None else inherited(entry, reference)


def _read_snapshot(store: AtomicStore, path: str) -> bytes:
    """The bytes of a snapshot, which are read again where they are corrupt."""
    data = store.read(path)
    try:
        decode_snapshot(data, path)
    except CorruptMetadata:
        return store.read(path)
    except TableError:  # it needs a newer reader
        return data
    return data
