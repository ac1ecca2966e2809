"""Settings of a primary-key table that say when its trees are compacted, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fermion.errors import InvalidArgumentError
from fermion_table.schema.key_settings import NUMBER_MAX, KeySettings

STOP_RUNS = 3
"""By default a writer that compacts waits at so many runs more than the trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """What the settings say.

    Attributes
    ----------
    trigger
        Number of sorted runs from which on a tree is compacted.
    stop_trigger
        Number of sorted runs of a tree from which on a writer that compacts waits for compaction.
    max_size_amplification_percent, size_ratio, pick_rule
        How runs are picked: see `fermion_table.compaction.universal.UniversalOptions`.
    total_size_threshold, incremental_size_threshold
        Bytes, of the same; None: no such rule.
    optimization_interval_ms
        Milliseconds after which a tree is compacted fully; None: no such rule.
    delta_commits
        Number of commits after which a tree is compacted fully; None: no such rule.
    force_lookup
        Whether level 0 is to be compacted although there are few runs.
    lookup_interval
        Number of commits after which level 0 is compacted where it is to be.
    is_inline
        Whether a writer compacts the trees that its commit has changed.
    """

    trigger: int = 5
    stop_trigger: int = 5 + STOP_RUNS
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    pick_rule: Literal["current", "seed"] = "current"
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None
    optimization_interval_ms: int | None = None
    delta_commits: int | None = None
    force_lookup: bool = False
    lookup_interval: int = 1
    is_inline: bool = False


def compaction_settings(settings: KeySettings, *, needs_lookup: bool) -> CompactionSettings:
    """Read and check the settings.

    Parameters
    ----------
    needs_lookup
        Whether another setting asks for level 0 to be compacted although there are few runs.

    Raises
    ------
    InvalidArgumentError
        A value of another form or out of its range, or settings that contradict each other.
    """
    trigger = settings.number("num_sorted_run.compaction_trigger", 5, 1, NUMBER_MAX)
    stops = min(trigger + STOP_RUNS, NUMBER_MAX)
    is_inline = settings.choice("compaction", ("none", "inline"), "none") == "inline"
    writes_only = settings.flag("write_only")
    force_lookup = settings.flag("force_lookup")
    return CompactionSettings(
        trigger=trigger,
        stop_trigger=settings.number("num_sorted_run.stop_trigger", stops, trigger, NUMBER_MAX),
        max_size_amplification_percent=settings.number(
            "compaction.max_size_amplification_percent", 200, 0, NUMBER_MAX
        ),
        size_ratio=settings.number("compaction.size_ratio", 1, 0, NUMBER_MAX),
        pick_rule=settings.choice("compaction.pick_rule", ("current", "seed"), "current"),
        total_size_threshold=settings.size("compaction.total_size_threshold"),
        incremental_size_threshold=settings.size("compaction.incremental_size_threshold"),
        optimization_interval_ms=settings.duration("compaction.optimization_interval"),
        delta_commits=settings.optional_number("full_compaction.delta_commits", 1),
        force_lookup=force_lookup,
        lookup_interval=_lookup_interval(
            settings, trigger, needs_lookup=needs_lookup or force_lookup
        ),
        is_inline=is_inline and not writes_only,
    )


def _lookup_interval(settings: KeySettings, trigger: int, *, needs_lookup: bool) -> int:
    mode, interval = "lookup_compact", "lookup_compact.max_interval"
    is_gentle = settings.choice(mode, ("radical", "gentle"), "radical") == "gentle"
    if settings.has(mode) and not needs_lookup:
        raise InvalidArgumentError(
            f"{mode}: says when level 0 is compacted for lookups: expected one of "
            "force_lookup=true, deletion_vectors.enabled=true and changelog_producer=lookup with it"
        )
    if settings.has(interval) and not is_gentle:
        raise InvalidArgumentError(f"{interval}: is for {mode}=gentle")
    found = settings.number(interval, min(2 * trigger, NUMBER_MAX), 1, NUMBER_MAX)
    return found if is_gentle else 1
