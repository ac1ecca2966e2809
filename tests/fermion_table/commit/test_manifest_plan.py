"""Which manifests are merged."""

from __future__ import annotations

from unittest import mock

from fermion_table.commit import manifest_plan
from fermion_table.metadata.manifest import ManifestReference


def test_manifests_have_a_class_where_no_entry_may_be_inline() -> None:
    """The bound of the first class was 0 then, and never grew: the search had no end."""
    reference = mock.Mock(spec=ManifestReference, live_entries=5, entries=5, dead=())
    with mock.patch.object(manifest_plan, "INLINE_ENTRIES_MAX", 0):
        assert manifest_plan.plan_merges([reference]) == []
        assert len(manifest_plan.plan_merges([reference] * manifest_plan.MERGE_FANOUT)) == 1
