"""Filters ⇄ ``pyarrow.compute.Expression``.

Pyarrow shows no tree, but it pickles one: an Arrow IPC file whose schema metadata lists the calls
in order and whose columns are the literals and options, with their exact types. That is read here.
What cannot be understood stays a `Opaque` node, which pyarrow itself evaluates.

Pyarrow's public form, Substrait, does not carry enough (pyarrow 26): it needs the schema, which a
filter does not know before it is bound; columns become positions; ``isin`` becomes equalities and
loses what NULL means to it; casts, comparisons of dictionaries, ``is_null(nan_is_null=True)`` and
timestamps in nanoseconds raise an error.

``isin`` becomes our IN, which compares as ``==`` does: there a NaN matches nothing and the zeros
match each other, while pyarrow itself finds NaN among NaN and tells the zeros apart. So it is with
every filter that is translated; within an `Opaque` node pyarrow's own rule holds.
"""

from __future__ import annotations

import ctypes
import operator as operators
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.columns.types import strip_wrappers
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate.expression import (
    MIRRORED,
    NEGATED,
    And,
    BooleanColumn,
    Column,
    Comparison,
    Computed,
    Constant,
    Expression,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Opaque,
    Or,
    Path,
    StartsWith,
    as_predicate,
    conjunction,
    disjunction,
    literal_set,
)
from fermion.predicate.literals import normalize, raw_scalar, resolve

Token = tuple[str, str]

DIGITS_MAX = 76
"""Of Arrow's widest decimals."""

_COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_OPERATORS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "==": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
# arrow::compute::SetLookupOptions::NullMatchingBehavior
_MATCH, _SKIP, _EMIT_NULL, _INCONCLUSIVE = range(4)


class _Unknown(Exception):
    """A call, or a use of one, that has no node of ours."""


@dataclass(frozen=True, slots=True)
class _Literal:
    scalar: pa.Scalar


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, spelled by tokens ``start`` to ``stop`` (exclusive) of the pickled form."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Pickled:
    """A pyarrow expression in its pickled form."""

    tokens: tuple[Token, ...]
    batch: pa.RecordBatch
    rebuild: Callable[[pa.Buffer], Any]

    @classmethod
    def of(cls, expression: pc.Expression) -> _Pickled | None:
        """None for what pyarrow cannot pickle: columns by position, user-defined options."""
        try:
            rebuild, (buffer,) = expression.__reduce__()
            batch = pa.ipc.open_file(buffer).get_batch(0)
        except (pa.ArrowException, NotImplementedError, ValueError, TypeError):
            return None
        return cls(tuple(_ordered_metadata(batch.schema)), batch, rebuild)

    def expression(self, tokens: tuple[Token, ...]) -> pc.Expression:
        """The expression that some of the tokens spell."""
        batch = self.batch.replace_schema_metadata(pa.KeyValueMetadata(list(tokens)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return self.rebuild(sink.getvalue())


def _ordered_metadata(schema: pa.Schema) -> list[Token]:
    """Key-value metadata in order, with repeated keys; pyarrow's own accessor gives a dict."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    # struct ArrowSchema of the Arrow C data interface: format, name, metadata, ...
    fields = ctypes.cast(pointer_of(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    address = fields[2]
    if not address:
        return []

    def take_int() -> int:
        nonlocal address
        value = ctypes.c_int32.from_address(address).value
        address += 4
        return value

    def take_text() -> str:
        nonlocal address
        length = take_int()
        text = ctypes.string_at(address, length).decode()
        address += length
        return text

    return [(take_text(), take_text()) for _ in range(take_int())]


def from_pyarrow(expression: pc.Expression) -> Expression:
    """The same filter as a tree of ours, as far as it can be understood.

    ``isin`` keeps pyarrow's meaning for NULL, which differs from SQL's IN: it is FALSE, not NULL.
    Values compare as ``==`` does (see above).
    """
    pickled = _Pickled.of(expression)
    if pickled is None:
        return Opaque(expression, positional=True)
    try:
        tree, _ = _parse(pickled, 0)
        return _translate(tree, pickled)
    except RecursionError:
        return Opaque(expression, _paths(pickled.tokens))


def pyarrow_columns(expression: pc.Expression) -> tuple[Path, ...] | None:
    """The columns that any pyarrow expression names; None where it names them by position."""
    pickled = _Pickled.of(expression)
    return None if pickled is None else _paths(pickled.tokens)


def _parse(pickled: _Pickled, at: int) -> tuple[Any, int]:
    """The node (a column, literal or call) that starts at a token, and where the next one does."""
    tokens = pickled.tokens
    (kind, value), start = tokens[at], at
    at += 1
    if kind == "field_ref":
        return Column((value,)), at
    if kind == "nested_field_ref":
        stop = at + int(value)
        return Column(tuple(name for _, name in tokens[at:stop])), stop
    if kind == "literal":
        return _Literal(pickled.batch.column(int(value))[0]), at
    if kind != "call":
        raise InvalidArgumentError(f"pyarrow expression holds an unknown part {kind!r}")
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    while tokens[at][0] != "end":
        if tokens[at][0] == "options":
            scalar = pickled.batch.column(int(tokens[at][1]))[0]
            options = {name: scalar[name] for name in scalar}
            at += 1
        else:
            argument, at = _parse(pickled, at)
            arguments.append(argument)
    return _Call(value, tuple(arguments), options, start, at + 1), at + 1


def _paths(tokens: tuple[Token, ...]) -> tuple[Path, ...]:
    """The columns that tokens refer to."""
    found: dict[Path, None] = {}
    at = 0
    while at < len(tokens):
        kind, value = tokens[at]
        count = int(value) if kind == "nested_field_ref" else 0
        if count:
            found[tuple(name for _, name in tokens[at + 1 : at + 1 + count])] = None
        elif kind == "field_ref":
            found[(value,)] = None
        at += 1 + count
    return tuple(found)


def _translate(node: Any, pickled: _Pickled) -> Expression:
    if isinstance(node, Column):
        return as_predicate(node)
    if isinstance(node, _Literal):
        value = node.scalar.as_py()
        if value is None or isinstance(value, bool):
            return Constant(value)
        raise InvalidArgumentError(f"the filter is the literal {value!r}; expected a condition")
    match node.name:
        case "and_kleene":
            return conjunction(_translate(part, pickled) for part in node.arguments)
        case "or_kleene":
            return disjunction(_translate(part, pickled) for part in node.arguments)
        case "invert":
            return Not(_translate(node.arguments[0], pickled))
    try:
        return _leaf(node)
    except _Unknown:
        tokens = pickled.tokens[node.start : node.stop]
        return Opaque(pickled.expression(tokens), _paths(tokens))


def _leaf(call: _Call) -> Expression:
    if call.name in _COMPARISONS:
        return _comparison(call)
    if not call.arguments or not isinstance(call.arguments[0], Column):
        raise _Unknown
    column = call.arguments[0]
    match call.name:
        case "is_valid":
            return column.is_valid()
        case "is_nan":
            return column.is_nan()
        case "is_null":
            nan_is_null = call.options.get("nan_is_null")  # pc.is_null(column) has no options
            if nan_is_null is not None and nan_is_null.as_py():
                # is_nan() fails on types without NaN, where pyarrow's is_null() does not.
                raise _Unknown
            return column.is_null()
        case "starts_with" if not call.options["ignore_case"].as_py():
            return column.starts_with(_text(call.options["pattern"]))
        case "is_in":
            return _is_in(column, call.options)
    raise _Unknown


def _text(scalar: pa.StringScalar) -> str | bytes:
    """An option's text, which for binary columns need not be UTF-8."""
    text = scalar.as_buffer().to_pybytes()
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def _comparison(call: _Call) -> Expression:
    left, right = call.arguments
    operator = _COMPARISONS[call.name]
    if isinstance(left, _Literal) and isinstance(right, Column):
        left, right, operator = right, left, MIRRORED[operator]
    if not (isinstance(left, Column) and isinstance(right, _Literal)):
        raise _Unknown
    return Comparison(left.path, operator, normalize(right.scalar))


def _is_in(column: Column, options: dict[str, Any]) -> Expression:
    behavior = options["null_matching_behavior"].as_py()
    given = literal_set(list(options["value_set"].values))
    values = tuple(value for value in given if value is not None)
    matches = IsIn(column.path, values)
    if behavior == _INCONCLUSIVE:
        return IsIn(column.path, given)
    if behavior == _EMIT_NULL:
        return matches
    if behavior == _MATCH and len(values) < len(given):
        return IsNull(column.path) | matches
    if behavior in (_MATCH, _SKIP):
        return column.is_valid() & matches
    raise _Unknown


def rename(node: Opaque, renamed: Callable[[Path], Path]) -> Opaque:
    """An opaque filter over other names.

    Raises InvalidArgumentError: If it names columns by position.
    """
    paths = tuple(map(renamed, node.paths))
    if paths == node.paths and not node.positional:
        return node
    pickled = None if node.positional else _Pickled.of(node.expression)
    if pickled is None:
        raise InvalidArgumentError(
            f"the filter {node.expression} names columns by position, which cannot follow renamed "
            "columns; name them instead: pc.field('a')"
        )
    tokens: list[Token] = []
    at = 0
    while at < len(pickled.tokens):
        kind, value = pickled.tokens[at]
        count = int(value) if kind == "nested_field_ref" else 0
        at += 1 + count
        if kind not in ("field_ref", "nested_field_ref"):
            tokens.append((kind, value))
            continue
        names = [name for _, name in pickled.tokens[at - count : at]] or [value]
        target = renamed(tuple(names))
        if len(target) > 1:
            tokens.append(("nested_field_ref", str(len(target))))
        tokens.extend(("field_ref", name) for name in target)
    return Opaque(pickled.expression(tuple(tokens)), paths)


def to_pyarrow(expression: Expression, schema: pa.Schema | None = None) -> pc.Expression:
    """The filter as a pyarrow expression, for engines that take one.

    Parameters
    ----------
    schema
        The schema the filter is bound to. With it, literals get the columns' types, which spares
        pyarrow casts that fail (a negative literal and ``uint64``, say).
    """
    node = as_predicate(expression)
    match node:
        case Computed():
            raise InvalidArgumentError(f"the filter {node.to_sql()} has no pyarrow form")
        case And(operands=operands):
            return reduce(operators.and_, [to_pyarrow(part, schema) for part in operands])
        case Or(operands=operands):
            return reduce(operators.or_, [to_pyarrow(part, schema) for part in operands])
        case Not(operand=operand):
            return ~to_pyarrow(operand, schema)
        case Constant(value=value):
            return pc.scalar(pa.scalar(value, pa.bool_()))
        case Opaque(expression=inner):
            return inner
    return _leaf_to_pyarrow(node, schema)


def _leaf_to_pyarrow(node: Expression, schema: pa.Schema | None) -> pc.Expression:
    path: Path = node.path  # type: ignore[attr-defined]
    field = pc.field(*path)
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    match node:
        case BooleanColumn():
            return field
        case IsNull():
            return field.is_null()
        case IsNan():
            return field.is_nan()
        case StartsWith(prefix=prefix):
            storage = _type_at(path, schema) if schema is not None else None
            if storage is not None and not pat.is_string(storage):
                # Pyarrow has no kernel for dictionaries, views and fixed-width binary.
                field = field.cast(pa.large_binary())
            return pc.starts_with(field, pattern=prefix)
        case IsIn(values=values):
            matches = field.isin(_value_array(values, path, schema))
            if None in values:
                return pc.if_else(matches, pc.scalar(True), null)
            return pc.if_else(field.is_valid(), matches, null)
        case Comparison(operator=operator, value=value):
            if schema is None:
                return _OPERATORS[operator](field, pc.scalar(value))
            storage = _type_at(path, schema)
            placed = resolve(operator, value, storage)
            if placed.operator in NEGATED:
                if pat.is_fixed_size_binary(storage):
                    # A literal of another length is no value of the type, but has its place.
                    field, storage = field.cast(pa.binary()), pa.binary()
                raw, digits = placed.raw, 0
                if pat.is_decimal(storage):
                    digits = max(0, -storage.scale)
                if 0 < digits <= DIGITS_MAX - storage.precision:
                    # Arrow compares no decimals of a negative scale.
                    storage = pa.decimal256(storage.precision + digits, 0)
                    field, raw = field.cast(storage), raw * 10**digits
                return _OPERATORS[placed.operator](field, pc.scalar(raw_scalar(raw, storage)))
            if placed.operator == "null":
                return null
            return pc.if_else(field.is_valid(), pc.scalar(placed.operator == "always"), null)
    raise InvalidArgumentError(f"{node!r} has no pyarrow form")


def _type_at(path: Path, schema: pa.Schema) -> pa.DataType:
    container: Any = schema
    for name in path:
        container = strip_wrappers(container.field(name).type)
    return container


def _value_array(values: Sequence[Any], path: Path, schema: pa.Schema | None) -> pa.Array:
    """What isin() of pyarrow, where NaN matches NaN and the zeros differ, takes for our IN."""
    if schema is None:
        # Values that are not equal to themselves are NaN.
        known = [value for value in values if value is not None and value == value]
        return pa.array([each for value in known for each in _both_zeros(value)])
    storage = _type_at(path, schema)
    raws: list[Any] = []
    for value in values:
        operator, raw = resolve("==", value, storage)
        if operator == "==":
            if pat.is_fixed_size_binary(storage) and len(raw) != storage.byte_width:
                continue
            raws += _both_zeros(raw)
    return pa.array([raw_scalar(raw, storage) for raw in raws], storage)


def _both_zeros(value: Any) -> list[Any]:
    return [0.0, -0.0] if isinstance(value, float) and value == 0 else [value]
