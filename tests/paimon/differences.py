"""Where results differ from Paimon's: a history of each reason, and what both systems return.

Drawn histories avoid these cases; docs/design/0007-primary-key-tables.md lists them for readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.paimon.drawn_histories import NESTED, PARTIAL, aggregation

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A history of one key, and its row at the end; None: it has none.

    Attributes
    ----------
    reason
        Why Paimon's result depends on how rows are grouped or compacted, or what else differs.
    commits
        Rows without the key.
    compactions
        After which commits Paimon compacts the whole table.
    """

    reason: str
    options: Mapping[str, str]
    columns: Mapping[str, str]
    commits: Sequence[Sequence[Row]]
    compactions: Sequence[str | None] = ()
    ours: Row | None
    paimons: Row | None

    def history(self, name: str) -> dict:
        """The history as `tests.paimon.java_engine` takes it."""
        count = len(self.commits)
        return {
            "name": name,
            "options": {"bucket": "1", **self.options},
            "paimon_options": {"write-only": "true"},
            "primary_key": ["k"],
            "partition": [],
            "schema": [["k", "INT", False], *([*each, True] for each in self.columns.items())],
            "commits": [[{"k": 1, **row} for row in rows] for rows in self.commits],
            "compactions": list(self.compactions) or [None] * count,
            "our_compactions": [None] * count,
        }


def added(**values: Any) -> Row:
    return {**values, "_kind": "+I"}


def deleted(**values: Any) -> Row:
    return {**values, "_kind": "-D"}


ITEM = {"x": 1, "y": "a"}
GROUP = PARTIAL | {"fields.s.sequence-group": "a"}
REMOVAL = PARTIAL | {"partial-update.remove-record-on-delete": "true"}

DIFFERENCES: dict[str, Difference] = {
    "a lone row of a sequence group without its sequence": Difference(
        reason="Paimon does not merge the only row of a key, and ignores its group later",
        options=GROUP,
        columns={"s": "BIGINT", "a": "INT"},
        commits=[[added(s=None, a=3)]],
        ours={"s": None, "a": None},
        paimons={"s": None, "a": 3},
    ),
    "a lone list with equal items": Difference(
        reason="Paimon does not merge the only row of a key, and drops the items later",
        options=aggregation({"a": "collect"}, **{"fields.a.distinct": "true"}),
        columns={"a": "ARRAY<INT>"},
        commits=[[added(a=[1, 1, 3])]],
        ours={"a": [1, 3]},
        paimons={"a": [1, 1, 3]},
    ),
    "a lone retraction": Difference(
        reason="Paimon hides a key whose only row is a retraction, and subtracts it later",
        options=aggregation({"a": "sum"}),
        columns={"a": "INT"},
        commits=[[deleted(a=8)]],
        ours={"a": -8},
        paimons=None,
    ),
    "a lone retraction, compacted": Difference(
        reason="a full compaction drops the only row of a key if it is a retraction",
        options=aggregation({"a": "sum"}),
        columns={"a": "INT"},
        commits=[[deleted(a=8)], [added(a=10)]],
        compactions=["full", None],
        ours={"a": 2},
        paimons={"a": 10},
    ),
    "a deletion with sequence fields, compacted": Difference(
        reason="a full compaction drops deletions, and a late row brings the key back",
        options={"sequence.field": "s"},
        columns={"s": "BIGINT"},
        commits=[[added(s=1)], [deleted(s=4)], [added(s=3)]],
        compactions=[None, "full", None],
        ours=None,
        paimons={"s": 3},
    ),
    "values of a deletion in a sequence group": Difference(
        reason="a deletion that comes first fills the columns without a group",
        options=GROUP,
        columns={"s": "BIGINT", "a": "INT", "b": "INT"},
        commits=[[deleted(s=4, a=1, b=7)], [added(s=3, a=2, b=None)]],
        ours={"s": 4, "a": None, "b": None},
        paimons={"s": 4, "a": None, "b": 7},
    ),
    "values of a deletion that removes the row": Difference(
        reason="rows after a deletion are merged with its values, unless it was compacted away",
        options=REMOVAL,
        columns={"a": "INT", "b": "INT"},
        commits=[[deleted(a=2)], [added(b=5)]],
        ours={"a": None, "b": 5},
        paimons={"a": 2, "b": 5},
    ),
    "a deletion that removes the row, and a row of the same commit": Difference(
        reason="the rows of a commit are merged to one, which says nothing of the deletion",
        options=REMOVAL,
        columns={"a": "INT", "b": "INT"},
        commits=[[added(a=7)], [deleted(), added(b=5)]],
        ours={"a": None, "b": 5},
        paimons={"a": 7, "b": 5},
    ),
    "a value that is taken back in the commit that added it": Difference(
        reason="the rows of a commit are merged to a null, which changes no older value",
        options=aggregation({"a": "last_non_null_value"}),
        columns={"a": "INT"},
        commits=[[added(a=1)], [added(a=2), deleted(a=2)]],
        ours={"a": None},
        paimons={"a": 1},
    ),
    "a factor that is taken back before others of its commit": Difference(
        reason="the rows of a commit are merged, and a product begins with its first factor",
        options=aggregation({"a": "product"}),
        columns={"a": "BIGINT"},
        commits=[[added(a=2)], [deleted(a=2), added(a=4)]],
        ours={"a": 4},
        paimons={"a": 8},
    ),
    "a sum of a sequence group that begins with retractions": Difference(
        reason="the rows of a commit are merged, and begin with the value that is taken back",
        options=GROUP | {"fields.a.aggregate-function": "sum"},
        columns={"s": "BIGINT", "a": "INT"},
        commits=[[added(s=3, a=1)], [deleted(s=None, a=None), deleted(s=3, a=1)]],
        ours={"s": 3, "a": 0},
        paimons={"s": 3, "a": 2},
    ),
    "the sequence of a deletion that removes the row": Difference(
        reason="rows with an older one are late until a full compaction drops the deletion",
        options=GROUP | {"partial-update.remove-record-on-sequence-group": "s"},
        columns={"s": "BIGINT", "a": "INT"},
        commits=[[added(s=2, a=3)], [deleted(s=2)], [added(s=1, a=2)]],
        ours={"s": 1, "a": 2},
        paimons={"s": 2, "a": None},
    ),
    "a late retraction of last_value in a sequence group": Difference(
        reason="late rows change nothing, but late retractions set the column to null",
        options=GROUP | {"fields.a.aggregate-function": "last_value"},
        columns={"s": "BIGINT", "a": "INT"},
        commits=[[added(s=4, a=8)], [added(s=2, a=2)], [deleted(s=2, a=2)]],
        ours={"s": 4, "a": 8},
        paimons={"s": 4, "a": None},
    ),
    "descending sequences of one commit": Difference(
        reason="the rows of a commit are merged in ascending order",
        options={"sequence.field": "s", "sequence.field.sort-order": "descending"},
        columns={"s": "BIGINT"},
        commits=[[added(s=2), added(s=3)]],
        ours={"s": 2},
        paimons={"s": 3},
    ),
    "equal items of nested_update without a key": Difference(
        reason="taking back an item takes back all that are equal, however often it was added",
        options=aggregation({"a": "nested_update"}),
        columns={"a": NESTED},
        commits=[[added(a=[ITEM])], [added(a=[ITEM])], [deleted(a=[ITEM])]],
        ours={"a": [ITEM]},
        paimons={"a": []},
    ),
    "an empty text in listagg": Difference(
        reason="empty texts are left out of lists; here, as in pypaimon, alone too",
        options=aggregation({"a": "listagg"}),
        columns={"a": "STRING"},
        commits=[[added(a=None)], [added(a="")]],
        ours={"a": None},
        paimons={"a": ""},
    ),
}
