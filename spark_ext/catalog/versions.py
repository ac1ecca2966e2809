"""Which snapshot a statement names: what Spark says when it loads a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any


def version_asked(how: Sequence[Any]) -> Any:
    """What ``VERSION AS OF`` or ``TIMESTAMP AS OF`` names; None: now."""
    if not how:
        return None
    asked = how[0]
    if isinstance(asked, str):
        return int(asked) if asked.isdecimal() else asked
    if isinstance(asked, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=asked)
    if asked.getClass().getSimpleName() != "TableContext":
        return None  # what will be written: it is the latest snapshot anyway
    travel = asked.timeTravel()
    if not travel.isPresent():
        return None
    found = travel.get()
    at_version = found.getClass().getSimpleName() == "AsOfVersion"
    return version_asked([found.version() if at_version else found.micros()])


def options_asked(how: Sequence[Any]) -> dict[str, str]:
    """The options of a query that choose a snapshot."""
    given = how[1] if len(how) > 1 else None
    return {} if given is None else dict(given.asCaseSensitiveMap())
