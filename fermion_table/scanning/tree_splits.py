"""The splits of a scan of a primary-key table."""

from __future__ import annotations

from fermion_table.scanning.plan import splits_of
from fermion_table.scanning.section_split import SectionSplit
from fermion_table.scanning.split import Split
from fermion_table.scanning.tree_plan import TreePlan
from fermion_table.storage.store import AtomicStore


def tree_splits(plan: TreePlan, store: AtomicStore) -> tuple[Split, ...]:
    """One split a file that needs no merging, then one a section that does.

    Raises
    ------
    UnsafeStorage
        See `splits_of`.
    """
    sections = [
        SectionSplit(tuple(splits_of((file.entry for file in run), store) for run in section.runs))
        for section in plan.merged
    ]
    return (*splits_of(plan.raw, store), *sections)
