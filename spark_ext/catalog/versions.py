"""The snapshot that a statement names, from the arguments with which Spark loads a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_ext.catalog.callbacks import texts


def version_asked(how: Sequence[Any]) -> Any:
    """The version of ``VERSION AS OF`` or ``TIMESTAMP AS OF``; None: the newest."""
    if not how:
        return None
    asked = how[0]
    if isinstance(asked, str):
        return int(asked) if asked.isdecimal() else asked
    if isinstance(asked, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=asked)
    if asked.getClass().getSimpleName() != "TableContext":
        return None  # for a write, which needs the newest snapshot
    travel = asked.timeTravel()
    if not travel.isPresent():
        return None
    version = travel.get()
    by_version = version.getClass().getSimpleName() == "AsOfVersion"
    return version_asked([version.version() if by_version else version.micros()])


def options_asked(how: Sequence[Any]) -> dict[str, str]:
    """The options of a query that choose a snapshot."""
    given = how[1] if len(how) > 1 else None
    return {} if given is None else texts(given.asCaseSensitiveMap())
