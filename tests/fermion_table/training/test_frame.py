"""Joins at points in time: no later event and no late arrival is seen."""

import gc
import os
import pickle
import time
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Scan, Table
from fermion_table.training import FeatureSource, partitions, training_frame
from fermion_table.training import frame as frame_module

DAY = datetime(2026, 1, 1)


def at(*days):
    return pa.array([None if day is None else DAY + timedelta(days=day) for day in days])


@pytest.fixture
def users(tmp_path):
    return Table.create(
        tmp_path / "users",
        {
            "user": ["a", "a", "b", None, "a"],
            "updated_at": at(0, 10, 5, 1, 20),
            "f_1": [1.0, 2.0, 3.0, 4.0, 5.0],
            "f_2": [1, 2, 3, 4, None],
            "note": ["x"] * 5,
        },
    )


@pytest.fixture
def labels(tmp_path):
    return Table.create(
        tmp_path / "labels",
        {
            "user": ["a", "b", "a", "c", "a", None, "a"],
            "at": at(10, 4, 9, 9, 100, 9, None),
            "label": [0, 1, 0, 1, 0, 1, 0],
        },
    )


def test_each_label_has_the_newest_features_of_its_time(users, labels):
    frame = training_frame(
        labels, [FeatureSource(users, keys=["user"], time="updated_at", columns=["f_*"])]
    )
    rows = frame.to_arrow()
    assert rows.column_names == ["user", "at", "label", "f_1", "f_2"]
    assert rows["f_1"].to_pylist() == [2.0, None, 1.0, None, 5.0, None, None]
    assert rows["f_2"].to_pylist() == [2, None, 1, None, None, None, None]
    assert rows["label"].to_pylist() == [0, 1, 0, 1, 0, 1, 0]
    assert pa.table(frame).equals(rows)


@pytest.mark.parametrize("within", [timedelta(days=9), "9d"])
def test_features_that_are_too_old_do_not_count(users, labels, within):
    source = FeatureSource(users, ["user"], "updated_at", columns=["f_1"], within=within)
    rows = training_frame(labels.scan(filter="user = 'a'"), [source]).to_arrow()
    assert rows["f_1"].to_pylist() == [2.0, 1.0, None, None]


def test_the_last_of_several_rows_of_one_moment_counts(tmp_path, labels):
    source = Table.create(tmp_path / "s", {"user": ["a"] * 3, "at": at(1, 1, 1), "x": [1, 2, 3]})
    rows = training_frame(labels, [FeatureSource(source, ["user"], "at")]).to_arrow()
    assert rows["x"].to_pylist() == [3, None, 3, None, 3, None, None]


def test_rows_that_arrived_late_are_not_seen(users, labels):
    known = datetime.fromtimestamp(users.snapshot.time_ms / 1_000, UTC)
    time.sleep(0.005)  # the next commit has another moment
    users.append({"user": ["a"], "updated_at": at(9), "f_1": [99.0]})
    source = FeatureSource(users, ["user"], "updated_at", columns=["f_1"])
    then = training_frame(labels, [source], as_known_at=known).to_arrow()
    now = training_frame(labels, [source]).to_arrow()
    assert then["f_1"].to_pylist()[2] == 1.0
    assert now["f_1"].to_pylist()[2] == 99.0


def test_sources_with_different_keys(tmp_path, users, labels):
    prices = Table.create(tmp_path / "p", {"label": [0, 1], "at": at(0, 5), "price": [0.5, 1.5]})
    both = Table.create(tmp_path / "b", {"user": ["a"], "label": [0], "at": at(1), "both": ["yes"]})
    rows = training_frame(
        labels,
        [
            FeatureSource(prices, ["label"], "at"),
            FeatureSource(users, ["user"], "updated_at", columns=["note"]),
            FeatureSource(both, ["user", "label"], "at"),
        ],
    ).to_arrow()
    assert rows.column_names == ["user", "at", "label", "price", "note", "both"]
    assert rows["price"].to_pylist() == [0.5, None, 0.5, 1.5, 0.5, 1.5, None]
    assert rows["both"].to_pylist() == ["yes", None, "yes", None, "yes", None, None]


@pytest.mark.parametrize(
    ("times", "earlier"),
    [
        ([date(2026, 1, 1), date(2026, 1, 5)], date(2026, 1, 4)),
        ([1, 5], 4),
        (pa.array([1, 5], pa.int16()), pa.scalar(4, pa.int16())),
        (
            pa.array([-(2**62), 2**62], pa.timestamp("ns", tz="UTC")),
            pa.scalar(3, pa.timestamp("ns", tz="UTC")),
        ),
        (pa.array([-(2**63), 2**63 - 1]), 0),
    ],
    ids=["dates", "integers", "short", "zoned", "extreme"],
)
def test_times_of_every_kind(tmp_path, times, earlier):
    times = times if isinstance(times, pa.Array) else pa.array(times)
    source = Table.create(tmp_path / "s", {"k": [1, 1], "t": times, "x": [1, 2]})
    spine = pa.table(
        {"k": [1, 1, 1], "t": pa.concat_arrays([times, pa.array([earlier], times.type)])}
    )
    labels = Table.create(tmp_path / "l", spine)
    frame = training_frame(labels, [FeatureSource(source, ["k"], "t")], time="t")
    assert frame.to_arrow()["x"].to_pylist() == [1, 2, 1]


@pytest.mark.parametrize("size", [partitions.PARTITION_BYTES, 50], ids=["at once", "shared out"])
@pytest.mark.parametrize(
    "keys",
    [
        pa.array([-0.0, float("nan"), 1.5]),
        pa.array([-0.0, float("nan"), 1.5], pa.float32()),
        pa.array([-0.0, float("nan"), 1.5], pa.float16()),
        pa.array([True, False, None]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
    ],
    ids=lambda keys: str(keys.type),
)
def test_bug_keys_that_are_equal_did_not_match(tmp_path, monkeypatch, keys, size):
    monkeypatch.setattr(partitions, "PARTITION_BYTES", size)
    source = Table.create(tmp_path / "source", {"key": keys, "at": at(0, 1, 2), "f": [1, 2, 3]})
    equal = keys if not pa.types.is_floating(keys.type) else pa.array([0.0, *keys[1:].to_pylist()])
    rows = {"key": equal.cast(keys.type), "at": at(5, 5, 5), "label": [1, 2, 3]}
    labels = Table.create(tmp_path / "labels", rows)
    frame = training_frame(labels, [FeatureSource(source, keys=["key"], time="at")])
    found = frame.to_arrow().sort_by("label")["f"].to_pylist()
    wanted = {"bool": [1, 2, None], "dictionary": [3, 2, 3]}.get(str(keys.type).partition("<")[0])
    assert found == (wanted or [1, 2, 3])


def test_keys_of_nested_types_are_refused(tmp_path):
    rows = {"key": [{"a": 1}], "at": at(0), "f": [1]}
    table = Table.create(tmp_path / "source", rows)
    with pytest.raises(InvalidArgumentError, match=r"'key' is struct.*; keys are numbers"):
        training_frame(table, [FeatureSource(table, keys=["key"], time="at")])


def test_a_frame_is_written_and_trained_from(tmp_path, users, labels):
    frame = training_frame(labels, [FeatureSource(users, ["user"], "updated_at", ["f_1"])])
    table = frame.write_table(tmp_path / "frame")
    assert table.scan().to_arrow().equals(frame.to_arrow())
    reader = frame.training(batch_rows=2, fill={"f_1": 0.0}, mask=True)
    epoch = reader.epoch(0)
    first = next(epoch)["label"].tolist()
    other = frame.training(batch_rows=2, fill={"f_1": 0.0}, mask=True)
    other.load_state_dict(reader.state_dict())  # another file of the same rows
    assert (
        sorted(first + [x for batch in other for x in batch["label"].tolist()]) == [0] * 4 + [1] * 3
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"keys": ["nobody"]}, ColumnNotFoundError, "nobody"),
        ({"keys": []}, InvalidArgumentError, "keys"),
        ({"keys": "user"}, TypeError, "keys"),
        ({"time": "note"}, InvalidArgumentError, "'note' is string"),
        ({"time": "f_2"}, InvalidArgumentError, "'f_2' is int64, but 'at' of the labels"),
        ({"columns": ["g_*"]}, ColumnNotFoundError, "g_"),
        ({"columns": ["user"]}, InvalidArgumentError, "another column 'user'"),
        ({"within": "soon"}, InvalidArgumentError, "within"),
        ({"within": 5}, TypeError, "within"),
        ({"within": timedelta(days=-1)}, InvalidArgumentError, "within"),
        ({"data": 5}, TypeError, "data"),
    ],
    ids=lambda value: "",
)
def test_what_does_not_fit_is_said_at_once(users, labels, change, error, message):
    arguments = {"data": users, "keys": ["user"], "time": "updated_at", **change}
    with pytest.raises(error, match=message):
        training_frame(labels, [FeatureSource(**arguments)])


def test_patterns_of_features_leave_out_keys_and_time(users, labels):
    """A name is itself, whatever signs it has."""
    users.append({"user": ["a"], "updated_at": at(0), "f_[1]*": [7]}, schema_mode="merge")
    for columns, names in (
        (["*"], ["f_1", "f_2", "note", "f_[1]*"]),
        (["*o*", "f_[1]*"], ["note", "f_[1]*"]),
        (["f_2", "f_*"], ["f_2", "f_1", "f_[1]*"]),
    ):
        source = FeatureSource(users, keys=["user"], time="updated_at", columns=columns)
        assert list(training_frame(labels, [source]).sources[0].features) == names
    with pytest.raises(ColumnNotFoundError, match="u"):
        training_frame(labels, [FeatureSource(users, ["user"], "updated_at", ["u*"])])


def test_bug_a_state_went_on_with_a_join_of_other_rows(users, labels):
    """Frames of the same snapshots, with as many rows and the same columns."""

    def reader(users=users, within=None, **rows):
        scan = labels.scan(**rows or {"filter": "label = 0"})
        source = FeatureSource(users, ["user"], "updated_at", within=within)
        return training_frame(scan, [source]).training(batch_rows=2, mask=True)

    state = reader().state_dict()
    reader().load_state_dict(state)
    for other in (
        reader(within="1d"),
        reader(users=users.scan(filter="f_1 > 1")),
        reader(filter="user = 'a'"),
        reader(limit=4),
    ):
        with pytest.raises(InvalidArgumentError, match="state of another plan: join was"):
            other.load_state_dict(state)


@pytest.mark.parametrize("size", [partitions.PARTITION_BYTES, 40])
def test_bug_features_of_types_that_arrow_takes_no_rows_of(tmp_path, monkeypatch, size):
    """Views, run ends, and dictionaries that differ; also where a label has no row."""
    monkeypatch.setattr(partitions, "PARTITION_BYTES", size)
    rows = pa.table(
        {
            "user": ["a", "b"],
            "at": at(1, 2),
            "text": pa.array(["short", "longer than twelve bytes"], pa.string_view()),
            "items": pa.array([[1], None], pa.list_view(pa.int64())),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1.5])),
            "code": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    users = Table.create(tmp_path / "u", rows)
    codes = pa.array(["z", "x"]).dictionary_encode()
    users.append(rows.set_column(1, "at", at(3, 4)).set_column(5, "code", codes))
    clicks = Table.create(tmp_path / "c", {"user": ["a", "nobody", "b"], "at": at(2, 9, 9)})
    frame = training_frame(clicks, [FeatureSource(users, ["user"], "at")], time="at")
    found = {row.pop("user"): row for row in frame.to_arrow().drop_columns("at").to_pylist()}
    names = ["text", "items", "runs", "code"]
    assert found == {
        "a": dict(zip(names, ["short", [1], 1.5, "x"], strict=True)),
        "b": dict(zip(names, ["longer than twelve bytes", None, 1.5, "x"], strict=True)),
        "nobody": dict.fromkeys(names),
    }


def test_arguments_that_contradict_each_other(tmp_path, users, labels):
    source = FeatureSource(users, ["user"], "updated_at")
    scan = FeatureSource(users.scan(), ["user"], "updated_at")
    with pytest.raises(InvalidArgumentError, match="has its snapshot already"):
        training_frame(labels, [scan], as_known_at=datetime.now())
    with pytest.raises(TypeError, match="as_known_at=5: expected a datetime"):
        training_frame(labels, [source], as_known_at=5)
    with pytest.raises(TypeError, match="sources"):
        training_frame(labels, source)
    with pytest.raises(TypeError, match="labels"):
        training_frame({"user": [1]}, [source])
    with pytest.raises(InvalidArgumentError, match="timestamps and dates: none"):
        training_frame(labels.scan(columns=["user", "label"]), [source])
    with pytest.raises(ColumnNotFoundError, match="when"):
        training_frame(labels, [source], time="when")


KEYS = st.sampled_from([None, "a", "b", "c"])
TIMES = st.one_of(st.none(), st.integers(0, 12))
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 2), TIMES), max_size=30)


def expected(labels, commits, known, keys, within):
    """By brute force: for each label look at each row."""
    found = []
    for label in labels:
        best = None
        for number, rows in enumerate(commits[:known]):
            for place, row in enumerate(rows):
                fits = all(row[key] is not None and row[key] == label[key] for key in keys)
                if not fits or row[2] is None or label[2] is None or row[2] > label[2]:
                    continue
                if within is not None and label[2] - row[2] > within:
                    continue
                if best is None or row[2] >= best[0]:
                    best = row[2], f"{number}.{place}"
        found.append(best and best[1])
    return found


@given(
    labels=ROWS,
    commits=st.lists(ROWS, min_size=1, max_size=4),
    known=st.integers(1, 4),
    keys=st.sampled_from([(0,), (1,), (0, 1)]),
    within=st.one_of(st.none(), st.integers(0, 6)),
    size=st.sampled_from([partitions.PARTITION_BYTES, 200]),
)
def test_random_histories_with_late_arrivals(
    tmp_path_factory, labels, commits, known, keys, within, size
):
    """Against a model, in one partition and in many: no difference, and so no leak."""
    directory = tmp_path_factory.mktemp("join")
    schema = pa.schema({"k": pa.string(), "n": pa.int64(), "t": pa.timestamp("us")})

    def columns(rows):
        return {
            "k": [row[0] for row in rows],
            "n": [row[1] for row in rows],
            "t": at(*(row[2] for row in rows)).cast(pa.timestamp("us")),
        }

    fast = {"durability": "fast"}
    source = Table.create(directory / "s", schema.append(pa.field("x", pa.string())), **fast)
    moments = []
    for number, rows in enumerate(commits):
        names = pa.array([f"{number}.{place}" for place in range(len(rows))], pa.string())
        source.append({**columns(rows), "x": names})
        moments.append(source.snapshot.id)
    known = min(known, len(commits))
    spine = Table.create(directory / "l", schema.append(pa.field("number", pa.int64())), **fast)
    spine.append({**columns(labels), "number": pa.array(range(len(labels)), pa.int64())})
    frame = training_frame(
        spine,
        [
            FeatureSource(
                source.scan(snapshot_id=moments[known - 1]),
                [("k", "n")[key] for key in keys],
                "t",
                columns=["x"],
                within=None if within is None else timedelta(days=within),
            )
        ],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "PARTITION_BYTES", size)
        rows = frame.to_arrow().sort_by("number")
    assert rows["x"].to_pylist() == expected(labels, commits, known, keys, within)


def test_temporary_files_are_removed(tmp_path, users, labels, monkeypatch):
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 50)
    monkeypatch.setattr(frame_module.tempfile, "tempdir", str(tmp_path))
    before = sorted(os.listdir(tmp_path))
    frame = training_frame(labels, [FeatureSource(users, ["user"], "updated_at", ["f_1"])])
    list(frame.to_batches())
    batches = frame.to_batches()
    next(batches)
    batches.close()  # left early
    reader = frame.training(batch_rows=10, mask=True)
    list(reader)
    del reader
    assert sorted(os.listdir(tmp_path)) == before


def test_bug_a_forked_process_that_ended_removed_the_rows_of_its_parent(users, labels):
    source = FeatureSource(users, ["user"], "updated_at", ["f_1"])
    reader = training_frame(labels, [source]).training(batch_rows=10, mask=True)
    child = os.fork()
    if not child:
        try:
            del reader
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert [len(batch) for batch in pickle.loads(pickle.dumps(reader))] == [7]  # opens the file


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_bug_features_of_any_age_that_an_age_allows(tmp_path, unit):
    """An age of more ticks than 64 bits hold was an OverflowError."""
    times = pa.array([-(2**63), 2**63 - 1], pa.timestamp(unit))
    source = Table.create(tmp_path / "s", {"k": [1], "t": times[:1], "x": [1]})
    labels = Table.create(tmp_path / "l", {"k": [1], "t": times[1:]})
    frame = training_frame(labels, [FeatureSource(source, ["k"], "t", within=timedelta.max)])
    fits = unit != "s" and unit != "ms"  # 2**64 of these are longer
    assert frame.to_arrow()["x"].to_pylist() == [1 if fits else None]


def test_memory_is_bounded(tmp_path, monkeypatch):
    """What a join holds at once is a partition, not the tables."""
    rows = 20_000
    source = Table.create(
        tmp_path / "s", {"k": np.arange(rows), "t": np.zeros(rows, np.int64), "x": np.arange(rows)}
    )
    labels = Table.create(tmp_path / "l", {"k": np.arange(rows), "t": np.ones(rows, np.int64)})
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 20_000)
    frame = training_frame(labels, [FeatureSource(source, ["k"], "t", ["x"])], time="t")
    sizes = [batch.num_rows for batch in frame.to_batches()]
    assert sum(sizes) == rows
    assert max(sizes) < rows / 20


def test_more_features_do_not_ask_for_the_schema_of_a_scan_more_often(tmp_path, monkeypatch):
    """It is made from all columns each time: a join of 1,000 features made it 3,000 times."""
    names = [f"f_{number}" for number in range(30)]
    source = Table.create(
        tmp_path / "s", {"k": [1, 2], "t": [0, 0], **{name: [1.0, 2.0] for name in names}}
    )
    labels = Table.create(tmp_path / "l", {"k": [1, 2], "t": [1, 1]})
    calls = []
    made = Scan.schema.fget
    monkeypatch.setattr(Scan, "schema", property(lambda scan: calls.append(scan) or made(scan)))
    counts = []
    for columns in (names[:1], names):
        calls.clear()
        frame = training_frame(labels, [FeatureSource(source, ["k"], "t", columns)], time="t")
        assert frame.to_arrow().num_columns == 2 + len(columns)
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_batches_of_many_features_have_fewer_rows(tmp_path, monkeypatch):
    rows = np.arange(1_000)
    columns = {f"f_{number}": rows for number in range(30)}
    source = Table.create(tmp_path / "s", {"k": rows, "t": rows, **columns})
    labels = Table.create(tmp_path / "l", {"k": rows, "t": rows})
    frame = training_frame(labels, [FeatureSource(source, ["k"], "t")], time="t")
    assert len(list(frame.to_batches())) == 1
    monkeypatch.setattr(frame_module, "BATCH_BYTES", 30_000)
    batches = list(frame.to_batches())
    assert pa.Table.from_batches(batches).equals(frame.to_arrow())
    assert {batch.num_rows for batch in batches} == {30_000 // (32 * 8), 1_000 % (30_000 // 256)}
