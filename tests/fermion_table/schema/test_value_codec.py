"""Single values as JSON: exact, and in the order of the values."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fermion.errors import UnsupportedTypeError
from fermion_table.schema.repeated import nulls, repeat
from fermion_table.schema.value_codec import decode_value, encode_value, has_plain_json
from tests.kit.arrow_limits import has_nested_wrappers
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import arrow_types, random_array, scalar_types


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
    """All but values of types that Arrow's streams (and at times its scalars) fail on."""
    assume(not has_nested_wrappers(dtype))
    array = random_array(np.random.default_rng(seed), dtype, 3)
    for row, scalar in enumerate(array):
        value = msgspec.json.decode(msgspec.json.encode(encode_value(scalar)))
        again = repeat(decode_value(value, dtype), 1)
        again.validate(full=True)
        assert_logically_equal(again, array.slice(row, 1))


@pytest.mark.parametrize(
    "value_type", [pa.dictionary(pa.int8(), pa.bool_()), pa.uuid(), pa.struct([("a", pa.uuid())])]
)
def test_values_that_arrow_streams_lose_are_refused(value_type):
    """Nothing is published that could not be read."""
    codes = pa.array([0], pa.int8())
    dictionary = pa.DictionaryArray.from_arrays(codes, nulls(value_type, 1))
    scalar = pa.StructArray.from_arrays([dictionary], names=["a"])[0]
    with pytest.raises(UnsupportedTypeError, match="dictionaries"):
        encode_value(scalar)


RUN_ENDS = pa.run_end_encoded(pa.int16(), pa.bool_())


@pytest.mark.parametrize(
    "dtype",
    [
        pa.struct([("a", RUN_ENDS)]),
        pa.struct([("a", pa.list_(RUN_ENDS))]),
        pa.struct([("a", pa.struct([("b", pa.list_view(RUN_ENDS))]))]),
        pa.list_(pa.struct([("a", pa.large_list(RUN_ENDS))])),
        pa.list_(RUN_ENDS, 2),
    ],
    ids=str,
)
def test_run_end_encoded_values_below_nulls_survive_json(dtype):
    """Sixty arrays a type: some of their rows hold a null above the run-end encoded values."""
    for seed in range(60):
        array = random_array(np.random.default_rng(seed), dtype, 3)
        for row, scalar in enumerate(array):
            again = repeat(decode_value(encode_value(scalar), dtype), 2)
            again.validate(full=True)
            assert_logically_equal(again.slice(1), array.slice(row, 1))


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
