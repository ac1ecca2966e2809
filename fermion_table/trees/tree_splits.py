"""The splits of a scan of a primary-key table."""

from __future__ import annotations

from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.options import FOLD_COST, PICK_COST
from fermion_table.planning.plan import splits_of
from fermion_table.planning.split import Split
from fermion_table.planning.tree_plan import TreePlan
from fermion_table.storage.store import AtomicStore
from fermion_table.trees.section_split import SectionSplit
from fermion_table.trees.visible_rows import picks_rows


def tree_splits(plan: TreePlan, store: AtomicStore, key: PrimaryKey) -> tuple[Split, ...]:
    """One split a file that needs no merging, then one a section that does.

    Raises
    ------
    UnsafeStorage
        See `splits_of`.
    """
    is_picked = picks_rows(key) and not key.options.sequence_fields
    merge_cost = PICK_COST if is_picked else FOLD_COST
    sections = [
        SectionSplit(
            tuple(splits_of((file.entry for file in run), store) for run in section.runs),
            merge_cost,
        )
        for section in plan.merged
    ]
    return (*splits_of(plan.raw, store), *sections)
