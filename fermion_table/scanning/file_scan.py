"""A scan of some data files as they are, live or not."""

from __future__ import annotations

from dataclasses import dataclass

from fermion.forks import cached_property
from fermion_table.metadata.column_file import Layout
from fermion_table.metadata.manifest import Entry
from fermion_table.planning.plan import PruningStep, ScanPlan, plan_scan, splits_of
from fermion_table.scanning.scan import Scan


@dataclass(frozen=True, kw_only=True)
class FileScan(Scan):
    """A scan of some files that need not be live."""

    files: tuple[Entry, ...] = ()
    key = None  # rows as they are stored

    @cached_property
    def entries(self) -> tuple[list[Entry], list[PruningStep]]:
        """The files that may hold rows, and how they were found."""
        return plan_scan(self.files, self.schemas, self.table_schema, self.filter)

    @property
    def _schema_ids(self) -> set[int]:
        return {schema_id for entry in self.entries[0] for schema_id in entry.schema_ids}

    @property
    def _layouts(self) -> set[Layout]:
        return {entry.layout for entry in self.entries[0]}

    @cached_property
    def _plan(self) -> ScanPlan:
        kept, steps = self.entries
        splits = splits_of(kept, self.store)
        return ScanPlan(snapshot_id=self.snapshot.id, splits=splits, steps=tuple(steps))
