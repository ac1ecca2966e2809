"""The merge engine ``first_row``: the first row of a key in time."""

from __future__ import annotations

import numpy as np

from fermion.errors import InvalidArgumentError
from fermion_table.merging.merge_engines.key_groups import Folded, KeyGroups, is_retraction


def fold(groups: KeyGroups, kinds: np.ndarray | None = None) -> Folded:
    """The first row of each key. Folding some newest rows first changes no result.

    Parameters
    ----------
    kinds
        Of all rows: ``int8``, shape (n,); None: no retraction is among them.

    Raises
    ------
    InvalidArgumentError
        A row is a retraction.
    """
    if kinds is not None:
        check_retractions(kinds[groups.order])
    return Folded(groups.order[groups.starts])


def check_retractions(kinds: np.ndarray) -> None:
    """Refuse retractions.

    Raises
    ------
    InvalidArgumentError
    """
    if is_retraction(kinds).any():
        raise InvalidArgumentError(
            "merge_engine=first_row: found a delete or update_preimage, which takes no row back "
            "here; set ignore_delete=true to drop such rows, or use merge_engine=deduplicate"
        )
