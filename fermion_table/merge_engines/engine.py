"""A merge engine: what the rows of one key become, and what that asks of everyone else.

The object is the only place that knows which engine a table has: writers, readers, compaction,
lookups, change feeds and row-level operations ask it. A new engine is a subclass in a file of its
own, and one line in `registry`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.key_groups import Folded, StoredRows, is_retraction
from fermion_table.schema.key_options import KeyOptions
from fermion_table.schema.properties import PRODUCERS, ChangelogProducer


class MergeEngine(ABC):
    """What the rows of one key become. Instances have no state.

    name: As the property ``merge_engine`` has it.
    picks: Whether the row of a key is one of the rows that are stored, so that a scan may look for
        it by keys alone, and apply filters on values before rows are merged.
    oldest_wins: Of an engine that picks: whether it is the oldest row, not the newest.
    replaces: Whether a row takes the place of an older one of its key, whatever both hold: an
        update writes the new row alone. Of other engines it is a deletion and a new row.
    can_remove_rows: Whether the property ``<name>.remove_record_on_delete`` makes deletions remove
        the row.
    has_functions: Whether each column that is no key has an aggregate function.
    has_sequence_groups: Whether columns may have sequences of their own.
    fills_defaults: Whether a column that a batch lacks gets its default; otherwise it is null, and
        says nothing.
    changelog_producers: Values of ``changelog_producer`` that it may be combined with.
    rows_change: Whether the row of a key may become another one.
    """

    name: ClassVar[str]
    picks: ClassVar[bool] = False
    oldest_wins: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    can_remove_rows: ClassVar[bool] = False
    has_functions: ClassVar[bool] = False
    has_sequence_groups: ClassVar[bool] = False
    fills_defaults: ClassVar[bool] = True
    changelog_producers: ClassVar[tuple[ChangelogProducer, ...]] = PRODUCERS
    rows_change: ClassVar[bool] = True

    @abstractmethod
    def fold(self, stored: StoredRows, options: KeyOptions) -> Folded:
        """The row of each key. Folding some newest rows first changes no result.

        Raises InvalidArgumentError: A retraction that the engine does not take, or a value that is
            out of range.
        """

    def check_retractions(  # noqa: B027 - an engine that takes all of them has nothing to check
        self, options: KeyOptions, kinds: np.ndarray
    ) -> None:
        """Refuse retractions that the engine does not take.

        kinds: Of some rows: ``int8``, shape (n,).
        Raises InvalidArgumentError: Names the settings that take them.
        """

    def without_value(self, options: KeyOptions, kinds: np.ndarray) -> np.ndarray:
        """Which rows take the values of their key back, so that a NOT NULL column may be left null.

        Returns: ``bool``, shape (n,).
        """
        return np.zeros(len(kinds), bool)

    def says_nothing(self, options: KeyOptions, kinds: np.ndarray) -> np.ndarray:
        """Which rows' values never count, but for those of the key and of sequences.

        Returns: ``bool``, shape (n,).
        """
        return is_retraction(kinds)

    def check_sequence_fields(self, fields: Sequence[str]) -> None:  # noqa: B027 - most take them
        """Refuse the property ``sequence.field``.

        Raises InvalidArgumentError: Says what to use instead.
        """

    def check_deletes_by_key(self, options: KeyOptions) -> None:  # noqa: B027 - most take them
        """Refuse rows that delete keys, and hold no values.

        Raises InvalidArgumentError.
        """

    def check_removes(self, options: KeyOptions, action: str) -> None:
        """Refuse an operation that takes rows away.

        action: ``delete``, or another one that removes or replaces rows.
        Raises InvalidArgumentError: Deletions have no effect, or say something else than that a row
            goes.
        """
        if options.ignore_delete and (action == "delete" or not self.replaces):
            raise InvalidArgumentError(f"{action}: the table drops deletions (ignore_delete=true)")
        if self.replaces or (self.can_remove_rows and options.remove_record_on_delete):
            return
        hint = "overwrite the rows instead"
        if self.can_remove_rows and not options.sequence_groups:
            hint = f"set {self.name}.remove_record_on_delete=true when the table is made"
        raise InvalidArgumentError(
            f"{action}: rows of merge_engine={self.name} can't be removed or replaced; {hint}"
        )

    def replaces_whole(self, options: KeyOptions) -> bool:
        """Whether the newest row in time takes the place of all older ones of its key."""
        return self.replaces and not options.sequence_fields

    def picks_by_time(self, options: KeyOptions) -> bool:
        """Whether the place of a run in time alone tells which row of a key counts."""
        return self.picks and not options.sequence_fields
