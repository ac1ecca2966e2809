"""partial_update of one key's rows, row by row: the model of the vectorised engine."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from tests.kit.tables.aggregate_model import Row, add, place, take_back

NO_FUNCTION = FieldFunction(name="last_value")
"""Columns of a group without a function are replaced with the sequence, as by this one."""


def updated(
    rows: list[Row],
    columns: Sequence[str],
    groups: Sequence[SequenceGroup] = (),
    *,
    removes: bool = False,
    removing: AbstractSet[str] = frozenset(),
) -> Row | None:
    """Return one key's row, from its rows in order of time; None where there is none.

    Parameters
    ----------
    columns
        Those that are no key.
    removes
        Whether a deletion removes the row; an update's old row is ignored then.
    removing
        Sequences of groups, by which a deletion that is not older removes the row.
    """
    in_groups = {name for group in groups for name in (*group.sequence, *group.columns)}
    plain = [name for name in columns if name not in in_groups]
    state: Row = dict.fromkeys(columns)
    is_there = False
    for row in rows:
        kind = row.get("_kind") or "+I"
        if removes and kind == "-D":
            state, is_there = dict.fromkeys(columns), False
        if kind[0] == "-" and removes:
            continue
        if kind == "-D" and any(
            not removing.isdisjoint(group.sequence) and _counts(state, row, group)
            for group in groups
        ):
            state, is_there = dict.fromkeys(columns), False
            continue
        if kind[0] == "+":
            is_there = True
            state |= {name: row[name] for name in plain if row.get(name) is not None}
        for group in groups:
            _update_group(state, row, group, is_back=kind[0] == "-")
    return state if is_there else None


def _counts(state: Row, row: Row, group: SequenceGroup) -> bool:
    """Return whether a row has a sequence, which is not older than what is known."""
    has_any = any(row.get(name) is not None for name in group.sequence)
    return has_any and _place(row, group.sequence) >= _place(state, group.sequence)


def _update_group(state: Row, row: Row, group: SequenceGroup, *, is_back: bool) -> None:
    if all(row.get(name) is None for name in group.sequence):
        return
    is_late = _place(row, group.sequence) < _place(state, group.sequence)
    for name in group.columns:
        function = group.functions.get(name, NO_FUNCTION)
        if function.name == NO_FUNCTION.name:
            if not is_late and not (is_back and function.ignore_retract):
                state[name] = None if is_back else row.get(name)
        elif not is_back:
            state[name] = add(function, state[name], state[name] is None, row.get(name))
        elif not function.ignore_retract:
            state[name] = take_back(function, state[name], row.get(name))
    if not is_late:
        state |= {name: row.get(name) for name in group.sequence}


def _place(row: Row, sequence: Sequence[str]) -> tuple:
    """Return what a sequence is compared by; null is the smallest."""
    return tuple((0, 0) if row.get(name) is None else (1, place(row[name])) for name in sequence)
