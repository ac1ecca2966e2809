"""`Table.maintain`: compaction, expiry and removal of orphan files, by a policy.

The steps do not depend on each other, so one that fails is reported, and the others are taken all
the same: a lost data file, for which compaction fails, must not keep a disk from being emptied.
Expiry and the removal of orphans delete nothing where something that is kept can't be read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from fermion.errors import FermionError
from fermion_table.argument_checks import check_bool
from fermion_table.compaction.task import CompactionResult
from fermion_table.errors import CommitConflict, VersionNotFound
from fermion_table.expiry.maintenance import MaintenanceResult, MaintenanceStep
from fermion_table.schema.properties import maintenance_policy
from fermion_table.table.maintenance import compact, expire_snapshots, remove_orphan_files
from fermion_table.table.state import HasState

_Result = CompactionResult | MaintenanceResult
_Action = Callable[[], _Result]


def maintain(
    self: HasState, policy: Mapping[str, Any] | None = None, *, dry_run: bool = False
) -> MaintenanceResult:
    """Do all that this branch needs now and then, beside readers and writers.

    It compacts files (of tables without a primary key column files, too), expires snapshots and
    changelogs, and removes orphan files. What concurrent commits prevent is left to the next run.
    A step that fails does not keep the others from being taken; the result says why it failed.

    Parameters
    ----------
    policy
        Settings that differ from the properties that the table has of maintenance, such as
        ``{"snapshot_age": "30d", "remove_orphans": False}``.
    dry_run
        Only say what would be done, each step to the table as it is.

    Returns
    -------
    MaintenanceResult
        The numbers of all that was deleted, and in ``steps`` what each step did.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the setting or argument that is wrong, before anything is done.
    UnsupportedFeature
        The table needs a newer writer.
    """
    steps, parts = [], []
    for step, part in maintenance_steps(self, policy, dry_run=dry_run):
        steps.append(step)
        if isinstance(part, MaintenanceResult):
            parts.append(part)
    return MaintenanceResult(
        **{
            name: sum(getattr(part, name) for part in parts)
            for name in (
                "snapshots",
                "slots",
                "tags",
                "consumers",
                "files",
                "objects",
                "bytes",
                "retries",
            )
        },
        paths=tuple(sorted({path for part in parts for path in part.paths})),
        dry_run=dry_run,
        seconds=sum(step.figures.get("seconds", 0.0) for step in steps),
        steps=tuple(steps),
    )


def maintenance_steps(
    self: HasState, policy: Mapping[str, Any] | None = None, *, dry_run: bool = False
) -> Iterator[tuple[MaintenanceStep, _Result | None]]:
    """The steps of `maintain`, each taken when it is asked for, and what became of it.

    Raises TypeError, InvalidArgumentError, UnsupportedFeature: At once.
    """
    state = self._state
    dry_run = check_bool(dry_run, "dry_run")
    state.check_writable()
    state.refresh()
    wanted = maintenance_policy(state.schema.properties, policy)

    def expire() -> _Result:
        age = timedelta(milliseconds=wanted["snapshot_age"])
        least = wanted["snapshots_min"]
        return expire_snapshots(self, older_than=age, retain_last=least, dry_run=dry_run)

    def remove_orphans() -> _Result:
        age = timedelta(milliseconds=wanted["orphan_age"])
        return remove_orphan_files(self, older_than=age, dry_run=dry_run)

    actions: dict[str, _Action] = {
        "compact": lambda: compact(self, dry_run=dry_run),
        "expire": expire,
        "remove_orphans": remove_orphans,
    }
    return (_taken(name, action, wanted[name]) for name, action in actions.items())


def _taken(name: str, action: _Action, is_wanted: bool) -> tuple[MaintenanceStep, _Result | None]:
    if not is_wanted:
        return MaintenanceStep(name=name, outcome="off", text="by the policy"), None
    try:
        result = action()
    except (CommitConflict, VersionNotFound) as error:
        return MaintenanceStep(name=name, outcome="left", text=str(error)), None
    except (FermionError, OSError) as error:
        text = str(error) or type(error).__name__
        return MaintenanceStep(name=name, outcome="failed", text=text), None
    is_left = isinstance(result, CompactionResult) and result.groups_dropped
    numbers = {
        each.name: value
        for each in dataclasses.fields(result)
        if isinstance(value := getattr(result, each.name), int | float) and value is not False
    }
    numbers.pop("dry_run", None)
    step = MaintenanceStep(
        name=name, outcome="left" if is_left else "done", text=str(result), figures=numbers
    )
    return step, result
