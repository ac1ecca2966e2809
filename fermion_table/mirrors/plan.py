"""Which copies a mirror keeps, needs and drops to show a snapshot. Pure: no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from fermion.exports import dataclass
from fermion_table.mirrors.copies import copy_name, present_ids, unit_and_schema, unit_of
from fermion_table.mirrors.target import MirrorTarget, StepKind
from fermion_table.planning.split import FileSplit, Split
from fermion_table.schema.schema import TableSchema, has_buckets

RESERVED = "fermion."


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a mirror comes to show the splits of a snapshot.

    added: Splits without a copy that can be read, by the names of the copies that they get.
    removed: Names of copies that are not shown any more.
    """

    added: Mapping[str, Split]
    removed: tuple[str, ...]

    def kind(self, *, changes_rows: bool) -> StepKind:
        """What the step does, as targets say it."""
        if not self.removed:
            return "append" if self.added else "none"
        if not self.added:
            return "delete"
        return "overwrite" if changes_rows else "replace"


def plan_copies(
    splits: Sequence[Split],
    live: Collection[str],
    schema_hash: str,
    is_readable: Callable[[str, Split], bool],
) -> CopyPlan:
    """Compare the splits of a snapshot with the copies that a mirror shows.

    live: Names of those copies.
    schema_hash: Of the snapshot's schema.
    is_readable: Whether a copy of a split that was written under a schema, which the digits in its
        name tell, is read as the split is now.
    """
    by_unit: dict[str, list[str]] = defaultdict(list)
    for name in sorted(live):
        by_unit[unit_and_schema(name)[0]].append(name)
    kept: set[str] = set()
    added: dict[str, Split] = {}
    for split in splits:
        unit = unit_of(split)
        usable = (
            name for name in by_unit.get(unit, ()) if is_readable(unit_and_schema(name)[1], split)
        )
        known = next(usable, None)
        if known is None:
            added[copy_name(unit, schema_hash)] = split
        else:
            kept.add(known)
    return CopyPlan(added, tuple(sorted(set(live) - kept)))


def reads_alike(
    target: MirrorTarget,
    old: TableSchema,
    new: TableSchema,
    split: Split,
    versions: Mapping[int, TableSchema],
) -> bool:
    """Whether a copy that was written under one schema shows a split under another one.

    A column of which the split has no data need not be in the copy: it is null. Columns that were
    dropped may be in it, unless the target would take one for a new column of its name.

    versions: Schemas that the split's files were written with, by id.
    """
    if old is new:
        return True
    if old.partition_by != new.partition_by or not _merges_alike(split, old, new):
        return False
    held = present_ids(split, versions)
    for field in new.fields:
        before = old.by_id.get(field.id)
        if field.id in held or field.stored_initial_default is not None:
            if before is None or target.form(before) != target.form(field):
                return False
        elif target.by_name:
            same_name = old.by_name.get(field.name)
            if same_name is not None and same_name.id != field.id and same_name.id in held:
                return False
    return True


def _merges_alike(split: Split, old: TableSchema, new: TableSchema) -> bool:
    """Whether the rows of files are merged by the same rules under two schemas."""
    if isinstance(split, FileSplit):
        return True
    mine, theirs = (
        {name: text for name, text in each.properties.items() if not name.startswith(RESERVED)}
        for each in (old, new)
    )
    return mine == theirs and old.primary_key == new.primary_key


def compaction_changes_rows(schema: TableSchema) -> bool:
    """Whether compactions of a table may change what a scan shows: rows expire, or appear."""
    if not has_buckets(schema):
        return False
    names = {name.replace("-", "_"): text.strip() for name, text in schema.properties.items()}
    merges = names.get("deletion_vectors.merge_on_read", "true").lower() != "false"
    return "record_level.expire_time" in names or not merges
