"""Values of any shape, such as JSON events: Parquet's Variant, in one column.

A value is a null, a boolean, a number, a text, binary, a date or time, an array, or an object: a
mapping of names to values. It is stored in Parquet's Variant Binary Encoding
(https://parquet.apache.org/docs/file-format/types/variantencoding/).
"""

from __future__ import annotations

import base64
import datetime
import decimal
import re
import uuid
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion import kernels
from fermion.arguments import flag, integer
from fermion.columns.variants import STORAGE, Values, VariantType, values_of
from fermion.display import LINE_LENGTH, shortened
from fermion.errors import InvalidArgumentError

__all__ = ["VariantType", "from_json", "get", "parse_path", "to_json"]

Path = str | Sequence[str | int]
_EPOCH = datetime.datetime(1970, 1, 1)
_ABSENT = 0xFF
_TEXT, _BINARY, _INTEGER, _NESTED = 16, 15, 6, 32
"""Types of values: the numbers of primitive types; texts and integers of any length, objects and
arrays."""
_LIKE_JSON = frozenset([*range(1, 11), 14])
"""Booleans and numbers, whose text is that of JSON."""


def from_json(texts: pa.Array | pa.ChunkedArray | Sequence[str | None]) -> Any:
    """Variant values of JSON texts (RFC 8259).

    Whole numbers of 64 bits are integers. Other numbers are doubles if they have at most 15 digits,
    an exponent, or more than 38 digits, else decimals: so text of up to 15 digits is kept exactly.

    Parameters
    ----------
    texts
        Strings; nulls stay null, which is not the ``null`` of JSON.

    Returns
    -------
    pyarrow.ExtensionArray or pyarrow.ChunkedArray
        Of `VariantType`, of the same length; a copy.

    Raises
    ------
    InvalidArgumentError
        Names the row, the byte, and what is wrong: no JSON, a name that comes twice in an object,
        more than 64 levels, a number beyond those of doubles, or a value of 4 GiB.
    TypeError
        No strings.
    """
    if isinstance(texts, pa.ChunkedArray):
        return pa.chunked_array([from_json(chunk) for chunk in texts.chunks], VariantType())
    if not isinstance(texts, pa.Array):
        texts = pa.array(texts, pa.string())
    if pat.is_null(texts.type):
        texts = texts.cast(pa.string())
    if not _is_text(texts.type):
        raise TypeError(f"texts: expected strings, found {texts.type}")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"texts: {error}") from None
    texts, count, offsets = texts.cast(pa.large_string()), len(texts), np.zeros(1, np.int64)
    _, ends, data = texts.buffers()
    if count:
        offsets = np.frombuffer(ends, np.int64, count + 1, 8 * texts.offset)
    valid = texts.is_valid()
    meta_ends, value_ends = np.empty((2, count + 1), np.int64)
    found = kernels.variant_from_json(_bytes(data), offsets, _bits(valid), meta_ends, value_ends)
    if len(found) == 3:
        row, place, what = found
        shown = shortened(texts[row].as_py(), LINE_LENGTH)
        raise InvalidArgumentError(f"row {row}, byte {place}: {what}: expected JSON, found {shown}")
    return _made([_binary(found[0], meta_ends), _binary(found[1], value_ends)], valid)


def _is_text(type: pa.DataType) -> bool:
    return bool(pat.is_string(type) or pat.is_large_string(type) or pat.is_string_view(type))


def _bytes(buffer: pa.Buffer | None) -> np.ndarray:
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def _bits(flags: pa.BooleanArray) -> np.ndarray:
    return np.packbits(flags.to_numpy(zero_copy_only=False), bitorder="little")


def _binary(data: np.ndarray, ends: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def _made(parts: list[pa.Array], valid: pa.BooleanArray) -> pa.Array:
    """An array of `VariantType` of metadata and values, both large binary."""
    fields = list(STORAGE)
    if max(each.nbytes for each in parts) < 2**31:
        parts = [each.cast(pa.binary()) for each in parts]
    else:
        fields = [field.with_type(pa.large_binary()) for field in fields]
    mask = None if valid.true_count == len(valid) else pc.invert(valid)
    storage = pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    return pa.ExtensionArray.from_storage(VariantType(storage.type), storage)


def _checked(array: Any) -> Values:
    """The values of an array of Variant.

    Raises TypeError: It is none.
    """
    if not isinstance(array, pa.Array) or not isinstance(array.type, VariantType):
        found = getattr(array, "type", type(array).__name__)
        raise TypeError(f"array: expected an array of VariantType, found {found}")
    if array.type.storage_type.num_fields > 2:
        raise InvalidArgumentError(
            f"array of {array.type.storage_type}: shredded as in Parquet, which from_parquet reads"
        )
    values = values_of(array)
    bare = np.diff(values.value_ends) == 0
    bare &= array.is_valid().to_numpy(zero_copy_only=False)
    if bare.any():
        raise InvalidArgumentError(f"row {int(np.argmax(bare))}: a Variant value without bytes")
    return values


def to_json(array: pa.Array | pa.ChunkedArray) -> Any:
    """JSON texts of Variant values, without spaces, names in their order.

    Dates, times, binary (as base64) and UUIDs are strings; so are NaN and infinities.

    Parameters
    ----------
    array
        Of `VariantType`; nulls stay null.

    Returns
    -------
    pyarrow.LargeStringArray or pyarrow.ChunkedArray
        Of the same length; a copy.

    Raises
    ------
    InvalidArgumentError
        Names a row whose bytes are no Variant value.
    TypeError
        It is no array of `VariantType`.
    """
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([to_json(chunk) for chunk in array.chunks], pa.large_string())
    values, ends = _checked(array), np.empty(len(array) + 1, np.int64)
    try:
        data = kernels.variant_to_json(*values, _json_of, ends)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    buffers = [pa.py_buffer(each) for each in (_bits(array.is_valid()), ends, data)]
    texts = pa.Array.from_buffers(pa.large_string(), len(array), buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"text of a Variant value: {error}") from None
    return texts


def _json_of(kind: int, body: bytes) -> bytes:
    """The JSON of a value of a type that JSON has no form for, or that has several."""
    value = _scalar(kind, body)
    if isinstance(value, float) and not np.isfinite(value):
        value = {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    if isinstance(value, (float, decimal.Decimal)):
        return f"{value:f}".encode() if isinstance(value, decimal.Decimal) else repr(value).encode()
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    return f'"{value}"'.encode()


def _scalar(kind: int, body: bytes) -> Any:
    """The value of a primitive type: see the specification's table of primitive types."""
    if kind in (8, 9, 10):
        number = int.from_bytes(body[1:], "little", signed=True)
        if body[0] > 38:
            raise ValueError("scale")
        return decimal.Decimal(number).scaleb(-body[0], decimal.Context(prec=40))
    if kind == 7:
        return float(np.frombuffer(body, "<f8")[0])
    if kind == 14:
        return float(str(np.frombuffer(body, "<f4")[0]))
    if kind == 15:
        return body[4:]
    if kind == 20:
        return uuid.UUID(bytes=body)
    number = int.from_bytes(body, "little", signed=True)
    if number == -(2**63):
        raise ValueError("NaT")
    if kind == 11:
        return str(np.datetime64(number, "D"))
    if kind == 17:
        return (_EPOCH + datetime.timedelta(microseconds=number)).time().isoformat()
    unit: Any = "us" if kind in (12, 13) else "ns"
    zone = "+00:00" if kind in (12, 18) else ""
    return str(np.datetime64(number, unit)).replace("T", " ") + zone


_STEP = re.compile(
    r"""\.([^.\[\]'"]+)|\[(\d{1,9})\]|\['((?:[^']|'')*)'\]|\["([^"]*)"\]""", re.DOTALL
)


def parse_path(path: Path, where: str = "path") -> tuple[str | int, ...]:
    """The names and places of a path: ``$.user.tags[0]``, or a sequence of them.

    Raises
    ------
    InvalidArgumentError
        A text that is no path, or a place below 0.
    TypeError
        A step that is neither text nor a whole number.
    """
    if isinstance(path, str):
        steps: list[str | int] = []
        at = 1
        while at < len(path) and (match := _STEP.match(path, at)) is not None:
            name, place, quoted, other = match.groups()
            if place is not None:
                steps.append(int(place))
            else:
                steps.append(name or (quoted.replace("''", "'") if quoted is not None else other))
            at = match.end()
        if path[:1] != "$" or at < len(path):
            raise InvalidArgumentError(f"{where}={path!r}: expected a path such as $.user.tags[0]")
        return tuple(steps)
    checked: list[str | int] = []
    for step in path:
        if isinstance(step, str):
            checked.append(step)
        else:
            checked.append(integer(step, f"{where}: a step", minimum=0))
    return tuple(checked)


def get(
    array: pa.Array | pa.ChunkedArray,
    path: Path,
    type: pa.DataType | None = None,
    *,
    strict: bool = True,
) -> Any:
    """The value at a path of each row, as a column of a type.

    Parameters
    ----------
    array
        Of `VariantType`.
    path
        ``"$.user.tags[0]"``, ``"$['a name'].id"``, or a sequence of names and places:
        ``["user", "tags", 0]``. ``"$"`` and an empty sequence mean the value itself.
    type
        Of the result. Numbers, texts, dates and times become what Arrow casts them to without loss;
        of text numbers and times are parsed, and everything becomes text, objects and arrays as
        JSON. Integers are cast as those of 64 bits, however they are stored, and to no times. None:
        values stay Variant.
    strict
        Whether a value that can't be of the type is an error; otherwise it becomes null.

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        Of the same length; null where there is no value at the path, or a null.

    Raises
    ------
    InvalidArgumentError
        A path that is none, bytes that are no Variant value, or a value that can't be of the type.
    TypeError
        It is no array of `VariantType`.
    """
    if type is not None and not isinstance(type, pa.DataType):
        raise TypeError(f"type: expected a pyarrow.DataType, found {type!r}")
    steps, strict = parse_path(path), flag(strict, "strict")
    if isinstance(array, pa.ChunkedArray):
        chunks = [get(chunk, steps, type, strict=strict) for chunk in array.chunks]
        return pa.chunked_array(chunks, VariantType() if type is None else type)
    values, count = _checked(array), len(array)
    heads, (starts, sizes) = np.empty(count, np.uint8), np.empty((2, count), np.int64)
    try:
        encoded = [step.encode() if isinstance(step, str) else step for step in steps]
        kernels.variant_find(*values, encoded, heads, starts, sizes)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    if type is None or isinstance(type, VariantType):
        return _parts(values, heads, starts, sizes)
    if pat.is_string_view(type) or pat.is_binary_view(type):
        plain = pa.large_string() if pat.is_string_view(type) else pa.large_binary()
        return get(array, steps, plain, strict=strict).cast(type)
    kinds = np.where(heads & 3 == 0, heads >> 2, np.where(heads & 3 == 1, _TEXT, _NESTED))
    kinds[heads == _ABSENT] = 0
    kinds[(kinds >= 3) & (kinds < _INTEGER)] = _INTEGER  # numbers are equal whatever their width
    columns, places, total = [pa.nulls(1, type)], np.zeros(count, np.int64), 1
    for kind in np.unique(kinds[kinds > 0]).tolist():
        rows = np.flatnonzero(kinds == kind)
        if kind < _NESTED and not (_is_text(type) and kind in _LIKE_JSON):
            try:
                part = _decoded(kind, values.values, heads[rows], starts[rows], sizes[rows])
            except (pa.ArrowException, ValueError) as error:
                raise InvalidArgumentError(f"bytes that are no Variant value: {error}") from None
        elif _is_text(type) or strict:
            part = to_json(_parts(values, heads, starts, sizes).take(pa.array(rows)))
        else:
            continue
        if kind == _NESTED and not _is_text(type):
            _refuse(part, rows, steps, type)
        columns.append(_cast(part, type, rows, steps, strict=strict))
        places[rows] = total + np.arange(len(rows))
        total += len(rows)
    return pa.concat_arrays(columns).take(pa.array(places))


def _parts(values: Values, heads: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Parts of values as Variant: with the metadata of the whole."""
    there = heads != _ABSENT
    lengths = np.where(there, np.diff(values.meta_ends), 0)
    metas = _gathered(values.metas, values.meta_ends[:-1], lengths)
    return _made([metas, _gathered(values.values, starts, sizes)], pa.array(there))


def _gathered(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Ranges of bytes as values of large binary; a copy."""
    ends = np.concatenate(([0], np.cumsum(sizes)))
    out = np.empty(int(ends[-1]), np.uint8)
    kernels.gather_ranges(data, starts, starts + sizes, out)
    return _binary(out, ends)


def _decoded(
    kind: int, data: np.ndarray, heads: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> pa.Array:
    """Primitive values of one type, as Arrow has them."""
    skipped = np.where((heads == _TEXT << 2) | (heads == _BINARY << 2), 5, 1)
    starts, sizes = starts + skipped, sizes - skipped
    if kind in (_TEXT, _BINARY):
        found = _gathered(data, starts, sizes)
        return found if kind == _BINARY else found.cast(pa.large_string())
    if kind in (1, 2):
        return pa.array(np.full(len(starts), kind == 1))
    if kind == _INTEGER:
        numbers = np.empty(len(starts), np.int64)
        for size in np.unique(sizes).tolist():
            own = sizes == size
            numbers[own] = data[starts[own][:, None] + np.arange(size)].view(f"<i{size}")[:, 0]
        return pa.array(numbers)
    bodies = data[starts[:, None] + np.arange(int(sizes[0]))]
    if kind == 20:
        listed = [str(_scalar(kind, body.tobytes())) for body in bodies]
        return pa.array(listed, pa.large_string())
    if kind in (8, 9, 10):
        found = [_scalar(kind, body.tobytes()) for body in bodies]
        scale = max(-int(each.as_tuple().exponent) for each in found)
        return pa.array(found, pa.decimal256(76, max(scale, 0)))
    dtype, arrow = _PLAIN[kind]
    buffers = [None, pa.py_buffer(bodies.reshape(-1).view(dtype))]
    return pa.Array.from_buffers(arrow, len(starts), buffers)


_PLAIN: dict[int, tuple[str, pa.DataType]] = {
    7: ("<f8", pa.float64()),
    11: ("<i4", pa.date32()),
    12: ("<i8", pa.timestamp("us", "UTC")),
    13: ("<i8", pa.timestamp("us")),
    14: ("<f4", pa.float32()),
    17: ("<i8", pa.time64("us")),
    18: ("<i8", pa.timestamp("ns", "UTC")),
    19: ("<i8", pa.timestamp("ns")),
}


_WHOLE = pa.decimal256(76, 0)


def _cast(
    part: pa.Array, type: pa.DataType, rows: np.ndarray, steps: Sequence[str | int], *, strict: bool
) -> pa.Array:
    """Values of one type as another, without loss; halves of what can't be, to find the row."""
    is_integer = pat.is_integer(part.type)
    try:
        if is_integer and pat.is_temporal(type) and part.null_count < len(part):
            raise pa.ArrowInvalid("a number, which has no unit of time")
        exact = part
        if is_integer and pat.is_decimal(type):  # Arrow looks at the digits of types otherwise
            exact = part.cast(_WHOLE)
        if pat.is_decimal(type) and type.bit_width < 128:  # Arrow cuts off what does not fit
            exact = exact.cast(pa.decimal128(type.precision, type.scale))
        found = exact.cast(type)
        if pat.is_floating(type) and pc.any(_is_changed(exact, found)).as_py():
            raise pa.ArrowInvalid("a number that the type has as another one, or as infinity")
        return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(part) == 1:
            return pa.nulls(1, type) if not strict else _refuse(part, rows, steps, type)
        able = None if strict else _castable(part, type)
        if able is not None and able.false_count:
            return _cast(pc.if_else(able, part, None), type, rows, steps, strict=strict)
    middle = len(part) // 2
    first = _cast(part[:middle], type, rows[:middle], steps, strict=strict)
    return pa.concat_arrays(
        [first, _cast(part[middle:], type, rows[middle:], steps, strict=strict)]
    )


def _is_changed(numbers: pa.Array, floats: pa.Array) -> pa.BooleanArray:
    """Which finite numbers are infinite as floats, and which integers narrower floats round."""
    plain, wide = numbers.cast(pa.float64(), safe=False), floats.cast(pa.float64())
    if pat.is_integer(numbers.type):
        return pc.not_equal(plain, wide)
    return pc.and_(pc.is_finite(plain), pc.is_inf(wide))


def is_cast_alike(stored: pa.DataType, type: pa.DataType) -> bool:
    """Whether `cast_column` of a column of a path gives what `get` gives of whole values."""
    if isinstance(type, VariantType) or pat.is_string_view(type) or pat.is_binary_view(type):
        return False
    # JSON writes doubles in another way than Arrow.
    return not (pat.is_floating(stored) and _is_text(type))


def cast_column(column: pa.Array, path: Path, type: pa.DataType, *, strict: bool) -> pa.Array:
    """The values of a path, all of one type, as `get` casts them: see `is_cast_alike`."""
    rows = np.flatnonzero(column.is_valid())
    if not len(rows):
        return pa.nulls(len(column), type)
    part = _cast(column.drop_null(), type, rows, parse_path(path), strict=strict)
    places = np.zeros(len(column), np.int64)
    places[rows] = np.arange(1, len(rows) + 1)
    return pa.concat_arrays([pa.nulls(1, type), part]).take(pa.array(places))


def _castable(part: pa.Array, type: pa.DataType) -> pa.BooleanArray | None:
    """Which values of some, or nulls, are not ruled out at a glance; None: that is not known."""
    if _is_text(part.type) and (pat.is_integer(type) or pat.is_floating(type)):
        number = r"^\s*[+-]?\d+\s*$" if pat.is_integer(type) else r"(?i)^\s*[+-]?(\d|\.\d|nan|inf)"
        return pc.fill_null(pc.match_substring_regex(part, number), True)
    if pat.is_integer(part.type) and pat.is_temporal(type):
        return part.is_null()
    if pat.is_floating(type) and (pat.is_integer(part.type) or pat.is_floating(part.type)):
        return pc.invert(_is_changed(part, part.cast(type, safe=False))).fill_null(True)
    if pat.is_floating(part.type) and pat.is_integer(type):
        return pc.fill_null(pc.equal(pc.floor(part), part), True)
    return None


def _refuse(
    part: pa.Array, rows: np.ndarray, steps: Sequence[str | int], type: pa.DataType
) -> NoReturn:
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    try:
        text = str(part[0])
    except OverflowError:  # a date or time that Python has none of
        text = str(part[0].value)
    shown = shortened(text, LINE_LENGTH)
    raise InvalidArgumentError(
        f"row {rows[0]}: {path}: expected a value of type {type}, found {shown}"
    )
