"""The search for encodings in the kernel: whatever it chooses for any values, they come back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion.columns.types import BinaryValues, PhysicalKind, PhysicalType, number
from fermion.encodings.choice.policy import LIMITS, Policy, Rules, policy_for
from fermion.writing import flat
from tests.kit.files.independent_reader import File
from tests.kit.files.physical_values import COUNTS, SHAPES, make_values

KINDS = {
    pa.int8(): number(PhysicalKind.INT8),
    pa.uint16(): number(PhysicalKind.UINT16),
    pa.int32(): number(PhysicalKind.INT32),
    pa.int64(): number(PhysicalKind.INT64),
    pa.uint64(): number(PhysicalKind.UINT64),
    pa.float32(): number(PhysicalKind.FLOAT32),
    pa.float64(): number(PhysicalKind.FLOAT64),
    pa.binary(): PhysicalType(PhysicalKind.BINARY, 0),
    pa.large_binary(): PhysicalType(PhysicalKind.BINARY, 0),
    pa.decimal128(38, 0): number(PhysicalKind.INT64),
    pa.decimal256(76, 0): number(PhysicalKind.INT64),
}


def column(kind: pa.DataType, count: int, shape: str, nulls: float, seed: int) -> pa.Array:
    """Values of a type with some nulls; decimals are 64-bit integers, but one in some columns."""
    values = make_values(KINDS[kind], count, shape, seed)
    mask = np.random.default_rng(seed).random(count) < nulls
    if isinstance(values, BinaryValues):
        raw = values.data.tobytes()
        ends = values.offsets.tolist()
        texts = [raw[start:stop] for start, stop in pairwise(ends)]
        return pa.array(texts, kind, mask=mask)
    assert isinstance(values, np.ndarray)
    if not pa.types.is_decimal(kind):
        return pa.array(values, kind, mask=mask)
    words = np.zeros((count, kind.byte_width // 8), np.int64)
    words[:] = (values >> 63)[:, None]
    words[:, 0] = values
    if seed % 5 == 0:
        words[count // 2, 1] ^= 1
    valid = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(words)])


@contextmanager
def trying_everything() -> Iterator[None]:
    """The kernel tries all encodings on columns of any size."""

    def policy(options: fermion.WriteOptions) -> Policy:
        found = policy_for(options)
        return replace(found, rules=Rules(*(rule._replace(bytes_min=0) for rule in found.rules)))

    limits = LIMITS._replace(search_bytes_min=0)
    with mock.patch.multiple(flat, policy_for=policy, LIMITS=limits):
        yield


def bits(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Floats as the integers of their bits, so that every NaN equals itself alone."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_floating(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    count=st.sampled_from(COUNTS),
    shape=st.sampled_from(SHAPES),
    nulls=st.sampled_from([0, 0.05, 0.5, 1]),
    first=st.integers(0, 3),
    seed=st.integers(0, 2**16),
    everything=st.booleans(),
)
def test_any_values_come_back(
    kind: pa.DataType,
    count: int,
    shape: str,
    nulls: float,
    first: int,
    seed: int,
    everything: bool,
) -> None:
    """Bit by bit: all rows, some rows, and all by the reader that shares no code.

    ``everything``: all encodings are tried on columns of any size.
    """
    array = column(kind, count, shape, nulls, seed).slice(min(first, count - 1))
    sink = io.BytesIO()
    with trying_everything() if everything else nullcontext():
        fermion.write_table(pa.table({"a": array}), sink)
    with fermion.open(sink.getvalue()) as file:
        assert bits(file.read()["a"]).equals(bits(array))
        picks = sorted({0, len(array) // 2, len(array) - 1})
        taken = bits(file.take(picks)["a"])
        assert taken.equals(bits(array.take(picks)))
    assert bits(File(sink.getvalue()).column(0)).equals(bits(array))


def test_pages_do_not_depend_on_what_else_is_encoded() -> None:
    """Memory that columns share in a call: each alone, and all of them, give the same pages."""
    arrays = {
        f"{kind} {shape}": column(kind, 1500, shape, nulls, 7)
        for kind in KINDS
        for shape in SHAPES
        for nulls in (0, 0.05)
    }
    table = pa.table(arrays)
    options = fermion.WriteOptions()
    writer = flat.FlatWriter(flat.ColumnPlans(table.schema, options), options)
    columns = writer.columns(table)
    assert columns is not None
    encode = partial(writer.encode, columns)
    together = encode(np.arange(len(arrays)))
    alone = [encode(np.array([ordinal])) for ordinal in range(len(arrays))]
    assert bytes(together.pages) == b"".join(bytes(each.pages) for each in alone)
