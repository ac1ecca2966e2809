"""The specification, docs/format.md, taken apart: its tables and its worked bytes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "format.md").read_text(encoding="utf-8")

Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    heading
        The heading it stands under.
    before
        The paragraph before it, on one line.
    rows
        Cells by the column's title, stripped.
    """

    heading: str
    before: str
    rows: list[Row]

    @property
    def titles(self) -> list[str]:
        """The titles of its columns."""
        return list(self.rows[0])


@dataclass(frozen=True)
class Bytes:
    """A block of worked bytes.

    Attributes
    ----------
    facts
        What the block's first line says: words with a value; words without have the value "".
    data
        The bytes.
    """

    facts: dict[str, str]
    data: bytes

    def json(self, name: str) -> list:
        """A fact as JSON."""
        return json.loads(self.facts[name])


@dataclass
class _Reader:
    """Walks the lines once."""

    heading: str = ""
    paragraph: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def line(self, line: str) -> None:
        if line.startswith("|"):
            self.pending.append(line)
            return
        if self.pending:
            self.tables.append(Table(self.heading, " ".join(self.paragraph), rows_of(self.pending)))
            self.pending, self.paragraph = [], []
        if line.startswith("#"):
            self.heading, self.paragraph = line.lstrip("# "), []
        elif line:
            self.paragraph.append(line)
        elif self.paragraph and not self.paragraph[-1].endswith(":"):
            # The paragraph stays if the table follows it after an empty line.
            self.paragraph.append("")


def rows_of(lines: list[str]) -> list[Row]:
    """The rows of a table given by its lines, the title first."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    titles, _, *body = cells
    return [dict(zip(titles, row, strict=True)) for row in body]


def _tables() -> list[Table]:
    reader = _Reader()
    fenced = False
    for line in [*TEXT.splitlines(), ""]:
        fenced ^= line.startswith("```")
        if not fenced:
            reader.line(line.rstrip())
    return reader.tables


def _worked_bytes() -> list[Bytes]:
    blocks = re.findall(r"^```hex (.*?)\n(.*?)^```$", TEXT, re.M | re.S)
    found = []
    for facts, body in blocks:
        words = dict(word.partition("=")[::2] for word in facts.split())
        digits = " ".join(line.partition("#")[0] for line in body.splitlines())
        found.append(Bytes(words, bytes.fromhex(digits)))
    return found


TABLES = _tables()
WORKED = _worked_bytes()


def table_under(heading: str, *titles: str) -> Table:
    """The only table under a heading that has these titles first."""
    (found,) = [
        table
        for table in TABLES
        if table.heading == heading and table.titles[: len(titles)] == list(titles)
    ]
    return found


NAMED_STRUCT = re.compile(r"`([A-Z0-9_]+)`, (\d+) bytes")
NAMED_ENUM = re.compile(r"`([A-Z]\w+[a-z]\w*)`[,:]")


def struct_tables() -> dict[str, Table]:
    found = {}
    for table in TABLES:
        names = NAMED_STRUCT.findall(table.before)
        if names and table.titles == ["offset", "size", "type", "name", "meaning"]:
            found[names[-1][0]] = table
    return found


def enum_tables() -> dict[str, Table]:
    found = {}
    for table in TABLES:
        names = NAMED_ENUM.findall(table.before)
        if names and table.titles[:2] == ["value", "name"]:
            found[names[-1]] = table
    return found
