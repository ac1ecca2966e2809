"""Mirrors through random histories: each published snapshot shows the rows of the source.

Publications come at random between commits, of each kind on its own, and end with one of all.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion_table.storage.local import LocalStore
from tests.kit.keyed_machine import KeyedMachine
from tests.kit.table_machine import TableMachine
from tests.kit.tables.mirrored import KINDS, Kind, publisher, source_rows


class _Mirrored:
    """What is added to a machine that has a table in a folder."""

    table: Any
    folder: Any

    def publish(self, kind: Kind) -> None:
        store = LocalStore(self.folder / kind.name, durability="fast")
        made = publisher(self.table, kind.target, store)
        try:
            made.target.check(self.table.schema)
        except UnsupportedTypeError:
            return  # refused before anything is written: see the tests of each kind
        try:
            done = made.publish()
        except InvalidArgumentError as error:
            assert "is the empty text, which Delta does not tell from null" in str(error)  # noqa: PT017
            return
        assert done.snapshot_id == self.table.snapshot.id

    def check_all(self) -> None:
        if not hasattr(self, "table"):
            return
        there = {snapshot.id for snapshot in self.table.snapshots()}
        for kind in KINDS:
            self.publish(kind)
            found = kind.found(self.folder / kind.name)
            for snapshot_id in found.keys() & there:
                rows = source_rows(self.table, snapshot_id)
                assert found[snapshot_id] == rows, (kind.name, snapshot_id)


class MirroredTables(_Mirrored, TableMachine):
    """Append tables: batches, deletes, merges, column files, evolution, restores."""

    @rule(kind=st.sampled_from(KINDS))
    def publish_one(self, kind: Kind) -> None:
        self.publish(kind)

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            super().teardown()


class MirroredKeyedTables(_Mirrored, KeyedMachine):
    """Tables with a primary key, of all merge engines."""

    @rule(kind=st.sampled_from(KINDS))
    def publish_one(self, kind: Kind) -> None:
        self.publish(kind)

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            super().teardown()


FEW = settings(
    max_examples=max(4, settings.default.max_examples // 8), stateful_step_count=14, deadline=None
)
MirroredTables.TestCase.settings = FEW
MirroredKeyedTables.TestCase.settings = FEW
test_any_history_of_an_append_table_is_mirrored = MirroredTables.TestCase
test_any_history_of_a_keyed_table_is_mirrored = MirroredKeyedTables.TestCase
