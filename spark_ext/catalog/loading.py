"""What a statement wants of a table, from the arguments with which Spark loads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_ext.catalog.callbacks import texts
from spark_ext.options import LOADING_OPTIONS
from spark_ext.versions import OPTIONS_OF_TABLES, SPARK

_LOADING = {name.lower() for name in LOADING_OPTIONS}


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


def inserts(how: Sequence[Any]) -> bool:
    """Whether rows are to be inserted, and none to be updated."""
    return "INSERT" in (names := _privileges(how)) and "UPDATE" not in names


def writes(how: Sequence[Any]) -> bool:
    """Whether the statement writes to the table."""
    return bool(_privileges(how))


def _privileges(how: Sequence[Any]) -> set[str]:
    """What a statement is going to do with the table, as Spark names it."""
    if not how or isinstance(how[0], str | int):
        return set()
    is_context = how[0].getClass().getSimpleName() == "TableContext"
    asked = how[0].writePrivileges() if is_context else how[0]
    return {privilege.toString() for privilege in asked.toArray()}


def options_asked(how: Sequence[Any]) -> dict[str, str]:
    """The options of a query on which the columns depend."""
    given = how[1] if len(how) > 1 else None
    return {} if given is None else texts(given.asCaseSensitiveMap())


def check_loaded(name: str, options: Any) -> None:
    """Refuse options with which this Spark should have loaded a table, and has not.

    Raises UnsupportedBySpark: One of them chooses a version, a branch or changes: another one would
        be read or written.
    """
    given = () if SPARK.has(OPTIONS_OF_TABLES) else texts(options.asCaseSensitiveMap())
    for option in given:
        if option.lower() in _LOADING:
            SPARK.require(OPTIONS_OF_TABLES, f"{name}: option {option}")
