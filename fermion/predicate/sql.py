"""Filters from SQL text: the condition that would follow WHERE."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate.expression import (
    MIRRORED,
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
    Path,
    StartsWith,
    VariantValue,
    conjunction,
    disjunction,
    quotes_advice,
)
from fermion.predicate.literals import (
    TimestampText,
    is_far_date,
    literal_family,
    normalize,
    parse_moment,
    parse_time,
    rational,
)

if TYPE_CHECKING:
    from sqlglot import exp

_SUPPORTED = (
    "supported are comparisons of a column with a literal (= <> < <= > >=), AND, OR, NOT, "
    "[NOT] IN (...), [NOT] BETWEEN, IS [NOT] NULL, IS [NOT] TRUE or FALSE, LIKE 'prefix%', "
    "STARTS_WITH, ISNAN, boolean columns, and the literals 1, -1.5, 'text', X'00ff', TRUE, FALSE, "
    "NULL, DATE '...', TIMESTAMP '...', TIME '...', INTERVAL '1' SECOND; and, with DuckDB "
    "installed (the extra duckdb), every condition of one row"
)
_COMPARISONS = {"EQ": "==", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_READ = {"this", "expression", "expressions", "low", "high", "table", "db", "catalog"}
"""What a node of sqlglot may have. Others change what it means, as SYMMETRIC does in BETWEEN."""
_SECONDS = {"DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}


def from_sql(text: str) -> Expression:
    """A SQL condition as a filter.

    Names are case-sensitive; quote those that are not plain words with ``"`` or backticks. Dots
    lead into structs. What is no comparison of a column with a literal is SQL of DuckDB, which
    computes it from the columns.

    Raises
    ------
    InvalidArgumentError
        For text that does not parse, and for what DuckDB can't compute from one row, by name.
    """
    try:
        return _plain(text)
    except _BeyondThisError as error:
        return _of_engine(text, str(error), _plain_or_none, _by_key)


def _of_engine(
    text: str,
    beyond: str,
    translate: Callable[[str], Expression | None],
    by_key: Callable[[str], Expression | None],
) -> Expression:
    """The filter that DuckDB computes; `beyond` is the message where there is no DuckDB."""
    from fermion.sql.engine import NotSqlError, has_duckdb

    if not has_duckdb():
        raise InvalidArgumentError(beyond)
    # DuckDB takes 0.1 s to import: too much for filters that it has nothing to do with.
    from fermion.predicate.sql_conditions import sql_condition

    try:
        return sql_condition(*_respelled(text), translate, by_key)
    except NotSqlError:
        raise InvalidArgumentError(beyond) from None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class NumberedTest(Computed):
    """A test of ``name[7]``: of the value of a key, or what DuckDB says where the column is no map.

    by_key: See `Computed`.
    """

    by_key: Expression

    def bound(self, schema: pa.Schema, dtypes: Sequence[pa.DataType]) -> Expression:
        """The filter that DuckDB computes."""
        return replace(_of_numbered(self.text), paths=self.paths).bound(schema, dtypes)


def _of_numbered(text: str) -> Computed:
    beyond = f"filter {text!r}: a number in brackets is not supported but for keys; {_SUPPORTED}"
    found = _of_engine(text, beyond, lambda part: None, lambda part: None)
    assert isinstance(found, Computed)
    return found


def _computed(text: str, *columns: pa.Array) -> pa.BooleanArray:
    return _of_numbered(text).function(*columns)


def _plain(text: str) -> Expression:
    """A condition that needs no engine."""
    quick = _quick(text)
    if quick is not None:
        return quick
    # sqlglot takes 0.2 s to import: too much for those who filter in other forms.
    import sqlglot
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_dialect())
        return _translate(tree, text)
    except errors.SqlglotError as error:
        reason = str(error).split("\n")[0]
        raise _BeyondThisError(
            f"filter {text!r} is not a SQL condition: {reason}; {_SUPPORTED}"
        ) from error
    except RecursionError:
        raise InvalidArgumentError(
            "the SQL filter is nested too deep; use IN (...) for long lists of values"
        ) from None


_VALUE = r"(?:-?[0-9]{1,18}(?:\.[0-9]{1,18})?|(?:DATE\s+)?'[^'\\]*')"
_COLUMN = r"\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\[(?P<key>-?[0-9]{1,18})\])?\s*"
_COMPARISON = re.compile(
    rf"{_COLUMN}(?P<operator>=|<>|!=|<=|>=|<|>)\s*(?P<value>{_VALUE})", re.ASCII | re.IGNORECASE
)
_TEST = (
    rf"{_COLUMN}(?:\bIS\s+(?P<negated>NOT\s+)?NULL\b|\b(?P<inverted>NOT\s+)?"
    rf"(?:BETWEEN\s+(?P<low>{_VALUE})\s+AND\s+(?P<high>{_VALUE})"
    r"|LIKE\s*'(?P<prefix>[^'%_\\]*)(?P<open>%)?'"
    rf"|IN\s*\((?P<values>\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*)\)))"
)
"""Other tests; compiled where there is one, as that takes as long as reading a small file."""
_BEFORE = re.compile(r"\s*(?:(\()|NOT(?=[\s(]))", re.ASCII | re.IGNORECASE)
_AFTER = re.compile(r"\s+(AND|OR)(?=[\s(])", re.ASCII | re.IGNORECASE)
_CLOSED = re.compile(r"\s*\)", re.ASCII)
_WORDS = (
    "ALTER AND ANY AS BETWEEN CALL CASE CONNECT_BY_ROOT CREATE CROSS CURRENT_CATALOG CURRENT_DATE "
    "CURRENT_DATETIME CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DISTINCT DROP ELSE "
    "EXCEPT EXECUTE EXPLAIN FALSE FETCH FOR FROM GLOB GRANT HAVING IF ILIKE INNER INSERT INTERSECT "
    "INTERVAL INTO JOIN LATERAL LIKE LOCALTIME LOCALTIMESTAMP NOT NOTNULL NULL ON OPTIMIZE OR "
    "OUTER PARTITIONED_BY PREPARE QUALIFY REGEXP RENAME RETURNING REVOKE RLIKE ROLLBACK SELECT "
    "SESSION_USER SHOW STRAIGHT_JOIN TABLESAMPLE THEN TRUE UNCACHE UNION USING VACUUM WHEN WHERE "
    "WITH XOR"
)
_NO_COLUMNS = frozenset(_WORDS.split())
"""Words that are no columns unless they are quoted; a test asks sqlglot for them."""


def _quick(text: str) -> Expression | None:
    """Tests of columns against literals, AND, OR, NOT and parentheses; None: it is more than that.

    The most frequent filters, and sqlglot takes longer to import than a file to be read.
    """
    try:
        found, end = _quick_operands(text, 0)
    except (ValueError, RecursionError):
        return None
    return None if text[end:].strip() else found


def _quick_operands(text: str, position: int) -> tuple[Expression, int]:
    """What AND and OR join from a place on, and where it ends.

    Raises ValueError: It is more than `_quick` reads, or no date.
    """
    alternatives, tests = list[Expression](), list[Expression]()
    while True:
        test, position = _quick_operand(text, position)
        tests.append(test)
        joined = _AFTER.match(text, position)
        if joined is None or joined[1].upper() == "OR":
            alternatives.append(conjunction(tests))
            tests = []
        if joined is None:
            return disjunction(alternatives), position
        position = joined.end()


def _quick_operand(text: str, position: int) -> tuple[Expression, int]:
    before = _BEFORE.match(text, position)
    if before is None:
        found = _COMPARISON.match(text, position)
        if found is None:
            found = re.compile(_TEST, re.ASCII | re.IGNORECASE).match(text, position)
        if found is None or found["name"].upper() in _NO_COLUMNS:
            raise ValueError
        test: dict[str, Any] = {"operator": None, "inverted": None, **found.groupdict()}
        if test["key"] is None:
            return _quick_test(test, (test["name"],)), found.end()
        if test["name"].upper() == "ARRAY":
            raise ValueError
        names, own = (test["name"], str(int(test["key"]))), found[0].strip()
        by_key, is_inverted = _quick_test(test, names), False
        if test["inverted"] is not None and isinstance(by_key, Not):  # outside, as in DuckDB's tree
            own, by_key, is_inverted = own.replace(test["inverted"], "", 1), by_key.operand, True
        numbered = NumberedTest(partial(_computed, own), (names[:1],), own, by_key)
        return Not(numbered) if is_inverted else numbered, found.end()
    if before[1] is None:
        operand, position = _quick_operand(text, before.end())
        return Not(operand), position
    inside, position = _quick_operands(text, before.end())
    closed = _CLOSED.match(text, position)
    if closed is None:
        raise ValueError
    return inside, closed.end()


def _quick_test(test: dict[str, Any], path: Path) -> Expression:
    if test["operator"] is not None:
        operator = {"=": "==", "<>": "!="}.get(test["operator"], test["operator"])
        return Comparison(path, operator, _quick_value(test["value"]))
    if test["low"] is not None:
        low, high = _quick_value(test["low"]), _quick_value(test["high"])
        found = conjunction((Comparison(path, ">=", low), Comparison(path, "<=", high)))
    elif test["values"] is not None:
        values = re.findall(_VALUE, test["values"], re.ASCII | re.IGNORECASE)
        found = IsIn(path, tuple(map(_quick_value, values)))
    elif test["prefix"] is None:
        found = IsNull(path)
    elif test["open"]:
        found = StartsWith(path, test["prefix"])
    else:
        found = Comparison(path, "==", test["prefix"])
    return Not(found) if test["negated"] or test["inverted"] else found


def _quick_value(literal: str) -> Any:
    """Raises ValueError: It is no date."""
    start = literal.find("'")
    if start < 0:
        return normalize(Decimal(literal) if "." in literal else int(literal))
    value = literal[start + 1 : -1]
    return normalize(datetime.date.fromisoformat(value) if start else value)


def _plain_or_none(text: str) -> Expression | None:
    try:
        return _plain(text)
    except _BeyondThisError:
        return None


def _by_key(text: str) -> Expression | None:
    """The filter that a condition is if the numbers in brackets are keys of maps, not places in
    lists; None if there are none, or it is beyond this."""
    import sqlglot
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_dialect())
        numbers = [each for each in tree.find_all(exp.Bracket) if len(each.expressions) == 1]
        keys = [_literal(each.expressions[0], text) for each in numbers]
        if not numbers or not all(type(key) is int for key in keys):
            return None
        for each, key in zip(numbers, keys, strict=True):
            each.set("expressions", [exp.Literal.string(str(key))])
        return _translate(tree, text)
    except (errors.SqlglotError, _BeyondThisError):
        return None


class _BeyondThisError(InvalidArgumentError):
    """A text is no condition, or one that needs an engine."""


def _respelled(text: str) -> tuple[str, frozenset[str]]:
    """A text with double quotes in place of backticks, and the names in double quotes."""
    from sqlglot import errors, tokens

    try:
        found = _dialect()().tokenize(text)
    except errors.SqlglotError:
        return text, frozenset()
    names = [token for token in found if token.token_type is tokens.TokenType.IDENTIFIER]
    parts, end = [], 0
    for token in names:
        if text[token.start] == "`":
            parts += [text[end : token.start], '"' + token.text.replace('"', '""') + '"']
            end = token.end + 1
    quoted = frozenset(token.text for token in names if text[token.start] == '"')
    return "".join([*parts, text[end:]]), quoted


@cache
def _dialect() -> Any:
    """The standard dialect with binary literals and backticks."""
    from sqlglot import Dialect, tokens

    class FermionFilter(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS = ['"', "`"]  # noqa: RUF012
            HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012

    return FermionFilter


def _unsupported(node: exp.Expr, text: str) -> NoReturn:
    from sqlglot import exp

    try:
        shown = f"{type(node).__name__} ({node.sql()})"
    except ValueError:  # sqlglot can't spell X'' or X'zz'
        shown = type(node).__name__
    right = node.args.get("expression")
    advice = ""
    if isinstance(right, exp.Column) and right.this.args.get("quoted"):
        advice = f" ({quotes_advice(right.name)})"
    raise _BeyondThisError(f"filter {text!r}: {shown} is not supported{advice}; {_SUPPORTED}")


def _translate(node: exp.Expr, text: str) -> Expression:
    from sqlglot import exp

    if node.args.get("negate"):  # NOT LIKE
        positive = node.copy()
        positive.set("negate", None)
        return Not(_translate(positive, text))
    if any(value and key not in _READ for key, value in node.args.items()):
        _unsupported(node, text)
    name = type(node).__name__
    if name in _COMPARISONS:
        return _comparison(node, _COMPARISONS[name], text)
    match node:
        case exp.And():
            return conjunction(_translate(part, text) for part in node.flatten())
        case exp.Or():
            return disjunction(_translate(part, text) for part in node.flatten())
        case exp.Not():
            return Not(_translate(node.this, text))
        case exp.Paren():
            return _translate(node.this, text)
        case exp.Boolean() | exp.Null():
            return Constant(None if isinstance(node, exp.Null) else bool(node.this))
        case exp.Column() | exp.Dot() | exp.Bracket():
            return Column(_path(node, text)).leaf(BooleanColumn)
        case exp.Anonymous():
            return _column(node, text).leaf(BooleanColumn)
        case exp.In():
            values = tuple(_literal(value, text) for value in node.expressions)
            return _column(node.this, text).leaf(IsIn, values)
        case exp.Between():
            column = _column(node.this, text)
            low, high = _literal(node.args["low"], text), _literal(node.args["high"], text)
            return conjunction(
                (column.leaf(Comparison, ">=", low), column.leaf(Comparison, "<=", high))
            )
        case exp.Is():
            return _is(node, text)
        case exp.Like() | exp.StartsWith():
            return _prefix(node, text)
        case exp.IsNan():
            return _column(node.this, text).leaf(IsNan)
    _unsupported(node, text)


def _comparison(node: exp.Expr, operator: str, text: str) -> Expression:
    left, right = node.this, node.expression
    if not _is_column(left):
        left, right, operator = right, left, MIRRORED[operator]
    if not _is_column(left) or _is_column(right):
        _unsupported(node, text)
    return _column(left, text).leaf(Comparison, operator, _literal(right, text))


def _is(node: exp.Expr, text: str) -> Expression:
    from sqlglot import exp

    column = _column(node.this, text)
    wanted = node.expression
    if isinstance(wanted, exp.Null):
        return column.is_null()
    if isinstance(wanted, exp.Boolean):
        match = column.leaf(BooleanColumn)
        return conjunction((column.is_valid(), match if wanted.this else Not(match)))
    _unsupported(node, text)


def _prefix(node: exp.Expr, text: str) -> Expression:
    from sqlglot import exp

    pattern = _literal(node.expression, text)
    if isinstance(node, exp.StartsWith) and isinstance(pattern, (str, bytes)):
        return _column(node.this, text).leaf(StartsWith, pattern)
    if not isinstance(pattern, str) or not isinstance(node, exp.Like):
        _unsupported(node, text)
    body = pattern.removesuffix("%")
    if any(special in body for special in "%_\\"):
        raise _BeyondThisError(
            f"filter {text!r}: LIKE {pattern!r} is not supported; only a prefix, as in "
            "LIKE 'abc%', is (write STARTS_WITH(column, 'a_c') for a prefix that holds % or _); "
            "any other pattern needs DuckDB (the extra duckdb)"
        )
    column = _column(node.this, text)
    return column.leaf(Comparison, "==", body) if body == pattern else column.leaf(StartsWith, body)


def _is_column(node: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, (exp.Column, exp.Dot, exp.Bracket)) or _is_variant_get(node)


def _is_variant_get(node: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Anonymous) and node.name.lower() in _VARIANT_GETS


_VARIANT_GETS = ("variant_get", "try_variant_get")


def _column(node: exp.Expr, text: str) -> Column:
    """A column, or the value at a path of a Variant column."""
    from sqlglot import exp

    while isinstance(node, exp.Paren):
        node = node.this
    if not _is_variant_get(node):
        return Column(_path(node, text))
    from fermion.predicate.variant_value import type_of_sql
    from fermion.variant import parse_path

    where = f"filter {text!r:.200}"
    arguments = node.expressions
    literals = [_literal(each, text) for each in arguments[1:] if isinstance(each, exp.Literal)]
    if (
        len(arguments) != 3
        or not all(isinstance(each, str) for each in literals)
        or len(literals) < 2
    ):
        raise InvalidArgumentError(
            f"{where}: expected {node.name}(column, '$.path', 'type'), found {node.sql():.80}"
        )
    (column,) = _path(arguments[0], text)[:1]
    steps, type = parse_path(literals[0], where), type_of_sql(literals[1], where)
    return VariantValue(column, steps, type, strict=node.name.lower() == _VARIANT_GETS[0])


def _path(node: exp.Expr, text: str) -> Path:
    from sqlglot import exp

    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        key = _literal(node.expressions[0], text)
        if not isinstance(key, str):  # of lists, too: DuckDB knows which
            _unsupported(node, text)
        names = [*_path(node.this, text), key]
    elif isinstance(node, exp.Dot):
        parts = list(node.flatten())
        names = [*_path(parts[0], text), *(part.name for part in parts[1:])]
    elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        names = [part.name for part in node.parts]
    else:
        _unsupported(node, text)
    return tuple(names)


def _literal(node: exp.Expr, text: str) -> Any:
    return normalize(_value(node, text))


def _value(node: exp.Expr, text: str) -> Any:
    from sqlglot import exp

    match node:
        case exp.Paren():
            return _value(node.this, text)
        case exp.Neg():
            value = _value(node.this, text)
            if isinstance(value, Decimal):
                return value.copy_negate()  # - rounds to the digits of the thread's context
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return -value
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return node.this if node.is_string else _number(node.this, text)
        case exp.HexString():
            return _binary(node, text)
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string:
            return _typed(node, text)
        case exp.Interval():
            unit = str(node.args.get("unit") or "").upper().removesuffix("S")
            if unit in _SECONDS and isinstance(node.this, exp.Literal):
                return _interval(node.this.this, _SECONDS[unit], text)
    _unsupported(node, text)


def _number(digits: str, text: str) -> Any:
    try:
        if "e" in digits.lower():
            return float(digits)
        return Decimal(digits) if "." in digits else int(digits)
    except (ValueError, ArithmeticError) as error:
        raise InvalidArgumentError(f"filter {text[:200]!r}: {error}") from None


def _binary(node: exp.Expr, text: str) -> bytes:
    try:
        return bytes.fromhex(node.this)
    except ValueError:
        return _unsupported(node, text)


def _interval(amount: str, seconds: int, text: str) -> Any:
    """A duration: Python's where it is fine enough, else Arrow's."""
    try:
        length = rational(Decimal(amount)) * seconds * 10**9
        if length.denominator != 1:
            raise ValueError("expected whole nanoseconds")
        if length % 1000:
            return pa.scalar(int(length), pa.duration("ns"))
        return datetime.timedelta(microseconds=int(length) // 1000)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise InvalidArgumentError(f"filter {text!r}: INTERVAL {amount!r}: {error}") from None


def _typed(node: exp.Expr, text: str) -> Any:
    """A typed literal: ``DATE '...'``, or ``CAST('...' AS DOUBLE)``."""
    kind, value = node.args["to"].this.name, node.this.this
    try:
        if kind == "DATE" and not is_far_date(value):
            return datetime.date.fromisoformat(value)
        if kind == "DATE" or kind.startswith("TIMESTAMP") or kind == "DATETIME":
            moment = parse_moment(value)
            return moment if literal_family(moment) == "instant" else TimestampText(value)
        if kind == "TIME":
            return parse_time(value)
        if kind in ("DOUBLE", "FLOAT"):
            return float(value)
        if kind == "DECIMAL":
            return Decimal(value)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise InvalidArgumentError(f"filter {text!r}: {kind} {value!r}: {error}") from None
    _unsupported(node, text)


def with_sizes(node: Expression, is_blob: Callable[[str], bool], where: str) -> Expression:
    """A leaf of a filter that takes sizes of references for lengths of blobs; else the leaf.

    where: What has the column, for the message.
    Raises InvalidArgumentError: It compares blobs, which no filter reads.
    """
    text = node.text_of_sizes(is_blob) if isinstance(node, Computed) else None
    if text is not None:
        return from_sql(text)
    if isinstance(node, (Comparison, IsIn, StartsWith, Computed)):
        for path in node.columns():
            if len(path) == 1 and is_blob(path[0]):
                raise InvalidArgumentError(
                    f"{where}: filter {node}: column {path[0]!r} holds blobs; expected IS NULL or "
                    f"octet_length({path[0]}), which read none of them"
                )
    return node
