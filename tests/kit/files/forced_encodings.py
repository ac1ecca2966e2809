"""A Hypothesis strategy for the encodings that a writer may be told to use."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from fermion.columns.types import PhysicalKind, column_node
from fermion.options import WriteOptions
from fermion.writing.column import ColumnPlan

# Without those that refuse some values: constant, narrow, alp.
_ANY = ("plain", "zstd", "lz4")
_NUMBERS = (*_ANY, "dictionary", "rle", "byte_stream_split", "pcodec")
_ENCODINGS = {
    PhysicalKind.BITS: (*_ANY, "bitmap"),
    PhysicalKind.BINARY: (*_ANY, "dictionary", "split_lengths", "fsst"),
    PhysicalKind.FIXED: (*_ANY, "dictionary", "rle", "byte_stream_split"),
    PhysicalKind.FLOAT16: _NUMBERS,
    PhysicalKind.FLOAT32: _NUMBERS,
    PhysicalKind.FLOAT64: _NUMBERS,
}
_INTEGERS = (*_NUMBERS, "for_bitpack", "delta")


@st.composite
def forced_encodings(draw: st.DrawFn, schema: pa.Schema) -> dict[str, str]:
    """Encodings by column for a writer: of each leaf, one that holds any values of its type."""
    allowed: dict[str, set[str]] = {}
    for field in schema:
        for name, leaf in ColumnPlan.of(column_node(field), WriteOptions()).leaves():
            assert leaf.physical is not None
            own = set(_ENCODINGS.get(leaf.physical.kind, _INTEGERS))
            allowed[name] = allowed.get(name, own) & own
    return {name: draw(st.sampled_from(sorted(each))) for name, each in allowed.items()}
