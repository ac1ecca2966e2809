"""Schema evolution: every change against rows as dictionaries keyed by field id."""

from __future__ import annotations

import datetime
import tempfile
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import CommitConflict, Table
from tests.kit.schema_changes import CHANGES, ROWS, START, carry_out


@pytest.fixture
def table(table_path):
    table = Table.create(table_path, START, durability="fast")
    table.append(pa.Table.from_pylist(ROWS, START))
    return table


def rows(table, **question):
    return table.scan(**question).to_arrow().to_pylist()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_changes_what_it_says_and_nothing_else(table, name):
    """All rows, every column alone, every filter alone, then rows in old and new files mixed."""
    change, expected = CHANGES[name]
    carry_out(change, table)
    wanted = [expected(row) for row in ROWS]
    schema = table.schema.to_arrow(field_ids=False)
    assert rows(table) == wanted
    assert list(wanted[0]) == schema.names

    for column in schema.names:
        assert rows(table, columns=[column]) == [{column: row[column]} for row in wanted]
        for test in ("IS NULL", "IS NOT NULL"):
            chosen = [row for row in wanted if (row[column] is None) == (test == "IS NULL")]
            assert rows(table, filter=f'"{column}" {test}') == chosen

    table.append(pa.Table.from_pylist(wanted, schema))
    assert rows(table) == [*wanted, *wanted]
    before = table.scan().to_arrow()
    assert table.compact().files_after == 1
    assert table.scan().to_arrow().equals(before)
    assert rows(table, snapshot_id=1) == ROWS
    assert table.scan(snapshot_id=1).schema.equals(START)
    assert table.verify(data=True).ok


FILTERS = {
    "a = 1": [1],
    "a < 1": [3],
    "a <> 1": [3],
    "a >= -3 AND a <= 1": [1, 3],
    "NOT (a > 0)": [3],
    "a IN (1, 300, -3)": [1, 3],
    "a > 300 OR a IS NULL": [2],
    "a < 5000000000": [1, 3],
    "a = 1.5": [],
    "s.x = 1": [1],
    "s.x IS NULL": [2, 3],
    "s.t = 'p' AND a = 1": [1],
}


@pytest.mark.parametrize("names_changed", [False, True])
@pytest.mark.parametrize("types_changed", [False, True])
@pytest.mark.parametrize("filter_text", FILTERS)
def test_filters_select_the_same_rows_under_new_names_and_types(
    table, filter_text, names_changed, types_changed
):
    """Old files are asked under their own names, with literals placed in their own types."""
    if types_changed:
        table.alter_column("a", type=pa.int64())
        table.alter_column("s", type=pa.struct([("x", pa.float64()), ("t", pa.large_string())]))
    text = filter_text
    if names_changed:
        with table.update_schema() as update:
            update.rename_column("a", "aa").rename_column("s.x", "xx").rename_column("s", "ss")
        text = text.replace("a ", "aa ").replace("s.x", "ss.xx").replace("s.t", "ss.t")
    found = [row["id"] for row in rows(table, columns=["id"], filter=text)]
    assert found == FILTERS[filter_text]


def test_a_pyarrow_expression_sees_the_new_type(table):
    """It divides as floats do, though the file holds integers: the file may not decide it."""
    table.alter_column("a", type=pa.float64())
    assert rows(table, columns=["id"], filter=pc.field("a") / 2 == 0.5) == [{"id": 1}]


def test_a_column_that_files_lack_costs_no_request(table, monkeypatch):
    """Not even opening them: whether it is null, has a default, or a filter reads it."""
    table.add_columns({"n": pa.int64(), "d": pa.string()}, defaults={"d": "x"})

    def refuse(*args, **options):
        raise AssertionError("a file was opened")

    monkeypatch.setattr("fermion.open", refuse)
    assert rows(table, columns=["n", "d"]) == [{"n": None, "d": "x"}] * 3
    assert rows(table, columns=["d"], filter="n IS NULL AND d = 'x'") == [{"d": "x"}] * 3
    assert table.scan(filter="n = 1").plan().splits == ()
    assert table.scan(filter="d = 'y'").count() == 0
    assert table.scan(columns=["z"]).count() == 3


def test_an_all_null_column_costs_no_request_either(table, monkeypatch):
    """Entries say which columns hold data; `z` never did."""
    monkeypatch.setattr("fermion.open", lambda *args, **options: 1 / 0)
    assert rows(table, columns=["z"]) == [{"z": None}] * 3
    assert table.scan(filter="z IS NOT NULL").plan().splits == ()


def test_a_column_added_later_with_a_default_is_null_where_a_new_file_says_so(table):
    table.add_columns({"d": pa.string()}, defaults={"d": "x"})
    table.append({"id": [9], "d": pa.array([None], pa.string())})
    table.append({"id": [10]})
    found = rows(table, columns=["id", "d"])
    assert [row["d"] for row in found] == ["x", "x", "x", None, "x"]


def test_the_write_default_changes_without_changing_old_rows(table):
    table.add_columns({"d": pa.string()}, defaults={"d": "x"})
    table.alter_column("d", default="y")
    table.append({"id": [9]})
    assert [row["d"] for row in rows(table, columns=["d"])] == ["x", "x", "x", "y"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.alter_column("a", type=pa.int8()).id, None),
        (lambda t: t.alter_column("id", type=pa.int16()), "int32 to int16"),
        (lambda t: t.alter_column("a", type=pa.string()), "int8 to string"),
        (lambda t: t.alter_column("s", type=pa.struct([("x", pa.int16())])), "'t' is missing"),
        (lambda t: t.alter_column("l", type=pa.large_list(START.field("l").type)), "nesting"),
        (
            lambda t: t.alter_column(
                "m", type=pa.map_(pa.struct([("k", pa.string())]), pa.int32())
            ),
            "string to struct",
        ),
        (lambda t: t.alter_column("a", nullable=False), "live rows are null"),
        (lambda t: t.alter_column("s.x", nullable=False), "live rows are null"),
        (lambda t: t.alter_column("l.element.q", nullable=False), "inside a list or map"),
        (lambda t: t.drop_columns(["nope"]), "no column 'nope'"),
        (lambda t: t.drop_columns(["l.element.q"]), "last of struct"),
        (lambda t: t.drop_columns(START.names), "last of the table"),
        (lambda t: t.drop_columns(["m.key"]), "is not a struct"),
        (lambda t: t.rename_column("a", "s"), "the name is taken"),
        (lambda t: t.rename_column("s.x", "t"), "the name is taken"),
        (lambda t: t.rename_column("l.element", "e"), "is not a struct"),
        (lambda t: t.add_columns({"a": pa.int8()}), "the name is taken"),
        (
            lambda t: t.add_columns(pa.schema([pa.field("n", pa.int8(), nullable=False)])),
            "needs a default",
        ),
        (lambda t: t.add_columns({"n": pa.int8()}, defaults={"n": "x"}), "no int8"),
        (lambda t: t.update_schema().move_after("a", "nope"), "no column 'nope'"),
    ],
)
def test_a_change_that_would_lose_something_is_refused(table, change, says):
    """By name and reason; the table stays as it was."""
    before = table.schema
    if says is None:
        change(table)
    else:
        with pytest.raises((InvalidArgumentError, ColumnNotFoundError), match=says):
            change(table)
    assert table.schema == before
    assert table.refresh().id == 1


@pytest.mark.parametrize("column", ["k", "p"])
def test_key_and_partition_columns_stay(table_path, column):
    schema = pa.schema([("k", pa.date32()), ("p", pa.date32()), ("v", pa.int8())])
    table = Table.create(table_path, schema, partition_by="p", primary_key=["p", "k"])
    with pytest.raises(InvalidArgumentError, match="partition, key or sort"):
        table.drop_columns([column])
    with pytest.raises(InvalidArgumentError, match="partition or key"):
        table.alter_column(column, type=pa.timestamp("us"))


def test_not_null_is_possible_once_no_live_row_is_null(table):
    table.alter_column("a", nullable=True)
    with table.update_schema() as update:
        update.add_column("n", pa.int8(), default=1)
    table.alter_column("n", nullable=False)
    assert not table.schema.find("n").nullable
    with pytest.raises(ValueError, match="NOT NULL"):
        table.append({"id": [4], "n": pa.array([None], pa.int8())})


def test_several_changes_are_one_snapshot_and_nothing_after_an_error(table):
    before = table.snapshot.id
    with table.update_schema() as update:
        update.add_column("n", pa.int8()).rename_column("n", "k").drop_column("z")
    assert table.snapshot.id == before + 1
    with (  # noqa: PT012 - the change before the refused one is what is tested
        pytest.raises(InvalidArgumentError),
        table.update_schema() as update,
    ):
        update.drop_column("k")
        update.rename_column("a", "s")
    assert table.refresh().id == before + 1
    assert "k" in table.schema.by_name


def test_a_dropped_id_is_never_used_again(table):
    first = table.schema.last_field_id
    table.add_columns({"n": pa.int8()})
    number = table.schema.find("n").id
    table.drop_columns(["n"])
    table.add_columns({"n": pa.int8()})
    assert first < number < table.schema.find("n").id == table.schema.last_field_id


def test_changes_of_two_writers_are_both_made(table, table_path):
    """The second is applied again to the schema that the first has made."""
    other = Table.open(table_path)
    update = table.update_schema().add_column("n", pa.int8())
    other.add_columns({"k": pa.int8()})
    update.__exit__(None, None, None)
    assert table.schema.names == [*START.names, "k", "n"]
    clash = table.update_schema().add_column("x", pa.int8())
    other.add_columns({"x": pa.string()})
    with pytest.raises(InvalidArgumentError, match="the name is taken"):
        clash.__exit__(None, None, None)


def test_files_of_an_older_schema_are_appended_if_they_still_fit(table, table_path):
    """Written before the change, committed after it."""
    with table.writer() as writer:
        writer.write({"id": [4], "a": [4]})
        messages = writer.prepare_commit()
    other = Table.open(table_path)
    with other.update_schema() as update:
        update.rename_column("a", "b").add_column("n", pa.int8(), default=1).drop_column("z")
    table.commit(messages)
    assert rows(table, columns=["id", "b", "n"], filter="id = 4") == [{"id": 4, "b": 4, "n": 1}]


def test_files_with_nulls_are_refused_once_the_column_is_not_null(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    messages = []
    for value in (None, 1):
        with table.writer() as writer:
            writer.write({"a": pa.array([value], pa.int8())})
            messages.append(writer.prepare_commit())
    Table.open(table_path).alter_column("a", nullable=False)
    with pytest.raises(CommitConflict, match="'a' is NOT NULL now"):
        table.commit(messages[0])
    table.commit(messages[1])
    assert rows(table) == [{"a": 1, "b": None}]
    assert len(list((table_path / "data").iterdir())) == 1


def test_time_travel_sees_the_schema_of_its_time(table):
    with table.update_schema() as update:
        update.rename_column("a", "b").alter_column("b", type=pa.int64()).drop_column("s")
    assert table.scan(snapshot_id=1).schema.names == START.names
    assert table.scan(snapshot_id=1, filter="s.x = 1").count() == 1
    with pytest.raises(ColumnNotFoundError):
        table.scan(filter="s.x = 1")
    assert [schema.id for schema in table.schemas()] == [0, 1]


def test_decimals_and_dates_widen_with_their_defaults(table_path):
    table = Table.create(table_path, pa.schema([("id", pa.int8())]))
    table.append({"id": [1]})
    table.add_columns(
        {"d": pa.decimal128(5, 2), "t": pa.date32()},
        defaults={"d": Decimal("1.25"), "t": datetime.date(2024, 1, 1)},
    )
    table.alter_column("d", type=pa.decimal128(9, 4))
    table.alter_column("t", type=pa.timestamp("ns"))
    assert rows(table, columns=["d", "t"]) == [
        {"d": Decimal("1.2500"), "t": datetime.datetime(2024, 1, 1)}
    ]
    assert table.scan(filter="d = 1.25 AND t = DATE '2024-01-01'").count() == 1


class Evolution(RuleBasedStateMachine):
    """Any sequence of changes and appends, against rows as dictionaries by field id."""

    def __init__(self) -> None:
        super().__init__()
        self.model: list[dict[int, object]] = []
        self.counter = 0

    @initialize(path=st.just(None))
    def create(self, path):
        self.directory = tempfile.TemporaryDirectory()
        schema = pa.schema([("c0", pa.int64()), ("c1", pa.int8())])
        self.table = Table.create(f"{self.directory.name}/t", schema, durability="fast")

    def teardown(self):
        if hasattr(self, "directory"):
            self.directory.cleanup()

    def name(self):
        self.counter += 1
        return f"n{self.counter}"

    def field(self, draw):
        return self.table.schema.fields[draw % len(self.table.schema.fields)]

    @rule(default=st.none() | st.integers(-5, 5), place=st.integers(0, 9))
    def add(self, default, place):
        after = self.field(place).name
        with self.table.update_schema() as update:
            update.add_column(self.name(), pa.int8(), default=default, after=after)
        new = next(f for f in self.table.schema.fields if f.id == self.table.schema.last_field_id)
        for row in self.model:
            row[new.id] = default

    @rule(which=st.integers(0, 9))
    def drop(self, which):
        field = self.field(which)
        if len(self.table.schema.fields) > 1:
            self.table.drop_columns([field.name])
            for row in self.model:
                del row[field.id]

    @rule(which=st.integers(0, 9))
    def rename(self, which):
        self.table.rename_column(self.field(which).name, self.name())

    @rule(which=st.integers(0, 9), dtype=st.sampled_from([pa.int16(), pa.int64(), pa.float64()]))
    def widen(self, which, dtype):
        field = self.field(which)
        if pa.types.is_integer(field.type) and field.type.bit_width < dtype.bit_width:
            self.table.alter_column(field.name, type=dtype)

    @rule(values=st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=6))
    def append(self, values):
        fields = self.table.schema.fields
        data, added = {}, [{} for _ in values]
        for place, field in enumerate(fields):
            column = values[place % len(values) :] + values[: place % len(values)]
            data[field.name] = pa.array(column, pa.int8())
            for row, value in zip(added, column, strict=True):
                row[field.id] = value
        self.table.append(pa.table(data))
        self.model += added

    @rule()
    def compact(self):
        self.table.compact()

    @invariant()
    def rows_are_those_of_the_model(self):
        fields = self.table.schema.fields
        found = self.table.scan().to_arrow().to_pylist()
        assert found == [{f.name: row[f.id] for f in fields} for row in self.model]

    @rule(which=st.integers(0, 9), bound=st.integers(-9, 9))
    def filtered(self, which, bound):
        field = self.field(which)
        found = self.table.scan(filter=f"{field.name} <= {bound}", columns=[field.name]).to_arrow()
        wanted = [row[field.id] for row in self.model]
        assert found.column(0).to_pylist() == [v for v in wanted if v is not None and v <= bound]


Evolution.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
test_any_sequence_of_changes_agrees_with_the_model = Evolution.TestCase
