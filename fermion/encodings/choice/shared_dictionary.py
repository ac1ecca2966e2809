"""The dictionary that stripes of a column share, while it grows: entries are only ever appended."""

from __future__ import annotations

import numpy as np

from fermion.columns.types import Bits, PhysicalType, Values, concatenate, empty
from fermion.encodings.choice.search import values_bytes
from fermion.encodings.dictionary import build_dictionary
from fermion.encodings.removed_nulls import remove_nulls
from fermion.exports import dataclass
from fermion.layout import GLOBAL_DICTIONARY_BYTES_MAX, GLOBAL_DICTIONARY_ENTRIES_MAX


@dataclass(slots=True)
class GrowingDictionary:
    """Distinct values of one leaf, in the order of their first appearance in the file.

    physical: What the values are; bits have no dictionary.
    is_full: Whether a stripe had more values than a dictionary may hold; none is added after that.
    """

    physical: PhysicalType
    entries: Values
    is_full: bool = False

    @classmethod
    def of(cls, physical: PhysicalType) -> GrowingDictionary:
        """A dictionary without entries."""
        return cls(physical, empty(physical))

    def codes(self, values: Values, validity: Bits | None = None) -> np.ndarray | None:
        """The code of each value, ``uint32``; what is new gets the next codes.

        None where the dictionary is full: it then stays as it was. None also for no values.

        validity: Which values are valid; the others get no entry, but the code of a neighbour.
        """
        if validity is not None:
            codes = self._valid_codes(remove_nulls(values, validity))
            places = np.maximum(np.cumsum(validity.unpack()) - 1, 0)
            return None if codes is None else codes[places]
        return self._valid_codes(values)

    def _valid_codes(self, values: Values) -> np.ndarray | None:
        if self.is_full or not len(values):
            return None
        known = len(self.entries)
        own = build_dictionary(values, GLOBAL_DICTIONARY_ENTRIES_MAX)
        # Distinct entries in front get the codes that they have already.
        built = own and build_dictionary(
            concatenate([self.entries, own[1]], self.physical), GLOBAL_DICTIONARY_ENTRIES_MAX
        )
        if not own or not built or values_bytes(built[1]) > GLOBAL_DICTIONARY_BYTES_MAX:
            self.is_full = True
            return None
        if len(built[1]) > known:
            self.entries = built[1]
        return built[0][known:][own[0]]
