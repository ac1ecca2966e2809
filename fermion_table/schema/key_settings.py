"""Properties of tables with a primary key, by name: their values, and which were asked for.

Names are those of Paimon with ``_`` for ``-``; the spelling with ``-`` is taken too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from fermion.errors import InvalidArgumentError
from fermion_table.schema.properties import parse_duration, parse_size

MergeEngine = Literal["deduplicate", "partial_update", "aggregation", "first_row"]
ChangelogProducer = Literal["none", "input", "lookup", "full_compaction"]

ENGINES: tuple[MergeEngine, ...] = get_args(MergeEngine)
PRODUCERS: tuple[ChangelogProducer, ...] = get_args(ChangelogProducer)
PREFIXES = (
    *("sequence.", "fields.", "changelog_producer.", "deletion_vectors.", "num_sorted_run."),
    *("compaction.", "full_compaction.", "lookup_compact.", "record_level.", "changelog."),
)
NAMES = (
    *("bucket", "bucket_key", "merge_engine", "ignore_delete", "changelog_producer"),
    *("lookup_compact", "force_lookup", "write_only", "compaction"),
)
"""Names of this family: these, those that begin as `PREFIXES` say or with an engine and a dot."""
NUMBER_MAX = 2**31 - 1
"""The greatest value of a setting that is a number."""
_LIKENESS = 0.85
"""A name as like one of `NAMES` as this is taken for a slip, and refused."""


class KeySettings:
    """Properties of this family by their names with ``_``; remembers which were asked for.

    All methods raise `InvalidArgumentError`, which names the property, for a value of another form.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        self._asked: set[str] = set()
        for name, value in properties.items():
            plain = plain_name(name)
            if not _is_of_family(plain):
                continue
            if self._values.get(plain, value) != value:
                raise InvalidArgumentError(f"property {name!r}: {plain!r} has another value")
            self._values[plain] = value

    def has(self, name: str) -> bool:
        """Whether a property is there; does not count as asking for it."""
        return name in self._values

    def text(self, name: str, default: str) -> str:
        """The value of a property as it stands."""
        self._asked.add(name)
        return self._values.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """A value that is true or false."""
        found = self.text(name, str(default)).strip().lower()
        if found not in ("true", "false"):
            raise InvalidArgumentError(f"{name}={found!r}: expected true or false")
        return found == "true"

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number between two bounds, both included."""
        found = self.text(name, str(default)).strip()
        if not re.fullmatch(r"-?\d{1,10}", found) or not least <= int(found) <= most:
            raise InvalidArgumentError(
                f"{name}={found!r}: expected a number from {least} to {most}"
            )
        return int(found)

    def optional_number(self, name: str, least: int) -> int | None:
        """A whole number, not below a bound; None where the property is not there."""
        return self.number(name, least, least, NUMBER_MAX) if self.has(name) else None

    def size(self, name: str) -> int | None:
        """Bytes; None where the property is not there."""
        return parse_size(self.text(name, ""), name) if self.has(name) else None

    def duration(self, name: str) -> int | None:
        """Milliseconds; None where the property is not there."""
        return parse_duration(self.text(name, ""), name) if self.has(name) else None

    def choice(self, name: str, choices: tuple[Any, ...], default: Any) -> Any:
        """One of some words, in lower case."""
        found = self.text(name, default).strip().lower().replace("-", "_")
        if found not in choices:
            raise InvalidArgumentError(
                f"{name}={found!r}: expected one of {', '.join(choices)}{nearest(found, choices)}"
            )
        return found

    def names(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Names of columns, each once."""
        self._asked.add(name)
        if name not in self._values:
            return default
        named = tuple(each.strip() for each in self._values[name].split(","))
        if not all(named):
            raise InvalidArgumentError(f"{name}={self._values[name]!r}: expected names of columns")
        check_no_repeats(name, named)
        return named

    def sequence_groups(self) -> list[tuple[str, tuple[str, ...]]]:
        """Names of the settings of sequence groups, and the sequence that each name holds."""
        found = []
        for name in sorted(self._values):
            if name.startswith("fields.") and name.endswith(".sequence_group"):
                middle = name.removeprefix("fields.").removesuffix(".sequence_group")
                sequence = tuple(each.strip() for each in middle.split(","))
                check_no_repeats(name, sequence)
                found.append((name, sequence))
        return found

    def refuse_functions(self, column: str, engine: str, *, is_key: bool) -> None:
        """Refuse the function of a column that takes none."""
        name = f"fields.{column}.aggregate_function"
        if not self.has(name):
            return
        if is_key:
            raise InvalidArgumentError(f"{name}: a column of the primary key takes no function")
        raise InvalidArgumentError(
            f"{name} with merge_engine={engine}: functions are for merge_engine=aggregation, and "
            "for columns of a sequence group (fields.<sequence>.sequence_group)"
        )

    def refuse_the_rest(self, engine: str) -> None:
        """Refuse names that nothing has asked for."""
        for name in sorted(self._values.keys() - self._asked):
            if name == "fields.default_aggregate_function":
                hint = ": is for merge_engine=aggregation, and for sequence groups"
            elif name.startswith("fields."):
                hint = ": no such column, or no such setting of a column"
            elif name.split(".")[0] in ENGINES:
                hint = f": is not for merge_engine={engine}"
            else:
                hint = nearest(name, sorted(self._asked))
            raise InvalidArgumentError(f"property {name!r} is not known here{hint}")


def _is_of_family(name: str) -> bool:
    prefixes = (*PREFIXES, *(f"{engine}." for engine in ENGINES))
    return name.startswith(prefixes) or bool(difflib.get_close_matches(name, NAMES, 1, _LIKENESS))


def plain_name(name: str) -> str:
    """A name with ``_``; the part that names a column of ``fields.<column>.`` stays as it is."""
    if name.startswith("fields.") and name.count(".") >= 2:
        first, rest = name.split(".", 1)
        column, last = rest.rsplit(".", 1)
        return f"{first}.{column}.{last.replace('-', '_')}"
    return name.replace("-", "_")


def nearest(name: str, known: Any) -> str:
    """The end of a message that names what is most alike; empty where nothing is."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def check_no_repeats(setting: str, names: tuple[str, ...]) -> None:
    """Refuse a name that stands twice in a setting.

    Raises
    ------
    InvalidArgumentError
        Names the setting and the column.
    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidArgumentError(f"{setting}: column {repeated[0]!r} is named twice")
