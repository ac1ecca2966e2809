"""Files written with align=64: where their pages lie, what that gives, and how it is checked."""

from __future__ import annotations

import io
import mmap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion.layout import FOOTER, FULL_CHUNK_DESC, PAGE_META, Setting
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, put, repair
from tests.kit.strategies import tables


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, align=64, **options)
    return sink.getvalue()


def problems(data: bytes | bytearray) -> tuple[str, ...]:
    with fermion.open(data) as file:
        return file.verify().problems


@given(
    tables().filter(lambda table: message_can_hold(table.schema)),
    st.sampled_from(["balanced", "compact", "fast", "random"]),
    st.sampled_from([16, 64, 512 * 1024]),
)
def test_every_page_starts_40_bytes_after_a_multiple_of_64(table, profile, page_bytes):
    """Of every stream of any table; values then start 24 bytes later."""
    data = stored(table, profile=profile, page_bytes=page_bytes, stripe_rows=9)
    for offset, length in Anatomy(data).pages:
        assert offset % 64 == 40
        assert length % 64 == 0
    with fermion.open(data) as file:
        assert file.settings["align"] == 64
        assert_logically_equal(file.read(), table)


def test_the_pages_of_batches_are_aligned_too():
    sink = io.BytesIO()
    options = fermion.WriteOptions(align=64, page_bytes=64)
    schema = pa.schema([("a", pa.int64())])
    with fermion.Writer(sink, schema, options=options) as writer:
        for number in range(30):
            rows = pa.table({"a": [number] * (number % 4)}, schema=schema)
            writer.append_batch(number * 7, rows)
    data = sink.getvalue()
    assert problems(data) == ()
    pages = Anatomy(data).pages
    assert len(pages) > 10
    assert all(offset % 64 == 40 for offset, _ in pages)


def test_a_mapped_file_gives_plain_values_without_copying(tmp_path: Path):
    """The buffers of Arrow's arrays lie in the mapping, at multiples of 64; validity as well."""
    rng = np.random.default_rng(0)
    count = 5_000
    table = pa.table(
        {
            "float": rng.normal(size=count),
            "half": pa.array(rng.normal(size=count).astype(np.float16)),
            "flag": rng.random(count) < 0.5,
            "sparse": pa.array([None if i % 5 == 0 else i for i in range(count)]),
            "uuid": pa.array([rng.bytes(16) for _ in range(count)], pa.binary(16)),
        }
    )
    path = tmp_path / "x.fermion"
    plain = {name: "plain" for name in table.column_names if name != "flag"}
    fermion.write_table(table, path, align=64, encodings={**plain, "flag": "bitmap"})
    with path.open("rb") as handle:
        whole = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    start = np.frombuffer(whole, np.uint8).ctypes.data
    with fermion.open(whole) as file:
        found = file.read()
    assert found.equals(table)
    for name in table.column_names:
        (chunk,) = found[name].chunks
        for buffer in filter(None, chunk.buffers()):
            assert start <= buffer.address < start + len(whole)
            assert buffer.address % 64 == 0


def test_alignment_costs_less_than_64_bytes_a_page():
    table = FEATURES["aligned"]().table
    sink = io.BytesIO()
    fermion.write_table(table, sink, page_rows_max=8)
    aligned = stored(table, page_rows_max=8)
    pages = len(Anatomy(aligned).pages)
    assert len(sink.getvalue()) < len(aligned) <= len(sink.getvalue()) + 24 + 56 * pages + 8


def test_a_file_that_only_claims_to_be_aligned_is_a_problem():
    """One problem a column, the place or the size of its first chunk; its values read as ever."""
    data = bytearray(FEATURES["integers"]().stored())
    kind, offset, *_ = FOOTER.fields["settings"]
    at = len(data) - FOOTER.itemsize + offset
    put(data, at, int.from_bytes(data[at : at + 8], "little") | Setting.ALIGN64, kind.itemsize)
    repair(data)
    with fermion.open(data) as file:
        columns = file.num_columns
        assert file.read().equals(FEATURES["integers"]().table)
    found = problems(data)
    assert len(found) == columns
    assert "expected a chunk at 40 modulo 64" in found[0]
    assert all("modulo 64" in each or "multiple of 64" in each for each in found)


@pytest.mark.parametrize("dtype", [PAGE_META, FULL_CHUNK_DESC])
def test_a_page_whose_size_is_no_multiple_is_a_problem(dtype):
    """Sizes of two neighbouring pages that move their bound, or the length of a chunk of one."""
    rows = 16 if dtype is PAGE_META else 8
    data = bytearray(stored(pa.table({"a": np.arange(rows) / 7}), page_rows_max=8))
    places = [each.offset for each in Anatomy(data).places if each.dtype == dtype]
    name, changes = ("pageSize", (8, -8)) if dtype is PAGE_META else ("length", (-8,))
    kind, offset, *_ = dtype.fields[name]
    for place, change in zip(places, changes, strict=True):
        old = int(np.frombuffer(data, kind, 1, place + offset)[0])
        put(data, place + offset, old + change, kind.itemsize)
    repair(data)
    (problem,) = problems(data)
    assert "expected a multiple of 64 bytes" in problem


@pytest.mark.parametrize("align", [0, 1, 16, 128, "64"])
def test_only_two_alignments_are_known(align):
    with pytest.raises(InvalidArgumentError, match="expected 8 or 64"):
        fermion.WriteOptions(align=align)
