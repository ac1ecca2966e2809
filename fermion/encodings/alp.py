"""ALP: floats that are decimals at heart, as integers and a power of ten.

A simple form of adaptive lossless floating point: one exponent a page, and a division on reading,
which is rounded correctly, so that every decimal of up to 15 digits comes back bit by bit.

====== ============== ========== ===================================================
offset size           name       meaning
====== ============== ========== ===================================================
0      1              exponent   e, 0 to 15: a value is ``integer / 10**e``
1      1              width      bytes of a value: 4 or 8
2      2              reserved   0
4      4              exceptions slots whose value is not that quotient, bit by bit
8      4 * exceptions slots      which slots, ascending
====== ============== ========== ===================================================

Zero padding to 8 bytes, the exceptions' values, zero padding to 8 bytes, then child 0: the
integers as ``int64``, any number for an exception. The quotient is computed in ``float64`` and
then rounded to the values' own type.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion.columns.types import INT64, PhysicalKind, PhysicalType, Values
from fermion.encodings.bitpack import sample_blocks
from fermion.encodings.encoding import (
    FOR_BITPACK,
    Buffer,
    Child,
    Chooser,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Estimate,
    Node,
    Recipe,
    Slots,
    node_parts,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import ALP_EXPONENT_MAX, Codec, EncodingId, align

EXCEPTIONS_PART_MAX = 1 / 16
SAMPLE_PART_MIN = 1 - 2 * EXCEPTIONS_PART_MAX
SAMPLE_VALUES = 16

_PARAMETERS = struct.Struct("<BB2xI")
_POWERS = np.array([float(10**exponent) for exponent in range(ALP_EXPONENT_MAX + 1)])
_COLUMN = _POWERS[:, None]


class DecimalFloats(Encoding):
    """Floats as decimal integers, with exceptions; keeps every bit."""

    id = EncodingId.ALP
    name = "alp"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.kind in (PhysicalKind.FLOAT32, PhysicalKind.FLOAT64)

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (FOR_BITPACK,))

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        """See `Encoding.estimate`; where a sample says that floats are decimals."""
        assert isinstance(values, np.ndarray)
        exponent = decimal_exponent(values)
        if exponent is None:
            return None
        sample = sample_blocks(values)
        integers, exceptions = to_integers(sample, exponent)
        if len(exceptions) > EXCEPTIONS_PART_MAX * len(sample):
            return None
        scale = len(values) / len(sample)
        extra = len(exceptions) * (4 + values.dtype.itemsize) * scale + 2 * search.overhead
        best = search.child_integers(integers, scale)
        return Estimate(best.size + extra, Recipe(self.id, (best.recipe,)))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails where over a sixteenth of the values are no decimals."""
        if not isinstance(values, np.ndarray) or values.dtype.str not in ("<f4", "<f8"):
            raise InvalidArgumentError("encoding alp can only hold float32 and float64")
        exponent = decimal_exponent(values)
        if exponent is None:
            raise InvalidArgumentError("encoding alp cannot hold floats that are not decimals")
        integers, exceptions = to_integers(values, exponent)
        if len(exceptions) > EXCEPTIONS_PART_MAX * len(values):
            raise InvalidArgumentError(
                f"encoding alp cannot hold {len(exceptions)} values of {len(values)} "
                "that are not decimals"
            )
        parameters = _PARAMETERS.pack(exponent, values.dtype.itemsize, len(exceptions))
        gap = b"\0" * (4 * (len(exceptions) % 2))
        raw = values[exceptions].tobytes()
        child = settings.encode(integers, INT64, recipe.children[0])
        return node_parts(self.id, [parameters, exceptions.astype("<u4"), gap, raw], [child])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        exponent, width, exceptions, values_start, child = self._open(node)
        if out.dtype.kind != "f" or out.dtype.itemsize != width:
            raise self._mismatch(str(out.dtype))
        _divide(context.numbers(child, count, slots, "<i8"), exponent, out)
        if not exceptions:
            return
        known = node.array("<u4", exceptions, node.start + _PARAMETERS.size)
        values = node.array(out.dtype, exceptions, values_start)
        if isinstance(slots, range):
            low, high = known.searchsorted((slots.start, slots.stop))
            wanted = known[low:high].astype(np.int64) - slots.start
            # Slots out of order could lie anywhere.
            if len(wanted) and not (wanted.min() >= 0 and wanted.max() < len(out)):
                raise InvalidFileError("alp node: expected the exceptions' slots to ascend")
            out[wanted] = values[low:high]
        else:
            places = np.minimum(known.searchsorted(slots), exceptions - 1)
            found = known[places] == slots
            out[found] = values[places[found]]

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("integers", self._open(node)[4], count)]

    def _open(self, node: Node) -> tuple[int, int, int, int, Node]:
        """Exponent, width, number of exceptions, where their values start, child."""
        node.expect_children(1)
        exponent, width, exceptions = node.unpack(_PARAMETERS)
        if exponent > ALP_EXPONENT_MAX or width not in (4, 8):
            raise InvalidFileError(
                f"alp node: expected an exponent up to {ALP_EXPONENT_MAX} and 4 or 8 bytes, "
                f"found {exponent} and {width}"
            )
        values_start = node.start + align(_PARAMETERS.size + 4 * exceptions)
        child = node.child(values_start + align(exceptions * width))
        return exponent, width, exceptions, values_start, child


def _divide(integers: np.ndarray, exponent: int, out: np.ndarray) -> None:
    if out.dtype.itemsize == 8:
        np.divide(integers, _POWERS[exponent], out=out)
    else:
        out[:] = integers / _POWERS[exponent]


def decimal_exponent(values: np.ndarray) -> int | None:
    """The smallest exponent that makes most of a sample integers; None where that is not enough.

    values: ``float32`` or ``float64``, shape (n,).
    """
    sample = values[:: max(len(values) // SAMPLE_VALUES, 1)][:SAMPLE_VALUES]
    with np.errstate(all="ignore"):
        wide = sample.astype(np.float64, copy=False)
        exact = (np.rint(wide * _COLUMN) / _COLUMN).astype(sample.dtype, copy=False) == sample
    hits = np.add.reduce(exact, axis=1, dtype=np.int64)
    best = int(hits.argmax())
    return best if hits[best] >= max(len(sample) * SAMPLE_PART_MIN, 1) else None


def to_integers(values: np.ndarray, exponent: int) -> tuple[np.ndarray, np.ndarray]:
    """Floats times a power of ten as ``int64``, and the slots where that loses a bit.

    Those slots hold the first integer that is exact, so that they do not widen the range.
    """
    power = _POWERS[exponent]
    bits = f"<u{values.dtype.itemsize}"
    with np.errstate(all="ignore"):
        # What is no number, or too large a one, becomes any integer, and then differs.
        integers = np.rint(values.astype(np.float64, copy=False) * power).astype(np.int64)
        back = (integers / power).astype(values.dtype, copy=False)
    same = back.view(bits) == values.view(bits)
    if same.all():
        return integers, np.empty(0, np.int64)
    exceptions = np.flatnonzero(~same)
    integers[exceptions] = integers[same.argmax()]
    return integers, exceptions
