"""Every compiled kernel has a twin in NumPy or a test that is its oracle; what they refuse."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fermion import kernels as compiled
from tests.kit.kernel_cases import BOTH
from tests.kit.numpy_kernels import blooms as reference_blooms
from tests.kit.numpy_kernels import fsst as reference_fsst
from tests.kit.numpy_kernels import functions as reference
from tests.kit.numpy_kernels import lz4 as reference_lz4
from tests.kit.numpy_kernels import maps as reference_maps
from tests.kit.numpy_kernels import names as reference_names
from tests.kit.numpy_kernels import nulls as reference_nulls
from tests.kit.numpy_kernels import picks as reference_picks
from tests.kit.numpy_kernels import places as reference_places

PROJECT = Path(__file__).parents[3]
TWINS = (
    reference,
    reference_blooms,
    reference_fsst,
    reference_lz4,
    reference_maps,
    reference_names,
    reference_nulls,
    reference_picks,
    reference_places,
)


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
