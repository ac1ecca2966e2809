"""Single values as JSON: exact, and in the order of the values."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.value_codec import decode_value, encode_value, has_plain_json
from tests.equality import assert_logically_equal
from tests.strategies import arrow_types, random_array, scalar_types


@given(scalar_types(), st.integers(0, 2**32))
def test_values_survive_json(dtype, seed):
    """Bit for bit but for NaN, whose payload JSON has no word for."""
    for scalar in random_array(np.random.default_rng(seed), dtype, 8):
        value = msgspec.json.decode(msgspec.json.encode(encode_value(scalar)))
        again = decode_value(value, dtype)
        assert again.type == dtype
        if pa.types.is_floating(dtype) and scalar.is_valid and math.isnan(scalar.as_py()):
            assert math.isnan(again.as_py())
        else:
            assert again.equals(scalar)


@given(arrow_types().filter(lambda dtype: not has_plain_json(dtype)), st.integers(0, 2**32))
def test_values_of_all_other_types_survive_json(dtype, seed):
    for scalar in random_array(np.random.default_rng(seed), dtype, 3):
        value = msgspec.json.decode(msgspec.json.encode(encode_value(scalar)))
        again = decode_value(value, dtype)
        assert_logically_equal(pa.repeat(again, 1), pa.repeat(scalar, 1))


@given(scalar_types().filter(has_plain_json), st.integers(0, 2**32))
def test_json_values_come_in_the_order_of_the_values(dtype, seed):
    """So that bounds over JSON values are bounds over values; NaN and infinity are words."""
    array = random_array(np.random.default_rng(seed), dtype, 10)
    pairs = [(scalar, encode_value(scalar)) for scalar in array if scalar.is_valid]
    pairs = [pair for pair in pairs if pa.types.is_string(dtype) or pair[1] not in WORDS]
    for left, left_json in pairs:
        for right, right_json in pairs:
            assert (left_json < right_json) == is_less(left, right)


WORDS = ("NaN", "Infinity", "-Infinity")


def is_less(left, right):
    if pa.types.is_floating(left.type):
        return left.as_py() < right.as_py()
    if pa.types.is_decimal(left.type) or pa.types.is_boolean(left.type):
        return left.as_py() < right.as_py()
    if pa.types.is_temporal(left.type):
        return left.value < right.value
    if isinstance(left.as_py(), str):
        return left.as_py().encode() < right.as_py().encode()
    return (
        pc.less(left, right).as_py()
        if isinstance(left.as_py(), int)
        else (left.as_py() < right.as_py())
    )


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("1", pa.int8()),
        (True, pa.int8()),
        (300, pa.int8()),
        (1, pa.string()),
        ("zz", pa.binary()),
        ("0", pa.float64()),
        (1.5, pa.decimal128(5, 2)),
        (10**9, pa.decimal128(5, 2)),
        ({"arrow": "AAAA"}, pa.list_(pa.int8())),
        ([1], pa.list_(pa.int8())),
    ],
)
def test_a_json_value_of_another_form_is_refused(value, dtype):
    with pytest.raises(ValueError, match=r"."):
        decode_value(value, dtype)
