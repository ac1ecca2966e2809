"""Merging branches: every pair of operations, schemas, keys, and what is left after a conflict."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import CommitConflict, MissingDataFile, Table, VersionNotFound
from fermion_table.commit.branch_merge import MERGED_PROPERTY

Rows = dict[str, int]
SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
A, B = ({f"{file}{n}": n for n in range(4)} for file in "ab")


def data(rows: Rows) -> pa.Table:
    return pa.table({"k": list(rows), "v": list(rows.values())}, schema=SCHEMA)


def rows_of(table: Table) -> Rows:
    found = table.scan().to_arrow().select(["k", "v"]).to_pylist()
    rows = {row["k"]: row["v"] for row in found}
    assert len(rows) == len(found)
    return rows


def base_table(path: Path, **words: Any) -> Table:
    """Files `a` and `b` of four rows each, as snapshots 1 and 2."""
    table = Table.create(path, SCHEMA, durability="fast", **words)
    table.append(data(A))
    table.append(data(B))
    return table


def without(rows: Rows, gone: Iterable[str]) -> Rows:
    return {k: v for k, v in rows.items() if k not in gone}


Operation = tuple[Callable[[Table, str], object], Callable[[Rows, str], Rows]]
OPERATIONS: dict[str, Operation] = {
    "append": (
        lambda table, who: table.append(data({f"{who}-new": 7})),
        lambda rows, who: {**rows, f"{who}-new": 7},
    ),
    "delete in a": (
        lambda table, who: table.delete("k = 'a1'"),
        lambda rows, who: without(rows, ["a1"]),
    ),
    "delete in b": (
        lambda table, who: table.delete("k = 'b1'"),
        lambda rows, who: without(rows, ["b1"]),
    ),
    "delete all of a": (
        lambda table, who: table.delete("k < 'b'"),
        lambda rows, who: without(rows, A),
    ),
    "update in a": (
        lambda table, who: table.update("k = 'a2'", {"v": 50}),
        lambda rows, who: {k: 50 if k == "a2" else v for k, v in rows.items()},
    ),
    "update in b": (
        lambda table, who: table.update("k = 'b2'", {"v": 60}),
        lambda rows, who: {k: 60 if k == "b2" else v for k, v in rows.items()},
    ),
    "overwrite": (
        lambda table, who: table.overwrite(data({f"{who}-all": 1})),
        lambda rows, who: {f"{who}-all": 1},
    ),
    "restore": (lambda table, who: table.restore(1), lambda rows, who: dict(A)),
    "compact": (lambda table, who: table.compact(threads=1), lambda rows, who: rows),
    "schema": (
        lambda table, who: table.add_columns({f"{who}_c": pa.int64()}),
        lambda rows, who: rows,
    ),
}
IN_A = {"delete in a", "delete all of a", "update in a"}
IN_B = {"delete in b", "update in b", "restore"}
WHOLE = {"overwrite", "restore"}


def conflicts(mine: str, theirs: str) -> bool:
    """The matrix of docs/table_format.md, for these operations."""
    if {mine, theirs} & {"schema"} or mine in ("append", "compact"):
        return False
    if mine in WHOLE:
        return True  # theirs changed the only partition, or removed the files by a compaction
    if theirs == "append":
        return False
    if theirs == "compact" or theirs == "overwrite":
        return True
    return bool({mine, theirs} <= IN_A or {mine, theirs} <= IN_B)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table, with the branch `dev` from its newest snapshot on."""
    path = tmp_path_factory.mktemp("template") / "t"
    base_table(path).branches.create("dev")
    return path


@pytest.mark.parametrize("theirs", OPERATIONS)
@pytest.mark.parametrize("mine", OPERATIONS)
def test_every_pair_of_operations(tmp_path: Path, template: Path, mine: str, theirs: str) -> None:
    """The branch does `mine`, main does `theirs`: merged, or a conflict that leaves main as it is.

    The expected rows are those of main's operation followed by the branch's.
    """
    shutil.copytree(template, tmp_path / "t")
    table = Table.open(tmp_path / "t", durability="fast")
    dev = Table.open(table.location, branch="dev", durability="fast")
    OPERATIONS[theirs][0](table, "main")
    OPERATIONS[mine][0](dev, "dev")
    newest, before = table.snapshot.id, rows_of(table)
    if conflicts(mine, theirs):
        with pytest.raises(
            CommitConflict, match="branch 'dev' can't be merged into 'main'"
        ) as told:
            table.branches.merge("dev")
        assert told.value.theirs or told.value.files
        table.refresh()
        assert (table.snapshot.id, rows_of(table)) == (newest, before)
        return
    expected = OPERATIONS[mine][1](OPERATIONS[theirs][1]({**A, **B}, "main"), "dev")
    merged = table.branches.merge("dev")
    assert rows_of(table) == expected
    assert merged.id == newest + 1
    assert merged.properties[MERGED_PROPERTY] == dev.snapshot.hash
    names = {"k", "v"} | {f"{who}_c" for who, op in (("dev", mine), ("main", theirs))
                          if op == "schema"}  # fmt: skip
    assert set(table.schema.names) == names
    assert len({*table.scan(columns=["_row_id"]).to_arrow()["_row_id"].to_pylist()}) == len(
        expected
    )
    assert table.verify(data=True).ok
    assert table.branches.merge("dev").id == merged.id  # nothing is left to bring
    if "delete in b" in (mine, theirs):
        table.append(pa.table({"k": ["last"], "v": [0]}))
        table.compact(threads=1)
        assert rows_of(table) == {**expected, "last": 0}


def test_a_branch_is_merged_again_after_further_commits(tmp_path: Path) -> None:
    """Each time what came since; rows that came with the last merge can be deleted, too."""
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    expected = {**A, **B}
    for number in range(3):
        dev.append(data({f"dev{number}": number}))
        table.append(data({f"main{number}": number}))
        expected |= {f"dev{number}": number, f"main{number}": number}
        if number:
            dev.delete(f"k = 'dev{number - 1}'")
            table.delete("k = 'a1'") if number == 1 else dev.delete("k = 'b1'")
            expected = without(expected, [f"dev{number - 1}", "a1" if number == 1 else "b1"])
        table.branches.merge("dev")
        assert rows_of(table) == expected
        ids = table.scan(columns=["_row_id"]).to_arrow()["_row_id"].to_pylist()
        assert len(set(ids)) == len(expected)
    dev.delete("k = 'dev2'")
    table.delete("k = 'dev2'")
    with pytest.raises(CommitConflict):
        table.branches.merge("dev")
    assert table.verify(data=True).ok


def test_a_branch_that_main_did_not_leave_behind_is_fast_forwarded(tmp_path: Path) -> None:
    """Also after a fast-forward; after a merge of two sides it no longer is."""
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    for number in range(2):
        dev.append(data({f"x{number}": 1}))
        snapshot = table.branches.merge("dev", message="bring it")
        assert "fermion.fast_forwarded_to" in snapshot.properties
        assert snapshot.message == "bring it"
        assert snapshot.row_id_next == dev.snapshot.row_id_next
    table.append(data({"y": 1}))
    dev.append(data({"z": 1}))
    assert MERGED_PROPERTY in table.branches.merge("dev").properties
    assert rows_of(table) == {**A, **B, "x0": 1, "x1": 1, "y": 1, "z": 1}
    with pytest.raises(VersionNotFound, match="no branch 'nope'"):
        table.branches.merge("nope")
    with pytest.raises(TypeError, match="message"):
        table.branches.merge("dev", message=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", ["data", "deletion"])
def test_a_branch_whose_files_are_missing_is_not_published(
    tmp_path: Path, moved: bool, kind: str
) -> None:
    """Neither by a fast-forward, nor by a merge."""
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    if moved:
        table.append(data({"y": 1}))
    before, state = set((tmp_path / "t").rglob("*")), table.snapshot
    dev = Table.open(table.location, branch="dev")
    if kind == "data":
        dev.append(data({"x": 1}))
    else:
        dev.delete("k = 'a1'")
    (file,) = (each for each in (tmp_path / "t" / kind).rglob("*.*") if each not in before)
    stored = file.read_bytes()
    file.unlink()
    if not moved:
        with pytest.raises(MissingDataFile, match=f"{file.name}.*Nothing was published"):
            table.branches.fast_forward("dev")
    with pytest.raises(MissingDataFile, match=f"snapshot {dev.snapshot.id} of .*{file.name}"):
        table.branches.merge("dev")
    assert table.refresh() == state
    file.write_bytes(stored)
    table.branches.merge("dev")
    assert rows_of(table) == rows_of(dev) | ({"y": 1} if moved else {})


def test_a_branch_of_a_branch_goes_to_its_parent(tmp_path: Path) -> None:
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    dev.branches.create("deep")
    deep = Table.open(table.location, branch="deep")
    deep.append(data({"deep": 1}))
    dev.append(data({"dev": 1}))
    table.append(data({"main": 1}))
    dev.branches.merge("deep")
    assert dev.branch == "dev"
    assert rows_of(dev) == {**A, **B, "deep": 1, "dev": 1}
    table.branches.merge("dev")
    assert rows_of(table) == {**A, **B, "deep": 1, "dev": 1, "main": 1}


def test_partitions_are_replaced_beside_changes_of_others(tmp_path: Path) -> None:
    table = base_table(tmp_path / "t", partition_by=["truncate(1, k)"])
    for name, filter_, ok in (("one", "k < 'b'", True), ("two", "k >= 'b'", False)):
        table.branches.create(name, version=2)
        branch = Table.open(table.location, branch=name)
        branch.overwrite(data({f"{'a' if ok else 'b'}9": 9}), filter=filter_)
    table.append(data({"b8": 8}))
    table.branches.merge("one")
    assert rows_of(table) == {"a9": 9, **B, "b8": 8}
    with pytest.raises(CommitConflict, match="changed partitions that the branch has replaced"):
        table.branches.merge("two")


def test_a_conflict_names_files_and_leaves_no_other(tmp_path: Path) -> None:
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    table.delete("k = 'a1'")
    dev.add_columns({"c": pa.int64()})
    dev.delete("k = 'a2'")
    files = sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())
    with pytest.raises(CommitConflict, match=r"changed files of 4 rows .* files: data/") as told:
        table.branches.merge("dev")
    assert told.value.mine == f"delete (snapshot {dev.snapshot.id} of the branch)"
    assert told.value.theirs == f"delete (snapshot {table.snapshot.id})"
    assert len(told.value.files) == 1
    assert files == sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())


def test_a_compaction_of_the_branch_is_left_out_where_main_changed_its_files(
    tmp_path: Path,
) -> None:
    """Later changes of what it made can't be repeated then."""
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    dev.append(data({"x": 1}))
    dev.compact()
    table.delete("k = 'a1'")
    table.branches.merge("dev")
    assert rows_of(table) == {**without(A, ["a1"]), **B, "x": 1}
    dev.delete("k = 'b1'")
    with pytest.raises(CommitConflict, match=r"compaction of the branch|changed files"):
        table.branches.merge("dev")


def test_commits_that_have_expired_can_t_be_merged(tmp_path: Path) -> None:
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    for number in range(3):
        dev.append(data({f"x{number}": 1}))
    table.append(data({"y": 1}))
    dev.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    with pytest.raises(CommitConflict, match="expired"):
        table.branches.merge("dev")


def test_a_commit_of_the_branch_is_not_made_again_on_main(tmp_path: Path) -> None:
    """Its identity comes with the merge."""
    table = base_table(tmp_path / "t")
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    dev.append(data({"x": 1}), commit_user="job", commit_identifier=5)
    table.append(data({"y": 1}))
    merged = table.branches.merge("dev")
    assert table.append(data({"x": 1}), commit_user="job", commit_identifier=5).id == merged.id
    assert rows_of(table) == {**A, **B, "x": 1, "y": 1}


def test_main_may_move_on_while_a_branch_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge is made again on main's newest snapshot, or is a conflict there."""
    from fermion_table.commit import branch_merge

    for theirs, fails in (("append", False), ("delete in a", True)):
        table = base_table(tmp_path / theirs)
        table.branches.create("dev")
        dev = Table.open(table.location, branch="dev")
        dev.delete("k = 'a0'")
        table.append(data({"y": 1}))
        other, real, done = Table.open(table.location), branch_merge._request, []

        def late(*given: Any) -> Any:
            made = real(*given)  # noqa: B023
            if not done:  # noqa: B023
                done.append(OPERATIONS[theirs][0](other, "other"))  # noqa: B023
            return made

        monkeypatch.setattr(branch_merge, "_request", late)
        if fails:
            with pytest.raises(CommitConflict):
                table.branches.merge("dev")
        else:
            table.branches.merge("dev")
            assert rows_of(table) == {**without(A, ["a0"]), **B, "y": 1, "other-new": 7}
        monkeypatch.undo()


def two_schemas(path: Path, mine: Callable[[Table], object], theirs: Callable[[Table], object]):
    """A table whose branch and main have changed the schema, and rows, each."""
    table = base_table(path)
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev")
    theirs(table)
    mine(dev)
    return table, dev


def test_columns_added_on_both_sides_stand_side_by_side(tmp_path: Path) -> None:
    """Both took the same field id; rows of the branch are read by the new one."""
    table, dev = two_schemas(
        tmp_path / "t",
        lambda t: t.add_columns({"d": pa.int64(), "s": pa.struct({"x": pa.int64()})}),
        lambda t: t.add_columns({"m": pa.string()}),
    )
    table.append(pa.table({"k": ["main"], "v": [1], "m": ["text"]}))
    dev.append(pa.table({"k": ["dev"], "v": [2], "d": [3], "s": [{"x": 4}]}))
    table.branches.merge("dev")
    assert table.schema.names == ["k", "v", "m", "d", "s"]
    found = {
        row["k"]: row for row in table.scan(filter="k = 'dev' OR k = 'main'").to_arrow().to_pylist()
    }
    assert found["dev"] == {"k": "dev", "v": 2, "m": None, "d": 3, "s": {"x": 4}}
    assert found["main"] == {"k": "main", "v": 1, "m": "text", "d": None, "s": None}
    assert table.scan(filter="d = 3").count() == 1
    dev.append(pa.table({"k": ["again"], "v": [2], "d": [3], "s": [{"x": 4}]}))
    with pytest.raises(CommitConflict, match="repeat the changes of the branch on a new one"):
        table.branches.merge("dev")


@pytest.mark.parametrize(
    ("mine", "theirs", "match"),
    [
        (lambda t: t.add_columns({"c": pa.int64()}), lambda t: t.add_columns({"c": pa.string()}),
         "column 'c'"),
        (lambda t: t.rename_column("v", "w"), lambda t: t.rename_column("v", "x"), "column 'v'"),
        (lambda t: t.rename_column("v", "w"), lambda t: t.drop_columns(["v"]), "column 'v'"),
        (lambda t: t.drop_columns(["v"]), lambda t: t.alter_column("v", comment="c"), "column 'v'"),
        (lambda t: t.set_properties({"p.p": "1"}), lambda t: t.set_properties({"p.p": "2"}),
         "property 'p.p'"),
        (lambda t: t.rename_column("v", "w"), lambda t: t.add_columns({"w": pa.int64()}),
         "column 'w'"),
    ],
)  # fmt: skip
def test_the_same_part_of_a_schema_changed_on_both_sides(
    tmp_path: Path, mine: Any, theirs: Any, match: str
) -> None:
    table, _ = two_schemas(tmp_path / "t", mine, theirs)
    with pytest.raises(CommitConflict, match=match):
        table.branches.merge("dev")


@pytest.mark.parametrize(
    ("mine", "theirs", "names"),
    [
        (lambda t: t.rename_column("v", "w"), lambda t: t.rename_column("k", "key"), ["key", "w"]),
        (lambda t: t.rename_column("v", "w"), lambda t: t.rename_column("v", "w"), ["k", "w"]),
        (lambda t: t.drop_columns(["v"]), lambda t: t.alter_column("k", comment="c"), ["k"]),
        (lambda t: t.set_properties({"p.p": "1"}), lambda t: t.set_properties({"p.q": "2"}),
         ["k", "v"]),
        (lambda t: t.add_columns({"c": pa.int64()}), lambda t: t.drop_columns(["v"]), ["k", "c"]),
    ],
)  # fmt: skip
def test_different_parts_of_a_schema_are_merged(
    tmp_path: Path, mine: Any, theirs: Any, names: list[str]
) -> None:
    table, _ = two_schemas(tmp_path / "t", mine, theirs)
    table.branches.merge("dev")
    assert list(table.schema.names) == names
    assert table.scan().count() == 8
    if "p" in table.properties:
        assert table.properties["q"] == "2"
    assert table.verify(data=True).ok


def test_rows_of_a_branch_must_fit_the_schema_of_main(tmp_path: Path) -> None:
    """A column that main dropped and added anew is another one; and one that is NOT NULL now."""
    table, _ = two_schemas(
        tmp_path / "t",
        lambda t: t.append(pa.table({"k": ["x"], "v": pa.array([None], pa.int64())})),
        lambda t: t.alter_column("v", nullable=False),
    )
    with pytest.raises(CommitConflict, match="NOT NULL"):
        table.branches.merge("dev")
    table, _ = two_schemas(
        tmp_path / "u",
        lambda t: t.alter_column("v", nullable=False),
        lambda t: t.append(pa.table({"k": ["x"], "v": pa.array([None], pa.int64())})),
    )
    with pytest.raises(CommitConflict, match="NOT NULL"):
        table.branches.merge("dev")


KEYED: dict[str, Callable[[Table, int], object]] = {
    "upsert": lambda table, n: table.upsert(pa.table({"id": [n], "v": [n]})),
    "delete_keys": lambda table, n: table.delete_keys([n]),
    "update": lambda table, n: table.update(f"id = {n}", {"v": 100 + n}),
    "delete": lambda table, n: table.delete(f"id = {n}"),
    "compact": lambda table, n: table.compact(full=True, threads=1),
    "overwrite": lambda table, n: table.overwrite(pa.table({"id": [n], "v": [n]})),
}


@pytest.fixture(scope="module")
def keyed_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A primary-key table with a run at the top and one at level 0, and the branch `dev`."""
    path = tmp_path_factory.mktemp("keyed") / "t"
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    table = Table.create(
        path, schema, primary_key="id", properties={"bucket": "1"}, durability="fast"
    )
    table.upsert(pa.table({"id": range(1, 6), "v": range(1, 6)}))
    table.compact(full=True, threads=1)
    table.upsert(pa.table({"id": [1], "v": [11]}))
    table.branches.create("dev")
    return path


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        (mine, theirs, same)
        for mine in KEYED
        for theirs in KEYED
        for same in (True, False)
        if same or mine in ("update", "delete")
    ],
)
def test_every_pair_of_operations_on_keys(
    tmp_path: Path, keyed_template: Path, mine: str, theirs: str, same: bool
) -> None:
    """Blind writes come on top; what was decided on rows of a key must be alone in changing it."""
    shutil.copytree(keyed_template, tmp_path / "t")
    table = Table.open(tmp_path / "t", durability="fast")
    dev = Table.open(table.location, branch="dev", durability="fast")
    number = 2 if same else 3
    KEYED[theirs](table, 2)
    KEYED[mine](dev, number)
    reads = mine in ("update", "delete")
    writes = theirs != "compact"
    clash = (reads and writes and (same or theirs == "overwrite")) or mine == "overwrite"
    if clash:
        with pytest.raises(CommitConflict):
            table.branches.merge("dev")
        return
    shutil.copytree(keyed_template, tmp_path / "twin")
    twin = Table.open(tmp_path / "twin", durability="fast")
    KEYED[theirs](twin, 2)
    KEYED[mine](twin, number)
    table.branches.merge("dev")
    assert table.verify(data=True).ok

    def found(each: Table) -> list[dict[str, int]]:
        return sorted(each.scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    assert found(table) == found(twin)
    table.compact(full=True, threads=1)
    assert found(table) == found(twin)


def test_keys_conflict_where_they_are_the_same_not_where_ranges_overlap(
    tmp_path: Path, keyed_template: Path
) -> None:
    """Each side writes every second key; then both the same one, and the message counts it."""
    shutil.copytree(keyed_template, tmp_path / "t")
    table = Table.open(tmp_path / "t", durability="fast")
    dev = Table.open(table.location, branch="dev", durability="fast")
    table.upsert(pa.table({"id": [1, 3, 5], "v": [7, 7, 7]}))
    dev.update("id = 2 OR id = 4", {"v": 8})
    table.branches.merge("dev")
    found = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {1: 7, 2: 8, 3: 7, 4: 8, 5: 7}
    table.upsert(pa.table({"id": [1, 4], "v": [9, 9]}))
    dev.delete("id >= 4")
    with pytest.raises(CommitConflict, match="wrote 1 rows of keys that the branch has changed"):
        table.branches.merge("dev")
