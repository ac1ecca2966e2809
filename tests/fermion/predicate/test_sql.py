"""SQL text as a filter: the quick way for plain comparisons means what sqlglot reads."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion.predicate import evaluate, sql
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
    """Comparisons with AND and others between, NOT and parentheses, with and without spaces."""
    text = draw(SPACES)
    for number in range(draw(st.integers(1, 3))):
        if number:
            text += draw(st.sampled_from([" AND ", " and\n", "AND", " OR ", ";"]))
        text += draw(st.sampled_from(["", "", "(", "NOT ", "not(", "NOT\t( ", "NOT"]))
        name, value = draw(NAMES), LITERALS.map(lambda literal: literal + draw(SPACES))
        form = draw(st.sampled_from(["compare", "between", "in", "null", "like"]))
        if form == "compare":
            parts = [name, draw(OPERATORS), draw(value)]
        elif form == "between":
            parts = [
                name,
                draw(st.sampled_from([" BETWEEN ", " NOT BETWEEN "])),
                draw(value),
                draw(BETWEEN),
                draw(value),
            ]
        elif form == "in":
            listed = ",".join(draw(st.lists(value, max_size=3)))
            parts = [name, draw(st.sampled_from([" IN", " in ", " NOT IN"])), f"({listed})"]
        elif form == "like":
            pattern = draw(
                st.sampled_from(["'ab%'", "'%'", "'a_%'", "''", "'a%b'", "'ab%' ESCAPE '!'"])
            )
            parts = [name, draw(st.sampled_from([" LIKE", " not like ", " NOT LIKE"])), pattern]
        else:
            parts = [name, draw(st.sampled_from([" IS NULL", " is not null", " IS NOTNULL"]))]
        text += "".join(part + draw(SPACES) for part in parts) + draw(
            st.sampled_from(["", "", ")"])
        )
    return text + ")" * draw(st.integers(0, max(0, text.count("(") - text.count(")"))))


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
        "x = 1 OR y = 2 AND (z > 3 or z is null)",
        "NOT (x = 1) AND NOT y IN (2, 3)",
        "name LIKE 'ab%' OR name NOT LIKE '' OR name NOT IN ('c')",
        "( ( x NOT BETWEEN 1 AND 2 ) )",
    ],
)
def test_plain_tests_are_read_the_quick_way(text: str) -> None:
    assert sql._quick(text) == by_sqlglot(text) is not None


@pytest.mark.parametrize("way", [sql._quick, by_sqlglot])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("s NOT LIKE 'a%'", ["b"]),
        ("s LIKE 'a%'", ["a", "ab"]),
        ("NOT s LIKE 'a'", ["b", "ab"]),
        ("s NOT LIKE 'a' AND s NOT IN ('b')", ["ab"]),
        ("s NOT BETWEEN 'a' AND 'aa' OR s = 'a'", ["a", "b", "ab"]),
        ("NOT (s IS NULL OR s < 'ab')", ["b", "ab"]),
    ],
)
def test_not_and_or_keep_the_rows_that_they_say(text, kept, way) -> None:
    rows = pa.RecordBatch.from_pydict({"s": ["a", "b", "ab", None]})
    assert rows.filter(evaluate(way(text), rows)).column(0).to_pylist() == kept


def test_words_that_change_what_a_test_means_are_left_to_an_engine() -> None:
    for text in ("x BETWEEN SYMMETRIC 5 AND 1", "s NOT ILIKE 'a%'"):
        assert sql._quick(text) is by_sqlglot(text) is None


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(
    "seconds",
    [10**12, -(10**11), 253402300800, -62167219200, -62198755200, 10**13, 2**62, -(2**62)],
)
def test_moments_of_years_that_python_has_not_are_read_as_they_are_written(seconds, zone):
    """Arrow writes the year 33658 as -31878, and reads no year of five digits."""
    moment = pa.scalar(seconds, pa.timestamp("s", zone))
    text = (fermion.col("t") == moment).to_sql()
    near = pa.array([seconds - 1, seconds, seconds + 1]).cast(moment.type)
    buffer = io.BytesIO()
    fermion.write_table(pa.table({"t": near}), buffer)
    with fermion.open(buffer.getvalue()) as file:
        assert file.read(filter=text)["t"].combine_chunks().equals(near[1:2])


@pytest.mark.parametrize(
    ("dtype", "test", "expected"),
    [
        (pa.date32(), "t > DATE '12345-01-01'", [False, True]),
        (pa.date32(), "t = DATE '12345-01-02'", [False, True]),
        (pa.timestamp("s"), "t > DATE '12345-01-01'", [False, True]),
        (pa.timestamp("s", "UTC"), "t > DATE '12345-01-01'", [False, True]),
        (pa.timestamp("s", "+01:00"), "t >= '12345-01-01'", [True, True]),
        (pa.timestamp("s", "-01:00"), "t >= TIMESTAMP '12345-01-01 00:00:00'", [False, True]),
        (pa.timestamp("ms", "UTC"), "t < '300000-01-01'", [True, True]),
    ],
)
def test_dates_of_far_years_are_read_in_the_zone_of_their_column(dtype, test, expected):
    days = pa.array([3_789_391, 3_789_392], pa.int32()).view(pa.date32())
    values = days.cast(pa.timestamp("s")).cast(dtype) if dtype != pa.date32() else days
    buffer = io.BytesIO()
    fermion.write_table(pa.table({"t": values}), buffer)
    with fermion.open(buffer.getvalue()) as file:
        assert file.read(filter=test)["t"].combine_chunks().equals(values.filter(expected))


@pytest.mark.parametrize("year", ["999999999999", "-999999999999", "10000-02-30", "9" * 5000])
def test_years_beyond_all_types_are_refused(year):
    for text in (f"t = TIMESTAMP '{year}-01-01 00:00:00'", f"t = '{year}-01-01 00:00:00'"):
        rows = pa.table({"t": pa.array([0], pa.timestamp("s"))})
        buffer = io.BytesIO()
        fermion.write_table(rows, buffer)
        with fermion.open(buffer.getvalue()) as file, pytest.raises(InvalidArgumentError):
            file.read(filter=text)
