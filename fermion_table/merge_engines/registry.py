"""The merge engines, by name."""

from __future__ import annotations

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.aggregation import Aggregation
from fermion_table.merge_engines.deduplicate import Deduplicate
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.first_row import FirstRow
from fermion_table.merge_engines.partial_update import PartialUpdate
from fermion_table.schema.property_kinds import nearest

ENGINES: dict[str, MergeEngine] = {
    engine.name: engine for engine in (Deduplicate(), PartialUpdate(), Aggregation(), FirstRow())
}
"""Names are kept in tables: they never change. The first one is the default."""


def engine_named(name: str) -> MergeEngine:
    """The engine of a name.

    Raises InvalidArgumentError: There is none; names those that there are.
    """
    if name not in ENGINES:
        raise InvalidArgumentError(
            f"merge_engine={name!r}: expected one of {', '.join(ENGINES)}{nearest(name, ENGINES)}"
        )
    return ENGINES[name]
