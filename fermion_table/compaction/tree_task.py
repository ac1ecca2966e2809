"""Compaction of trees, carried out: a tree is one task, which merges its sections."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain

import msgspec

from fermion.engine import iterate_ahead
from fermion.exports import dataclass
from fermion_table.compaction.expired_rows import ExpiredRows, expired_rows
from fermion_table.compaction.marking import Marking, OlderRows
from fermion_table.compaction.task import (
    CompactionGroup,
    CompactionMessage,
    CompactionTask,
    dead_blob_files,
    slim,
)
from fermion_table.compaction.tree import Runs, TreePlan, plan_tree, universal_options
from fermion_table.compaction.tree_changelog import PlannedOn, TreeChangelog, tree_changelog
from fermion_table.compaction.universal import due_trees
from fermion_table.merge_engines.key_groups import Unfoldable, is_retraction
from fermion_table.merging.fold import keeps_retractions
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.merging.sections import Section, TreeFile, section_of, sorted_runs
from fermion_table.metadata.bucket_counts import bucket_counts
from fermion_table.metadata.history import expiry_guard
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Producer
from fermion_table.options import MIB
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.partition_pruning import partitions_that_may_match
from fermion_table.planning.plan import splits_of
from fermion_table.planning.tree_plan import Tree, trees_of
from fermion_table.reading.split_reader import SplitReader
from fermion_table.reading.whole_rows import column_reader, known_blobs
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.trees.section_reader import KeyedRows, merged_rows
from fermion_table.writing.changelog_writer import ChangelogWriter
from fermion_table.writing.deletions import without_nulls
from fermion_table.writing.incoming_rows import partition_of
from fermion_table.writing.tree_writer import RunBatch, TreeWriter
from fermion_table.writing.writer_message import WriteSettings

AHEAD_BYTES_MIN = 16 * MIB
"""Of files this large together the next rows are merged while some are written."""
AHEAD_WINDOWS = 4
"""So many windows of rows (see `merge_reader`): merging goes on while a whole stripe is encoded."""
SMALL_BYTES = MIB
"""Files that are no larger together are merged as one section: a section each takes longer."""
HELD_BYTES = 48 * MIB
"""Rows of all runs that are held: more than for a scan, as a page of numbers lies in several pieces
of a run, and is read for each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTask(CompactionTask):
    """The newest runs of a tree, to become one. Picklable.

    schema, key: The table's: what is written, and what rows are merged by.
    snapshot_id: The snapshot that the task was planned on.
    rewrites, upgrades, drops, older: See `TreePlan`.
    expired: Finds the rows that are removed because they have expired; None: none is.
    producer, changelog: See `tree_changelog`.
    moved_blobs: Blob files whose values are copied, by name.
    """

    schema: TableSchema
    key: PrimaryKey
    reader: SplitReader
    settings: WriteSettings
    snapshot_id: int
    bucket: int
    total_buckets: int
    level: int
    rewrites: tuple[tuple[Section, ...], ...]
    upgrades: tuple[TreeFile, ...]
    drops: bool
    older: Runs = ()
    expired: ExpiredRows | None = None
    producer: Producer | None = None
    changelog: TreeChangelog | None = None
    moved_blobs: frozenset[str] = frozenset()

    @property
    def upgraded(self) -> tuple[Entry, ...]:
        """Files that move to another level of their tree, without being rewritten."""
        return tuple(file.entry for file in self.upgrades)

    def rewrite(self) -> CompactionMessage:
        """Merge the sections into new files.

        Keys that can't be folded stay as they are, with a warning; so do files that have nothing
        else to be folded. Where that holds for all files, the message has none.
        """
        moved = tuple(msgspec.structs.replace(each, level=self.level) for each in self.upgraded)
        written: list[Entry] = []
        kept: set[str] = set()
        unfoldable: list[Unfoldable] = []
        read = [*self.group.entries, *(file.entry for run in self.older for file in run)]
        marking = Marking(self.older, self.reader, self.store)
        with OwnedFiles(self.store) as owned:
            writer = TreeWriter(
                owned,
                self.schema,
                self.key,
                settings=self.settings,
                known_blobs=known_blobs(self.reader, read, self.moved_blobs),
            )
            for sections in self.rewrites:
                files = [file for section in sections for file in section.files]
                older = marking.find(files)
                if self._is_left_alone(sections, older, unfoldable):
                    kept.update(file.entry.file for file in files)
                else:
                    written += self._write(writer, sections, older, unfoldable)
            rewritten = tuple(each for each in self.group.entries if each.file not in kept)
            is_idle = not rewritten and not self.upgraded
            recorded, producer = ([], None) if is_idle else self._recorded(owned)
            marking.find(self.upgrades)
            hidden, marked = marking.entries(owned)
            message = CompactionMessage(
                added=(*written, *moved, *marked, *recorded),
                removed=(*rewritten, *self.upgraded, *hidden),
                snapshot_id=self.snapshot_id,
                producer=producer,
            )
            owned.release(message)
        if unfoldable:
            count = sum(len(each.rows) for each in unfoldable)
            warnings.warn(
                f"{self.store.location}: compaction leaves the rows of {count:,} keys as they are, "
                f"as they can't be merged: {unfoldable[0]}",
                RuntimeWarning,
                stacklevel=2,
            )
        return message

    def _recorded(self, owned: OwnedFiles) -> tuple[list[Entry], Producer | None]:
        """Changelog files, and what they are of; none where a key can't be folded."""
        if self.changelog is None:
            return [], self.producer
        own = OwnedFiles(self.store, owned)
        try:
            writer = ChangelogWriter(
                own,
                self.schema,
                settings=self.settings,
                known_blobs=self.changelog.known_blobs,
            )
            recorded = self.changelog.record(writer)
        except Unfoldable:
            own.delete()
            return [], None
        own.release()
        return recorded, self.producer

    def _is_left_alone(
        self, sections: Sequence[Section], older: OlderRows, unfoldable: list[Unfoldable]
    ) -> bool:
        """Whether an earlier compaction has folded all that can be folded: no row would go."""
        entries = [file.entry for section in sections for file in section.files]
        if not self.drops or older.runs or not self.key.engine.has_functions:
            return False
        is_one_run = all(section.is_single_run for section in sections)
        if not is_one_run or any(each.level != self.level or each.delete_rows for each in entries):
            return False
        found: list[Unfoldable] = []
        rows = retractions = 0
        for batch, _, kinds in self._batches(sections, older, found):
            rows += batch.num_rows
            retractions += 0 if kinds is None else int(is_retraction(kinds).sum())
        is_same = rows == sum(each.rows for each in entries)
        if not found or not is_same or retractions != sum(each.retractions for each in entries):
            return False
        unfoldable += found
        return True

    def _write(
        self,
        writer: TreeWriter,
        sections: Sequence[Section],
        older: OlderRows,
        unfoldable: list[Unfoldable],
    ) -> list[Entry]:
        entries = [file.entry for section in sections for file in section.files]
        retractions = sum(each.retractions for each in (*entries, *chain(*older.runs)))
        batches = self._batches(sections, older, unfoldable)
        if sum(each.size for each in entries) >= AHEAD_BYTES_MIN:
            batches = iterate_ahead(batches, AHEAD_WINDOWS)
        first = next(batches, None)
        if first is None:
            return []
        return writer.write_run(
            partition_of(first[0], self.schema, entries[0].partition),
            self.bucket,
            self.level,
            chain([first], batches),
            has_kinds=retractions > 0 and (not self.drops or self.key.engine.has_functions),
            total_buckets=self.total_buckets,
        )

    def _batches(
        self, sections: Sequence[Section], older: OlderRows, unfoldable: list[Unfoldable]
    ) -> Iterator[RunBatch]:
        """The rows of neighbouring sections, merged with older ones, in the order of keys."""
        arrow = self.reader.schema
        files = [file for section in sections for file in section.files]
        is_small = sum(file.size for file in files) <= SMALL_BYTES
        if older.runs or is_small:  # files of older runs do not end where sections do
            sections = [section_of(files)]
        for section in sections:
            runs = [splits_of((file.entry for file in run), self.store) for run in section.runs]
            merged = merged_rows(
                [*runs, *older.runs],
                self.reader,
                is_oldest=self.drops,
                rows=older.rows,
                held_bytes=HELD_BYTES,
                unfoldable=unfoldable,
            )
            for each in filter(None, map(self._without_expired, merged)):
                rows = type(each.rows).from_arrays(each.rows.columns, schema=arrow)
                if each.kinds is not None:
                    rows = without_nulls(rows, each.kinds, self.schema, self.key)
                yield rows, each.keys, each.kinds

    def _without_expired(self, merged: KeyedRows) -> KeyedRows | None:
        if self.expired is None or not merged.is_folded:
            return merged
        return self.expired.removed(merged, self.key, is_final=self.drops)


def tree_tasks(
    table: PlannedOn,
    entries: Sequence[Entry],
    *,
    target_bytes: int,
    now_ms: int,
    is_full: bool = False,
    chosen: TableFilter | None = None,
    written: AbstractSet[Tree] | None = None,
) -> list[CompactionTask]:
    """What is to be compacted of a primary-key table: a task a tree, of those that need it.

    target_bytes: What a file should have.
    now_ms: Milliseconds since 1970 UTC: decides what is due by time.
    is_full: Whether everything goes to the top level.
    chosen: Only trees of partitions that may hold such rows.
    written: Only these trees, and those of which a full compaction is due by the number of commits;
        None: all.
    Raises CorruptMetadata: A file that is no part of a tree, or files of one run with keys in
        common.
    """
    key, schema, schemas = table.key, table.schema, table.schemas
    trees = trees_of(entries, key)
    counts = bucket_counts(entries, schemas)
    options, settings = universal_options(key.options), key.options.compaction
    due = due_trees(trees, options, settings, table.snapshot, store=table.store, now_ms=now_ms)
    expired, moved = expired_rows(key, now_ms), dead_blob_files(entries)

    def has_expired(file: TreeFile) -> bool:
        entry = file.entry
        if any(each.name in moved for each in entry.blob_files):
            return True
        return expired is not None and expired.known_in(entry, schema, schemas[entry.schema_id])

    tasks: list[CompactionTask] = []
    for tree in _selected(trees, schema, chosen):
        if written is not None and tree not in written and not due[tree].is_full:
            continue
        plan = plan_tree(
            trees[tree],
            due[tree].options,
            target_bytes=target_bytes,
            is_full=is_full or due[tree].is_full,
            keeps_retractions=keeps_retractions(key),
            marks_replaced=key.options.deletion_vectors,
            replaces_whole=key.engine.replaces_whole(key.options),
            has_expired=has_expired,
        )
        if plan is None:
            continue
        task = _task(
            table,
            trees[tree],
            plan,
            settings=WriteSettings(target_file_bytes=target_bytes, source="compact"),
            bucket=tree[1],
            total_buckets=counts[tree[0]],
            expired=expired if plan.expires else None,
            moved_blobs=moved,
        )
        tasks.append(task)
    return tasks


def _task(
    table: PlannedOn,
    files: Sequence[TreeFile],
    plan: TreePlan,
    *,
    settings: WriteSettings,
    bucket: int,
    total_buckets: int,
    expired: ExpiredRows | None,
    moved_blobs: frozenset[str],
) -> TreeTask:
    """What carries out the plan of a tree with some files."""
    inputs = [file.entry for group in plan.rewrites for part in group for file in part.files]
    others = [file.entry for run in (plan.upgrades, *plan.older) for file in run]
    read, fields = [*inputs, *others], table.schema.fields
    producer, changelog = tree_changelog(
        table,
        [file.entry for file in files],
        takes_all=plan.unit.run_count == len(sorted_runs(files)),
    )
    return TreeTask(
        store=table.store,
        group=CompactionGroup(tuple(map(slim, inputs))),
        guard=expiry_guard(table.store, table.snapshot),
        schema=table.schema,
        key=table.key,
        reader=column_reader(
            read,
            table.store,
            fields,
            fields,
            table.schemas,
            key=table.key,
            blobs="references" if table.schema.blob_columns else "bytes",
        ),
        settings=settings,
        snapshot_id=table.snapshot.id,
        bucket=bucket,
        total_buckets=total_buckets,
        level=plan.unit.output_level,
        rewrites=_slim_sections(plan),
        upgrades=plan.upgrades,
        drops=plan.drops,
        older=plan.older,
        expired=expired,
        moved_blobs=moved_blobs,
        producer=producer,
        changelog=changelog,
    )


def _selected(
    trees: Mapping[Tree, Sequence[TreeFile]], schema: TableSchema, chosen: TableFilter | None
) -> list[Tree]:
    """The trees that may hold rows of a filter by their partitions, in a stable order."""
    listed = sorted(trees, key=repr)
    if chosen is None:
        return listed
    wanted = partitions_that_may_match([partition for partition, _ in listed], schema, chosen)
    return [tree for tree, is_wanted in zip(listed, wanted, strict=True) if is_wanted]


def _slim_sections(plan: TreePlan) -> tuple[tuple[Section, ...], ...]:
    def slimmed(section: Section) -> Section:
        return Section(
            tuple(
                tuple(replace(file, entry=slim(file.entry)) for file in run) for run in section.runs
            )
        )

    return tuple(tuple(map(slimmed, group)) for group in plan.rewrites)
