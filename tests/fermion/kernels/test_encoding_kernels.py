"""The kernels that encodings are built on: deltas, signs, runs and byte streams."""

from __future__ import annotations

import inspect
import re
from itertools import groupby
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion import kernels as compiled
from tests.kit.numpy_kernels import blooms as reference_blooms
from tests.kit.numpy_kernels import fsst as reference_fsst
from tests.kit.numpy_kernels import functions as reference
from tests.kit.numpy_kernels import lz4 as reference_lz4
from tests.kit.numpy_kernels import names as reference_names
from tests.kit.numpy_kernels import nulls as reference_nulls
from tests.kit.numpy_kernels import picks as reference_picks
from tests.kit.numpy_kernels import places as reference_places

PROJECT = Path(__file__).parents[3]
ORACLE = re.compile(r"^# Oracle: (\S+)::(?:\n# )?(\w+)\ndef (\w+)\(", re.MULTILINE)
BOTH = pytest.mark.parametrize("k", [compiled, reference], ids=["compiled", "reference"])
TWINS = (
    reference,
    reference_blooms,
    reference_fsst,
    reference_lz4,
    reference_names,
    reference_nulls,
    reference_picks,
    reference_places,
)
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FIXED = [*INTEGERS, "f2", "f4", "f8", "V1", "V3", "V16"]

# A quarter of the profile's examples for tests that already run once a type.
few = settings(max_examples=settings.default.max_examples // 4)
seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([0, 1, 2, 3, 1023, 1024, 1025, 3000])


def random_integers(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Draw from the whole range of a type, or from its ends."""
    limits = np.iinfo(dtype)
    if rng.random() < 0.3:
        return rng.choice(np.array([limits.min, limits.max], dtype), count)
    return rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)


@BOTH
@pytest.mark.parametrize("dtype", INTEGERS)
@few
@given(seed=seeds, size=sizes)
def test_deltas_wrap_and_restart_every_block(k: ModuleType, dtype: str, seed: int, size: int):
    values = random_integers(np.random.default_rng(seed), dtype, size)
    deltas, back = np.empty(size, dtype), np.empty(size, dtype)
    bases = np.empty(-(-size // 1024), dtype)
    k.delta_encode(values, deltas, bases)
    assert np.array_equal(bases, values[::1024])
    expected = np.diff(values, prepend=values[:1])
    expected[::1024] = [*expected[1::1024], 0][: len(bases)]
    assert np.array_equal(deltas, expected)
    k.delta_decode(deltas, bases, back)
    assert np.array_equal(back, values)
    k.delta_decode(deltas[1024:], bases[1:], back[: max(size - 1024, 0)])
    assert np.array_equal(back[: max(size - 1024, 0)], values[1024:])


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@few
@given(seed=seeds, length=st.sampled_from([1, 2, 40]))
def test_runs_are_found_and_expanded(k: ModuleType, dtype: str, seed: int, length: int):
    rng = np.random.default_rng(seed)
    pool = np.frombuffer(rng.bytes(3 * np.dtype(dtype).itemsize), dtype)
    values = np.repeat(pool[rng.integers(0, 3, 30)], rng.integers(1, length + 1, 30))
    lengths = [len(list(run)) for _, run in groupby(value.tobytes() for value in values)]
    ends = np.cumsum(lengths)
    starts = np.empty(k.count_runs(values), np.int64)
    k.run_starts(values, starts)
    assert starts.tolist() == [0, *ends[:-1].tolist()]
    first, stop = np.sort(rng.integers(0, len(values) + 1, 2)).tolist()
    for start, end in ((0, len(values)), (first, stop)):
        out = np.empty(end - start, dtype)
        k.expand_runs(values[starts], ends, start, end, out)
        assert out.tobytes() == values[start:end].tobytes()


@BOTH
def test_runs_may_be_empty_but_must_not_go_back(k: ModuleType):
    values, out = np.array([5, 6, 7, 8]), np.empty(3, np.int64)
    k.expand_runs(values, np.array([0, 2, 2, 3]), 0, 3, out)
    assert out.tolist() == [6, 6, 8]
    assert k.count_runs(values[:0]) == 0
    k.run_starts(values[:0], values[:0])
    k.expand_runs(values[:0], values[:0], 0, 0, values[:0])
    for ends in ([0, 2, 1, 3], [0, 2, 2, 2], [-1, 0, 0, 3], [1, 2, 3]):
        with pytest.raises(ValueError):
            k.expand_runs(values, np.array(ends), 0, 3, out)
    with pytest.raises(ValueError):
        k.expand_runs(values, np.array([0, 2, 2, 3]), 0, 2, out)
    with pytest.raises(ValueError):
        k.run_starts(values, out)


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize("size", [0, 1, 1023, 2100])
def test_byte_streams_split_and_merge(k: ModuleType, dtype: str, size: int):
    rng = np.random.default_rng(size)
    width = np.dtype(dtype).itemsize
    values = np.frombuffer(rng.bytes(size * width), dtype)
    split = np.empty(size * width, np.uint8)
    k.byte_stream_split(values, split)
    assert split.tobytes() == b"".join(values.tobytes()[byte::width] for byte in range(width))
    for start, stop in ((0, size), (size // 3, size // 2)):
        out = np.empty(stop - start, dtype)
        k.byte_stream_merge(split, size, start, stop, out)
        assert out.tobytes() == values[start:stop].tobytes()


@BOTH
def test_arrays_that_do_not_fit_together_are_refused(k: ModuleType):
    four, eight = np.zeros(4, np.int32), np.zeros(4, np.int64)
    calls = [
        lambda: k.delta_encode(four, four.copy(), np.zeros(2, np.int32)),
        lambda: k.delta_encode(four, eight, np.zeros(1, np.int32)),
        lambda: k.delta_decode(four, np.zeros(1, np.int32), np.zeros(3, np.int32)),
        lambda: k.delta_decode(four, np.zeros(1, np.int64), four.copy()),
        lambda: k.byte_stream_split(four, np.zeros(15, np.uint8)),
        lambda: k.byte_stream_merge(np.zeros(15, np.uint8), 4, 0, 4, four),
        lambda: k.byte_stream_merge(np.zeros(16, np.uint8), 4, 0, 5, np.zeros(5, np.int32)),
        lambda: k.byte_stream_merge(np.zeros(16, np.uint8), 4, 0, 3, four),
        lambda: k.expand_runs(four, eight, 0, 0, eight[:0]),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()


def oracles() -> dict[str, tuple[str, str]]:
    """Return the file and the test that stubs name for kernels that have no twin."""
    found = {}
    for stub in sorted((PROJECT / "fermion/kernels").glob("*.pyi")):
        text = stub.read_text(encoding="utf-8")
        for file, test, name in re.findall(
            r"^# Oracle: (\S+)::(?:\n# )?(\w+)\ndef (\w+)\(", text, re.M
        ):
            found[name] = file, test
    return found


FUNCTIONS = {
    name
    for name, kernel in vars(compiled).items()
    if not name.startswith("_") and callable(kernel) and not isinstance(kernel, type)
}
"""Kernels; classes are arguments of theirs."""


def test_a_kernel_without_a_twin_names_the_test_that_is_its_oracle():
    """The test is there, and no kernel has both."""
    without = {name for name in FUNCTIONS if not any(hasattr(module, name) for module in TWINS)}
    assert set(oracles()) == without
    for name, (file, test) in oracles().items():
        assert f"\ndef {test}(" in (PROJECT / file).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS - set(oracles())))
def test_every_other_kernel_has_a_twin_with_the_same_parameters(name: str):
    """By the names in the text signatures of both."""
    (home,) = (module for module in TWINS if hasattr(module, name))
    twin = inspect.signature(getattr(home, name)).parameters
    assert list(inspect.signature(getattr(compiled, name)).parameters) == list(twin)


def test_outputs_must_be_writable_contiguous_and_aligned():
    frozen = np.zeros(2, np.int64)
    frozen.flags.writeable = False
    shifted = np.frombuffer(bytearray(17), np.int64, 2, 1)
    codes, dictionary = np.zeros(2, np.uint32), np.zeros(1, np.int64)
    for out in (frozen, shifted, np.zeros(4, np.int64)[::2], np.zeros((1, 2), np.int64)):
        with pytest.raises(ValueError):
            compiled.gather_fixed(dictionary, codes, out)
    with pytest.raises(TypeError):
        compiled.gather_fixed(dictionary, codes, bytearray(16))
