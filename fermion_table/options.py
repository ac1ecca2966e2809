"""Every default and limit of the table layer's metadata, and the options of a commit."""

from __future__ import annotations

import time
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

TAIL_ENTRIES_MAX = 64
"""Entries of recent commits that a snapshot holds itself."""
TAIL_BYTES_MAX = 64 * KIB
"""Bytes of JSON of those entries."""
TOUCHED_PARTITIONS_MAX = 64
"""Partitions that a snapshot names as touched; above that it says "many"."""

PACK_ENTRIES_MIN = 512
"""Entries from which on a manifest is packed."""
PACK_WIDE_ENTRIES_MIN = 8
PACK_STATISTICS_MIN = 65_536
"""So is one of fewer entries that have as many field statistics between them."""
MERGE_FANOUT = 8
"""Manifests of one size class that are merged into one."""
MERGE_INPUT_ENTRIES_MAX = 8_192
"""A manifest of more live entries than this is not merged any more."""
REWRITE_DEAD_FRACTION = 0.3
"""A manifest is rewritten when more of its entries than this are dead."""

OPEN_COST_BYTES = 4 * MIB
"""Opening a file costs as much as reading so many bytes of it, roughly."""
TASK_BYTES = 128 * MIB
"""Bytes of files that one task reads, roughly; opening one counts as `OPEN_COST_BYTES`."""

METADATA_CACHE_BYTES = 256 * MIB
"""Memory, as estimated, of the immutable metadata objects that a process keeps decoded."""
DECODED_BYTES_PER_JSON_BYTE = 8
"""Memory of a decoded object for each byte of its JSON, roughly."""

RETAIN_LAST_DEFAULT = 10
"""Snapshots that expiry keeps however old they are."""
RETAIN_MS_DEFAULT = 7 * 24 * 3600 * 1000
"""Age up to which expiry keeps snapshots."""
SLOT_GRACE_MS = 3600 * 1000
"""Age up to which an expired snapshot's slot stays: longer than a commit may take."""
ORPHAN_MS_DEFAULT = 3 * 24 * 3600 * 1000
"""Age up to which a file that nothing refers to may be a running writer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How hard a commit tries.

    Attributes
    ----------
    timeout_s
        Seconds after which a commit that keeps losing gives up. Slots must outlive the
        data they point to by longer than this.
    backoff_s_min, backoff_s_max
        After each loss a commit waits a random time up to a bound that doubles from one to
        the other.
    unknown_tries
        How often the outcome of a lost reply is looked up before it counts as unknown.
    fence_s
        A try that took longer than this looks for later snapshots in a listing too, since
        the one it was made on may have expired meanwhile.
    """

    timeout_s: float = 600.0
    backoff_s_min: float = 0.005
    backoff_s_max: float = 1.0
    unknown_tries: int = 5
    fence_s: float = 60.0

    def is_fresh(self, seen_at: float | None) -> bool:
        """Whether a snapshot was the newest so recently that its successors can't have expired.

        Parameters
        ----------
        seen_at
            When it was, by ``time.monotonic``; None: not known.
        """
        return seen_at is not None and time.monotonic() - seen_at < self.fence_s
