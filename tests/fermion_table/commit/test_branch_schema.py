"""Merging branches whose schemas, and those of their parents, have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion_table import CommitConflict, Table
from fermion_table.commit import commit
from fermion_table.commit import commit as commit_module
from fermion_table.commit.branch_schema import SchemaClash, merged_schema, new_ids
from fermion_table.options import CommitOptions
from fermion_table.schema.from_arrow import schema_from_arrow

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32()), ("w", pa.int64())])
KEYED = {"primary_key": "k", "properties": {"bucket": "1"}}
INT64 = pa.int64()
Step = Callable[[Table], object]


def add(name: str, dtype: pa.DataType = INT64, **words: Any) -> Step:
    def step(table: Table) -> None:
        with table.update_schema() as update:
            update.add_column(name, dtype, **words)

    return step


def put(key: str, **values: Any) -> Step:
    """A step that writes a row; the columns of the table that it does not name are 1."""

    def step(table: Table) -> None:
        row = {"v": 1, "w": 1, **values}
        names = [name for name in table.schema.names if name in row]
        arrow = table.schema.to_arrow()
        rows = {name: pa.array([row[name]], arrow.field(name).type) for name in names}
        write = table.upsert if table.schema.primary_key else table.append
        write(pa.table({"k": [key], **rows}))

    return step


def sort_by(*names: str) -> Step:
    def step(table: Table) -> None:
        with table.update_schema() as update:
            update.set_sort_order(names)

    return step


def sides(
    path: Path, mine: list[Step], theirs: list[Step], schema: pa.Schema = SCHEMA, **words: Any
) -> tuple[Table, Table]:
    """A table with a row `base`; then what its branch and main did."""
    table = Table.create(path, schema, durability="fast", **words)
    if schema is SCHEMA:
        put("base")(table)
    table.branches.create("dev")
    dev = Table.open(path, branch="dev", durability="fast")
    for step in mine:
        step(dev)
    for step in theirs:
        step(table)
    return table, dev


def shown(table: Table) -> dict[str, dict[str, Any]]:
    """The rows by key, without columns that are null or 1 in the row of that key."""
    return {
        row.pop("k"): {name: value for name, value in row.items() if value not in (None, 1)}
        for row in table.scan().to_arrow().to_pylist()
    }


def stored_files(table: Table) -> list[Path]:
    return sorted(path for path in Path(table.location).rglob("*") if path.is_file())


@pytest.mark.parametrize("words", [{}, KEYED], ids=["append", "keyed"])
@pytest.mark.parametrize("nullable", [True, False])
def test_a_column_with_a_default_that_main_added_does_not_stop_rows_of_the_branch(
    tmp_path: Path, words: dict[str, Any], nullable: bool
) -> None:
    """Rows of the branch show the default, as rows do that were written before the column."""
    table, _ = sides(
        tmp_path / "t",
        [add("d"), put("dev", d=5)],
        [add("m", default=7, nullable=nullable), put("main", m=8)],
        **words,
    )
    table.branches.merge("dev")
    expected = {"base": {"m": 7}, "main": {"m": 8}, "dev": {"m": 7, "d": 5}}
    assert shown(table) == expected
    assert table.schema.names == ["k", "v", "w", "m", "d"]
    assert table.scan(filter="m = 7").count() == 2
    assert table.scan(filter="d = 5").count() == 1
    table.compact(threads=1)
    assert shown(table) == expected
    assert table.verify(data=True).ok


def test_both_sides_add_columns_with_defaults_and_change_those_of_others(tmp_path: Path) -> None:
    table, _ = sides(
        tmp_path / "t",
        [add("d", default=6), put("dev", d=5), lambda t: t.alter_column("w", default=4)],
        [put("main"), add("m", default=7), lambda t: t.alter_column("m", default=9)],
    )
    table.branches.merge("dev")
    assert shown(table) == {
        "base": {"d": 6, "m": 7}, "main": {"d": 6, "m": 7}, "dev": {"d": 5, "m": 7},
    }  # fmt: skip
    table.append({"k": ["later"]})
    assert shown(table)["later"] == {"d": 6, "m": 9, "w": 4}


@pytest.mark.parametrize("words", [{}, KEYED], ids=["append", "keyed"])
@pytest.mark.parametrize(
    "theirs",
    [
        lambda t: t.alter_column("v", type=pa.int64()),
        lambda t: t.rename_column("w", "x"),
        lambda t: t.drop_columns(["w"]),
        lambda t: t.set_properties({"target_file_size": "1000000"}),
    ],
    ids=["widens", "renames", "drops", "sets"],
)
def test_rows_with_a_new_column_follow_other_changes_of_main(
    tmp_path: Path, theirs: Step, words: dict[str, Any]
) -> None:
    """Their file keeps the types and names that it was written with."""
    table, _ = sides(
        tmp_path / "t", [add("d"), put("dev", v=3, w=4, d=5)], [theirs, put("main")], **words
    )
    before = table.schema.to_arrow(field_ids=False)
    table.branches.merge("dev")
    last = "x" if "x" in before.names else "w"
    expected = {"v": 3, "d": 5, **({last: 4} if last in before.names else {})}
    assert shown(table) == {"base": {}, "main": {}, "dev": expected}
    assert table.schema.to_arrow(field_ids=False).equals(before.append(pa.field("d", INT64)))
    assert table.verify(data=True).ok


def test_what_the_branch_fills_in_a_column_that_main_dropped_goes_with_it(tmp_path: Path) -> None:
    table, _ = sides(
        tmp_path / "t",
        [lambda t: t.fill_columns({"k": ["base"], "w": [77]}, on="k"), add("d"), put("dev", d=5)],
        [lambda t: t.drop_columns(["w"]), add("w", pa.string(), default="new")],
    )
    with pytest.raises(CommitConflict, match=r"column 'w' was dropped, and another one"):
        table.branches.merge("dev")
    table.drop_columns(["w"])
    table.branches.merge("dev")
    assert shown(table) == {"base": {}, "dev": {"d": 5}}
    assert table.verify(data=True).ok


@pytest.mark.parametrize("words", [{}, KEYED], ids=["append", "keyed"])
def test_a_column_that_both_sides_added_alike_is_one_column(
    tmp_path: Path, words: dict[str, Any]
) -> None:
    struct = pa.struct([("x", INT64), ("y", pa.string())])
    table, _ = sides(
        tmp_path / "t",
        [add("own"), add("d", default=3), add("s", struct), put("dev", d=5, s={"x": 9, "y": "b"})],
        [add("s", struct), add("d", default=3), put("main", d=6, s={"x": 8, "y": "m"})],
        **words,
    )
    table.branches.merge("dev")
    assert table.schema.names == ["k", "v", "w", "s", "d", "own"]
    assert shown(table) == {
        "base": {"d": 3},
        "main": {"d": 6, "s": {"x": 8, "y": "m"}},
        "dev": {"d": 5, "s": {"x": 9, "y": "b"}},
    }
    assert table.scan(filter="s.x = 9").count() == 1
    assert table.verify(data=True).ok


@pytest.mark.parametrize(
    "mine",
    [
        add("d", pa.string()),
        add("d", default=4),
        add("d", comment="of the branch"),
        add("d", nullable=False, default=0),
    ],
    ids=["type", "default", "comment", "nullable"],
)
def test_columns_of_one_name_that_are_not_alike_conflict_until_one_is_renamed(
    tmp_path: Path, mine: Step
) -> None:
    """The message names the merge, the column, and what helps; doing that does help."""
    table, dev = sides(tmp_path / "t", [mine], [add("d"), put("main", d=5)])
    before, files = table.snapshot, stored_files(table)
    with pytest.raises(
        CommitConflict,
        match=r"branch 'dev' can't be merged into 'main' at snapshot \d+: both have added or "
        r"renamed a column 'd' \(.*\); merging again does not help: first change the schema",
    ):
        table.branches.merge("dev")
    table.refresh()
    assert (table.snapshot, stored_files(table)) == (before, files)
    dev.rename_column("d", "e")
    table.branches.merge("dev")
    assert table.schema.names == ["k", "v", "w", "d", "e"]
    assert shown(table)["main"]["d"] == 5


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([add("d")], [put("main", v=None)]),
        ([add("d"), put("dev", v=None, d=5)], []),
        ([put("dev", v=None)], []),
        ([lambda t: t.fill_columns({"k": ["base"], "v": pa.array([None], pa.int32())}, on="k")],
         []),
        ([add("d"),
          lambda t: t.fill_columns({"k": ["base"], "v": pa.array([None], pa.int32())}, on="k")],
         []),
    ],
    ids=["main's", "with a column", "the branch's", "filled", "filled with a column"],
)  # fmt: skip
def test_no_null_gets_into_a_column_that_the_other_side_made_not_null(
    tmp_path: Path, mine: list[Step], theirs: list[Step]
) -> None:
    required: Step = lambda table: table.alter_column("v", nullable=False)  # noqa: E731
    if theirs:
        mine = [*mine, required]
    table, _ = sides(tmp_path / "t", mine, theirs or [required])
    files = stored_files(table)
    with pytest.raises(
        CommitConflict, match=r"branch 'dev' can't be merged .* column 'v' is NOT NULL now"
    ):
        table.branches.merge("dev")
    assert stored_files(table) == files


def test_an_append_that_adds_a_column_puts_no_null_into_a_column_made_not_null(
    tmp_path: Path,
) -> None:
    """The column becomes NOT NULL while the rows are on their way."""
    table, _ = sides(tmp_path / "t", [], [])
    batch = pa.record_batch({"k": ["new"], "v": pa.array([None], pa.int32()), "d": [5]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        Table.open(table.location).alter_column("v", nullable=False)

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    with pytest.raises(CommitConflict, match="column 'v' is NOT NULL now"):
        table.append(reader, schema_mode="merge")
    table.refresh()
    assert shown(table) == {"base": {}}


def test_an_append_that_adds_a_column_says_when_to_write_its_rows_again(tmp_path: Path) -> None:
    table, _ = sides(tmp_path / "t", [], [])
    batch = pa.record_batch({"k": ["new"], "d": [5]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        add("m", default=7)(Table.open(table.location))

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    with pytest.raises(
        CommitConflict,
        match="/t: append: column 'm', which has a default, was added by another commit; write the "
        "rows again",
    ):
        table.append(reader, schema_mode="merge")
    table.append(batch, schema_mode="merge")
    assert shown(table) == {"base": {"m": 7}, "new": {"m": 7, "d": 5}}


def test_a_sort_order_names_the_same_column_after_a_merge(tmp_path: Path) -> None:
    """Both sides gave their new column the same id."""
    table, _ = sides(tmp_path / "t", [add("d"), sort_by("d")], [add("m")])
    table.branches.merge("dev")
    assert [table.schema.by_id[each].name for each in table.schema.sort_by] == ["d"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_column_that_one_side_dropped_and_the_other_sorts_by_is_a_conflict(
    tmp_path: Path, swapped: bool
) -> None:
    steps: list[list[Step]] = [[sort_by("w")], [lambda t: t.drop_columns(["w"])]]
    mine, theirs = steps[::-1] if swapped else steps
    table, _ = sides(tmp_path / "t", mine, theirs)
    files = stored_files(table)
    with pytest.raises(CommitConflict, match="one has dropped column 'w', which is a partition"):
        table.branches.merge("dev")
    assert stored_files(table) == files


def test_fields_of_one_struct_are_merged_one_by_one(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("s", pa.struct([("a", INT64), ("b", INT64)]))])

    def inside(name: str) -> Step:
        return add(("s", name))  # type: ignore[arg-type]

    table, _ = sides(
        tmp_path / "t",
        [inside("d"), lambda t: t.append({"k": ["dev"], "s": [{"a": 1, "b": 2, "d": 3}]})],
        [inside("m"), lambda t: t.drop_columns(["s.b"])],
        schema,
    )
    table.append({"k": ["main"], "s": [{"a": 4, "m": 5}]})
    table.branches.merge("dev")
    assert shown(table) == {
        "dev": {"s": {"a": 1, "m": None, "d": 3}}, "main": {"s": {"a": 4, "m": 5, "d": None}},
    }  # fmt: skip
    assert table.scan(filter="s.d = 3").count() == 1
    for mine, theirs, match in (
        (inside("x"), add(("s", "x"), pa.string()), r"a column 's\.x' \(string and int64\)"),
        (lambda t: t.drop_columns(["s.a"]), lambda t: t.drop_columns(["s.b"]), "no field of"),
    ):
        other, _ = sides(tmp_path / match[-3:], [mine], [theirs], schema)  # type: ignore[list-item]
        with pytest.raises(CommitConflict, match=match):
            other.branches.merge("dev")


def test_a_merge_that_others_overtake_is_named_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit comes first, until time is up."""
    table, _ = sides(tmp_path / "t", [add("d"), put("dev", d=5)], [add("m", default=7)])
    files = stored_files(table)
    lost = type("Lost", (), {"stored": None, "is_first_reply": True})
    hasty = partial(commit_module.Commit, options=CommitOptions(timeout_s=0))
    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "create_snapshot_file", lambda *given: lost)
        patch.setattr(commit, "Commit", hasty)
        with pytest.raises(
            CommitConflict, match=r"merge of branch 'dev': 1 attempts .*; try again"
        ):
            table.branches.merge("dev")
    assert stored_files(table) == files
    table.branches.merge("dev")
    assert shown(table) == {"base": {"m": 7}, "dev": {"m": 7, "d": 5}}


def test_schemas_stored_for_a_try_that_was_overtaken_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main changes its schema once more between the plan and the commit."""
    from fermion_table.commit import branch_merge

    table, _ = sides(tmp_path / "t", [add("d"), put("dev", d=5)], [add("m", default=7)])
    other, real, done = Table.open(table.location), branch_merge._request, []

    def late(*given: Any) -> Any:
        made = real(*given)
        if not done:
            done.append(add("late", default=9)(other))
        return made

    monkeypatch.setattr(branch_merge, "_request", late)
    table.branches.merge("dev")
    assert shown(table)["dev"] == {"m": 7, "late": 9, "d": 5}
    names = {path.name for path in (tmp_path / "t" / "schema").iterdir()}
    versions = [version.path for version in table.schema.ancestors]
    dev = Table.open(table.location, branch="dev")
    versions += [version.path for version in dev.schema.ancestors]
    versions += [table.snapshot.schema.path, dev.snapshot.schema.path]
    assert names == {Path(version).name for version in versions}


class CountedName(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_names_of_a_wide_schema_are_compared_a_few_times_each_when_branches_are_merged() -> None:
    columns = 2000
    base = schema_from_arrow(
        pa.schema([(f"c{number}", INT64) for number in range(columns)]), properties={}
    )

    def counted(side: str) -> Any:
        fields = [
            msgspec.structs.replace(field, name=CountedName(field.name)) for field in base.fields
        ]
        added = [
            msgspec.structs.replace(
                fields[0], id=columns + 1 + number, name=CountedName(f"{side}{number}")
            )
            for number in range(100)
        ]
        return msgspec.structs.replace(
            base, fields=(*fields, *added), last_field_id=columns + len(added)
        )

    branch, target = counted("mine"), counted("theirs")
    CountedName.compared = 0
    merged = merged_schema(base, new_ids(base, branch, target).schema(branch), target)
    assert len(merged.fields) == columns + 200
    assert 0 < CountedName.compared < 10 * columns


def test_the_names_of_two_columns_of_a_wide_schema_still_conflict() -> None:
    base = schema_from_arrow(pa.schema([("a", INT64)]), properties={})
    one, two = (
        msgspec.structs.replace(
            base,
            fields=(
                *base.fields,
                msgspec.structs.replace(base.fields[0], id=2, name="b", comment=c),
            ),
            last_field_id=2,
        )
        for c in ("one", "two")
    )
    with pytest.raises(SchemaClash, match="both have added or renamed a column 'b'"):
        merged_schema(base, new_ids(base, one, two).schema(one), two)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "default", "required", "drop", "rename", "widen", "put", "fill"]),
        st.integers(0, 9),
    ),
    max_size=6,
)


def perform(table: Table, who: str, steps: list[tuple[str, int]]) -> None:
    """Changes of schema and rows that a table can make; each value is new."""
    for turn, (what, number) in enumerate(steps):
        own = [name for name in table.schema.names if name != "k"]
        name = own[number % len(own)] if own else "k"
        new = f"{who}{turn}"
        if what in ("add", "default", "required"):
            words: dict[str, Any] = {"default": 100 * turn + number} if what != "add" else {}
            add(new, nullable=what != "required", **words)(table)
        elif what == "drop" and own:
            table.drop_columns([name])
        elif what == "rename" and own:
            table.rename_column(name, new)
        elif what == "widen" and own:
            table.alter_column(name, type=pa.int64())
        elif what == "put":
            put(new, **dict.fromkeys(own, number))(table)
        elif what == "fill" and own and not table.schema.primary_key:
            dtype = table.schema.to_arrow().field(name).type
            values = pa.table({"k": ["base"], name: pa.array([50 + number], dtype)})
            table.fill_columns(values, on="k")


@pytest.mark.long
@settings(deadline=None)
@given(mine=STEPS, theirs=STEPS, keyed=st.booleans())
def test_every_row_has_its_values_after_a_merge_of_two_changed_schemas(
    tmp_path_factory: pytest.TempPathFactory,
    mine: list[tuple[str, int]],
    theirs: list[tuple[str, int]],
    keyed: bool,
) -> None:
    """Each side's rows keep its columns, and have the first default of what the other added."""
    path = tmp_path_factory.mktemp("merged") / "t"
    table, dev = sides(path, [], [], **(KEYED if keyed else {}))
    known = table.schema.last_field_id
    perform(dev, "dev", mine)
    perform(table, "main", theirs)
    rows = [{row["k"]: row for row in each.scan().to_arrow().to_pylist()} for each in (table, dev)]
    schemas = [table.schema, dev.schema]
    before, refused = table.snapshot, ""
    try:
        table.branches.merge("dev")
    except CommitConflict as error:
        refused = str(error)
    if refused:
        assert "branch 'dev' can't be merged" in refused
        assert "merging again does not help" in refused
        table.refresh()
        assert table.snapshot == before
        return
    found = {row["k"]: row for row in table.scan().to_arrow().to_pylist()}
    assert found.keys() == rows[0].keys() | rows[1].keys()
    filled = ("fill" in dict(mine), "fill" in dict(theirs))
    for field in table.schema.fields:
        by_side = [schemas[0].by_id.get(field.id)]
        is_shared = field.id <= known
        by_side.append(
            schemas[1].by_id.get(field.id) if is_shared else schemas[1].by_name.get(field.name)
        )
        for key, row in found.items():
            wrote = [each for each in (0, 1) if key in rows[each] and by_side[each] is not None]
            if key == "base":
                changed = [each for each in wrote if filled[1 - each]]
                wrote = changed[:1] or wrote[:1]
            values = [rows[each][key][by_side[each].name] for each in wrote]  # type: ignore[union-attr]
            default = field.initial_default
            expected = values or [None if default is None else default.as_py()]
            assert row[field.name] in expected, (field, key)
    assert table.verify(data=True).ok
