"""Splits of a scan as text, for engines that are not written in Python, and back.

The text is JSON: a list of objects. A `FileSplit` is its fields; files of a tree that are merged
are ``{"runs": [[file, ...], ...], "merge_cost": ...}``. Only the version that wrote it reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fermion.errors import InvalidArgumentError
from fermion_table.planning.split import FileSplit, Split
from fermion_table.trees.section_reader import SectionSplit


def split_text(splits: Iterable[Split]) -> str:
    """The text of the splits of a task."""
    return msgspec.json.encode(list(splits)).decode()


def splits_from_text(text: str) -> list[Split]:
    """The splits that `split_text` was given.

    Raises
    ------
    InvalidArgumentError
        It is no such text.
    """
    try:
        objects = msgspec.json.decode(text, type=list[dict[str, Any]])
        made: list[Split] = []
        for each in objects:
            kind: type[Any] = SectionSplit if "runs" in each else FileSplit
            made.append(msgspec.convert(each, kind))
        return made
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidArgumentError(f"no splits of a scan: {error}; found {text[:80]!r}") from None
