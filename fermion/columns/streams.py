"""The streams of one column over a run of rows: what `shred` makes and `assemble` takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fermion.columns.values import Bits, Values


@dataclass(slots=True)
class ColumnStreams:
    """Values of a column's streams, keyed by stream ordinal.

    A projected column holds only the ordinals it needs.

    Attributes
    ----------
    length
        Rows.
    slots
        Slots of each stream at its own level: list elements for a list's child.
    validity
        VALIDITY streams: `Bits` (1 = valid), ``None`` where every slot is valid, or ``False``
        where every slot is null.
    offsets
        OFFSETS streams: ``int64``, shape (slots + 1,), starting at 0.
    data
        DATA streams: physical values, one a slot. Slots that are null hold a filler (the previous
        valid value, or zero), never what the input hid there.
    """

    length: int
    slots: dict[int, int] = field(default_factory=dict)
    validity: dict[int, Bits | bool | None] = field(default_factory=dict)
    offsets: dict[int, np.ndarray] = field(default_factory=dict)
    data: dict[int, Values] = field(default_factory=dict)
