"""Every default and limit of the table layer's metadata, and the options of a commit."""

from __future__ import annotations

import time

from fermion.exports import dataclass

KIB = 1024
MIB = 1024 * KIB

INLINE_ENTRIES_MAX = 64
"""Most inline entries of a snapshot."""
INLINE_BYTES_MAX = 64 * KIB
"""Most bytes of JSON of the inline entries."""
CARRIED_ENTRIES_MAX = 6
"""Most inline entries of a snapshot that has manifests, and repeats some of earlier commits."""
CARRIED_BYTES_MAX = 8 * KIB
"""Most bytes of JSON of these."""
TOUCHED_PARTITIONS_MAX = 64
"""Most partitions that a snapshot lists as touched; above that it stores "many"."""

PACK_ENTRIES_MIN = 512
"""A manifest of at least this many entries is packed."""
PACK_WIDE_ENTRIES_MIN = 8
PACK_STATISTICS_MIN = 65_536
"""So is a manifest of fewer entries with at least this many field statistics in all."""
MERGE_FANOUT = 4
"""Number of manifests of one size class that are merged."""
MERGE_INPUT_ENTRIES_MAX = 8_192
"""A manifest of more live entries than this is not merged."""
REWRITE_DEAD_FRACTION = 0.3
"""A manifest is rewritten when a greater fraction of its entries was removed."""
LISTED_MANIFESTS_MIN = 24
"""So many manifests that are not merged any more, of 200,000 files or more, go into a list."""
LISTED_MANIFESTS_MAX = 512
"""Most manifests of a list."""

OPEN_COST_BYTES = 4 * MIB
"""Opening a file costs as much as reading so many bytes of it, roughly."""
TASK_BYTES = 128 * MIB
"""Bytes of files that one task reads, roughly; opening one counts as `OPEN_COST_BYTES`."""
PART_BYTES = 512 * TASK_BYTES
"""Bytes of files of a part of a scan, which whoever reads it plans; counted as those of a task."""
PICK_COST, FOLD_COST = 2, 4
"""Merging files costs so many times as much as reading their bytes as they are: where the order of
runs alone picks rows, and otherwise. Measured on 400,000 rows in two runs, of 2 and of 11 columns,
by one thread: 1.0 to 2.3 (``deduplicate``, ``first_row``), 2.3 to 6 (engines that fold rows), 4 to
13 (sequence fields)."""

METADATA_CACHE_BYTES = 256 * MIB
"""Estimated memory of decoded metadata objects that a process caches."""
DECODED_BYTES_PER_JSON_BYTE = 8
"""Estimated memory of a decoded object per byte of its JSON."""

LOOKUP_FILES_MAX = 64
"""Data files that a table object keeps open for lookups of keys."""
LOOKUP_KEYS_BYTES = 128 * MIB
"""Memory of the keys of data files that a table object keeps for lookups."""
LOOKUP_ROWS_BYTES = 64 * MIB
"""Memory of the rows of small data files that it keeps for lookups."""

RETAIN_LAST_DEFAULT = 10
"""Number of latest snapshots that expiry always keeps."""
RETAIN_MS_DEFAULT = 7 * 24 * 3600 * 1000
"""Expiry keeps snapshots up to this age."""
SNAPSHOT_FILE_GRACE_MS = 3600 * 1000
"""Expiry keeps the file of an expired snapshot up to this age: longer than a commit takes."""
ORPHAN_MS_DEFAULT = 3 * 24 * 3600 * 1000
"""An orphan file up to this age may belong to a running writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Retries and time limits of a commit.

    timeout_s: Seconds after which a commit gives up because of concurrent commits. Snapshot files
        must outlive their data by more than this.
    backoff_s_min, backoff_s_max: After each concurrent commit it waits for a random time. The bound
        doubles, from the first value to the second.
    unknown_tries: Number of attempts to find the outcome of a lost reply before it counts as
        unknown.
    lease_s: Seconds for which a commit waits for a transaction over several tables that is neither
        committed nor given up, before it gives that up.
    fence_s: After an attempt that took longer than this, or on a base older than this, the commit
        also reads the expiry markers, because its base may have expired.
    """

    timeout_s: float = 600.0
    backoff_s_min: float = 0.005
    backoff_s_max: float = 1.0
    unknown_tries: int = 5
    lease_s: float = 10.0
    fence_s: float = 60.0

    def is_fresh(self, seen_at: float | None) -> bool:
        """Whether a snapshot was the newest so recently that its successors can't have expired.

        seen_at: When it was, by ``time.monotonic``; None: not known.
        """
        return seen_at is not None and time.monotonic() - seen_at < self.fence_s
