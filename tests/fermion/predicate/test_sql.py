"""SQL text as a filter: the quick way for plain comparisons means what sqlglot reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion.predicate import sql
from fermion.predicate.expression import Expression

NAMES = st.sampled_from(
    ["x", "_a1", "date", "key", "at", "order", "X", "interval", "end", "ü", "a.b"]
)
OPERATORS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">=", "==", "LIKE", "IS"])
LITERALS = st.one_of(
    st.integers(-(10**19), 10**19).map(str),
    st.text(max_size=6).map(lambda text: f"'{text}'"),
    st.sampled_from(
        ["007", "-0", "- 5", "1.5", "-00.50", "1.", "1e3", "NULL", "''", "'a' 'b'", "y", "'--'"],
    ),
    st.sampled_from(
        ["'{{'", "DATE '2024-02-29'", "date '2023-02-29'", "DATE'2024-01-01'", "DATE 'x'"]
    ),
)
BETWEEN = st.sampled_from([" AND ", " and ", "AND", " OR ", ", "])
SPACES = st.sampled_from(["", " ", "\n", "\t "])


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """Comparisons with AND and others between, with and without spaces."""
    text = draw(SPACES)
    for number in range(draw(st.integers(1, 3))):
        if number:
            text += draw(st.sampled_from([" AND ", " and\n", "AND", " OR ", ";"]))
        name, value = draw(NAMES), LITERALS.map(lambda literal: literal + draw(SPACES))
        form = draw(st.sampled_from(["compare", "between", "in", "null"]))
        if form == "compare":
            parts = [name, draw(OPERATORS), draw(value)]
        elif form == "between":
            parts = [name, " BETWEEN ", draw(value), draw(BETWEEN), draw(value)]
        elif form == "in":
            listed = ",".join(draw(st.lists(value, max_size=3)))
            parts = [name, draw(st.sampled_from([" IN", " in ", " NOT IN"])), f"({listed})"]
        else:
            parts = [name, draw(st.sampled_from([" IS NULL", " is not null", " IS NOTNULL"]))]
        text += "".join(part + draw(SPACES) for part in parts)
    return text


def by_sqlglot(text: str) -> Expression | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "_quick", lambda _: None)
        try:
            return sql._plain(text)
        except InvalidArgumentError:
            return None


@given(conditions())
def test_what_is_read_without_sqlglot_is_what_sqlglot_reads(text: str) -> None:
    quick = sql._quick(text)
    assert quick is None or quick == by_sqlglot(text)


def test_every_word_of_sqlglot_is_a_column_or_left_to_it() -> None:
    """So are the functions that go without parentheses."""
    dialect = sql._dialect()
    words = {*dialect.tokenizer_class.KEYWORDS, *dialect.parser_class.NO_PAREN_FUNCTION_PARSERS}
    words |= {token.name for token in dialect.parser_class.NO_PAREN_FUNCTIONS}
    plain = [word for word in words if word.isidentifier()]
    assert len(plain) > 200
    for word in plain:
        text = f"{word} > 5 AND x = 'a'"
        quick = sql._quick(text)
        assert quick is None or quick == by_sqlglot(text), word


@pytest.mark.parametrize(
    "text",
    [
        "x > 5",
        "x=-5",
        " l_shipdate >= '2024-01-01' and y <> 'it is' ",
        "x BETWEEN -1 AND 2.50 AND l_shipdate < DATE '1998-09-02' and z IS NOT NULL",
        "name IN ('a', 'b' ,'') AND x in(3)",
        "x IS NULL",
    ],
)
def test_plain_tests_are_read_the_quick_way(text: str) -> None:
    assert sql._quick(text) == by_sqlglot(text) is not None
