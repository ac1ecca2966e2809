"""The side of a table that names its versions and moves between them."""

from __future__ import annotations

from fermion_table.table_view import TableView
from fermion_table.version_names import Branches, Tags


class TableVersions(TableView):
    """A table at one of its snapshots, with its tags and branches."""

    @property
    def branch(self) -> str:
        """The branch that this object reads and writes."""
        return self._branch

    @property
    def tags(self) -> Tags:
        """Names for snapshots: ``tags.create(name)``, ``.delete(name)``, ``.list()``."""
        return Tags(self._store, self._snapshot, self._branch)

    @property
    def branches(self) -> Branches:
        """Histories beside each other: ``branches.create(name)``, ``.fast_forward(name)``, ..."""
        return Branches(self._store, self._snapshot, self._branch, self._move_to)
