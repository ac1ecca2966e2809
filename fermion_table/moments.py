"""Times as callers give them: what is unambiguous, and nothing that has to be guessed."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from fermion.errors import InvalidArgumentError

Moment = datetime | date | np.datetime64 | str
"""A time: a datetime (pandas' too), a date (its start), NumPy's or ISO text; UTC without a zone."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = np.dtype("datetime64[us]")


def now_ms() -> int:
    """Milliseconds since 1970 UTC by this machine's clock."""
    return time.time_ns() // 1_000_000


def moment_of(moment: Any, name: str) -> datetime:
    """A time as a datetime with a zone.

    Parameters
    ----------
    moment
        As in `Moment`.
    name
        Of the parameter, for the message.

    Raises
    ------
    TypeError
        Anything else; a number could mean seconds, milliseconds or a snapshot.
    InvalidArgumentError
        Text that is no time, NaT, or a year that a datetime can't hold.
    """
    found = moment
    if isinstance(found, np.datetime64):
        found = found.astype(_MICROSECOND).item()  # an int where a datetime can't hold it
        if not isinstance(found, datetime):
            raise InvalidArgumentError(f"{name}={moment}: expected a time of the years 1 to 9999")
    elif isinstance(found, str):
        try:
            found = datetime.fromisoformat(found)
        except ValueError:
            raise InvalidArgumentError(
                f"{name}={moment!r}: expected ISO 8601, as in '2026-01-31T12:00:00'"
            ) from None
    elif isinstance(found, date) and not isinstance(found, datetime):
        found = datetime.combine(found, datetime.min.time())
    elif not isinstance(found, datetime):
        raise TypeError(
            f"{name}={moment!r}: expected a datetime, a date, a numpy.datetime64 or ISO 8601 text, "
            f"found {type(moment).__name__}"
        )
    _refuse_nat(found, name)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """A time with a zone in milliseconds since 1970 UTC, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def limit_ms(older_than: Any, *, now_ms: int) -> int | None:
    """The time before which things are old, in milliseconds since 1970 UTC; None stays None.

    Parameters
    ----------
    older_than
        A datetime (UTC without a zone), or a timedelta: so long ago.

    Raises
    ------
    TypeError
        Anything else: a number could mean days, milliseconds or a time.
    InvalidArgumentError
        NaT.
    """
    if older_than is None:
        return None
    if not isinstance(older_than, (datetime, timedelta)):
        raise TypeError(
            f"older_than={older_than!r}: expected a datetime or a timedelta, such as "
            f"timedelta(days=7), found {type(older_than).__name__}"
        )
    _refuse_nat(older_than, "older_than")
    if isinstance(older_than, timedelta):
        return now_ms - older_than // timedelta(milliseconds=1)
    return milliseconds(moment_of(older_than, "older_than"))


def _refuse_nat(value: Any, name: str) -> None:
    if value != value:  # pandas' NaT is a datetime, and not equal to itself
        raise InvalidArgumentError(f"{name}={value}: expected a time")
