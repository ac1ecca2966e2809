"""Which manifests are merged."""

from __future__ import annotations

from unittest import mock

from fermion_table.commit import next_snapshot
from fermion_table.metadata.manifest import ManifestReference


def test_manifests_have_a_class_where_no_entry_may_be_inline() -> None:
    """The bound of the first class was 0 then, and never grew: the search had no end."""
    reference = mock.Mock(spec=ManifestReference, live_entries=5, entries=5, dead=())
    with mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 0):
        assert next_snapshot.plan_merges([reference]) == []
        assert len(next_snapshot.plan_merges([reference] * next_snapshot.MERGE_FANOUT)) == 1
