"""Readers for training: every row once an epoch, the same steps for any number of ranks."""

import contextlib
import json
import multiprocessing
import pickle
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import ChecksumError, ColumnNotFoundError, InvalidArgumentError
from fermion.training.reader import TrainingStats

ROWS = 5_000


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("training") / "rows.fermion"
    x = np.arange(ROWS, dtype=np.int64)
    rows = pa.table({"x": x, "half": x / 2, "name": [f"row {value}" for value in x]})
    fermion.write_table(rows, path, options=fermion.WriteOptions(stripe_rows=900))
    with fermion.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def batched(tmp_path_factory):
    """A file of 200 batches of 1 to 40 rows; every tenth id comes twice."""
    path = tmp_path_factory.mktemp("training") / "batches.fermion"
    lengths = np.random.default_rng(0).integers(1, 40, 200)
    with fermion.Writer(path, pa.schema({"id": pa.int64()})) as writer:
        for number, rows in enumerate(lengths.tolist()):
            batch_id = number - 1 if number % 10 == 9 else number
            writer.append_batch(batch_id, {"id": np.full(rows, batch_id)})
    with fermion.open(path) as opened:
        yield opened


def steps_of(file, *, world_size=1, step_rows=120, epoch=0, columns=("x",), **options):
    """Each global step: the rows of all ranks, rank after rank."""
    ranks = [
        list(
            file.training(
                columns,
                batch_rows=step_rows // world_size,
                rank=rank,
                world_size=world_size,
                **options,
            ).epoch(epoch)
        )
        for rank in range(world_size)
    ]
    return [
        np.concatenate([batch[columns[0]] for batch in step]) for step in zip(*ranks, strict=True)
    ]


@pytest.mark.parametrize("shuffle", ["rows", "blocks", None])
@pytest.mark.parametrize("world_size", [2, 3, 8, 60])
def test_a_global_step_is_the_same_for_every_number_of_ranks(file, shuffle, world_size):
    options = {"shuffle": shuffle, "lanes": 7, "window_rows": 1_000, "seed": 5}
    alone = steps_of(file, **options)
    shared = steps_of(file, world_size=world_size, **options)
    assert all(np.array_equal(a, b) for a, b in zip(alone, shared, strict=True))
    assert np.array_equal(np.sort(np.concatenate(alone)), np.arange(ROWS))


def test_epochs_and_seeds_have_orders_of_their_own(file):
    orders = [
        np.concatenate(steps_of(file, seed=seed, epoch=epoch)).tolist()
        for seed in (1, 2)
        for epoch in (0, 1)
    ]
    assert len(set(map(tuple, orders))) == 4
    assert orders[0] == np.concatenate(steps_of(file, seed=1)).tolist()


def test_the_number_of_threads_changes_nothing(file):
    one, four = (steps_of(file, threads=threads) for threads in (1, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, four, strict=True))


def test_steps_that_are_not_full_are_short_or_dropped_or_filled(file):
    options = {"step_rows": 1_536, "world_size": 4}
    short = steps_of(file, last="short", **options)
    assert [len(step) for step in short] == [1_536] * 3 + [ROWS - 3 * 1_536]
    dropped = steps_of(file, last="drop", **options)
    assert [len(step) for step in dropped] == [1_536] * 3
    repeated = steps_of(file, last="repeat", **options)
    assert [len(step) for step in repeated] == [1_536] * 4
    first = steps_of(file, step_rows=4 * 1_536 - ROWS)[0]
    assert sorted(repeated[3]) == sorted(np.concatenate([short[3], first]))
    for last, steps in (("short", short), ("drop", dropped), ("repeat", repeated)):
        assert len(file.training(batch_rows=384, rank=1, world_size=4, last=last)) == len(steps)


def test_a_step_larger_than_the_epoch_repeats_rows_or_is_refused(file):
    repeated = steps_of(file, step_rows=2 * ROWS + 10, last="repeat")
    assert np.array_equal(np.bincount(repeated[0]) >= 2, np.ones(ROWS, bool))
    with pytest.raises(InvalidArgumentError, match="more than the 5000 rows"):
        file.training(batch_rows=ROWS + 1, last="drop")
    ranks = [file.training(batch_rows=1, rank=rank, world_size=9_000) for rank in (0, 8_999)]
    assert [sum(len(batch) for batch in reader) for reader in ranks] == [0, 1]


@given(
    stopped=st.integers(0, 42),
    ranks=st.sampled_from([(1, 1), (1, 4), (4, 1), (2, 3)]),
    shuffle=st.sampled_from(["rows", "blocks", None]),
)
def test_a_resumed_epoch_gives_exactly_the_rest(file, stopped, ranks, shuffle):
    options = {"lanes": 5, "window_rows": 700, "shuffle": shuffle}
    before, after = ranks
    readers = [
        file.training(["x"], batch_rows=120 // before, rank=rank, world_size=before, **options)
        for rank in range(before)
    ]
    epochs = [reader.epoch(2) for reader in readers]
    seen = [next(epoch)["x"] for _ in range(stopped) for epoch in epochs if stopped < 42]
    states = [json.loads(json.dumps(reader.state_dict())) for reader in readers]
    if not seen:
        return
    assert all(state == states[0] for state in states)
    assert len(json.dumps(states[0])) < 2_000
    rest = []
    for rank in range(after):
        reader = file.training(
            ["x"], batch_rows=240 // after, rank=rank, world_size=after, **options
        )
        reader.load_state_dict(states[0])
        rest += [batch["x"] for batch in reader]
    assert np.array_equal(np.sort(np.concatenate([*seen, *rest])), np.arange(ROWS))


def test_a_pickled_reader_goes_on_where_it_stood(file):
    reader = file.training(["x"], batch_rows=100)
    epoch = reader.epoch(3)
    for _ in range(7):
        next(epoch)
    copy = pickle.loads(pickle.dumps(reader))
    assert [batch["x"].tolist() for batch in copy] == [batch["x"].tolist() for batch in epoch]
    assert (copy.state_dict()["epoch"], copy.state_dict()["place"]) == (4, 0)


def test_a_state_of_other_rows_or_another_order_is_refused(file, batched):
    reader = file.training(["x"], batch_rows=100, seed=3)
    state = reader.state_dict()
    for other, differing in (
        (file.training(["x"], batch_rows=100, seed=4), "seed was 3 and is 4"),
        (file.training(["x"], batch_rows=100, seed=2**64 + 3), "seed was 3 and is"),
        (file.training(["x"], batch_rows=100, seed=3, lanes=8), "lanes was 64 and is 8"),
        (file.training(["half"], batch_rows=100, seed=3), "columns was"),
        (file.training(["x"], filter="x > 5", batch_rows=100, seed=3), "filter was None"),
        (batched.training(batch_rows=100, seed=3), "file was"),
    ):
        with pytest.raises(InvalidArgumentError, match=differing):
            other.load_state_dict(state)
    for broken in (5, {}, {**state, "plan": 3}, {**state, "place": "x"}):
        with pytest.raises(TypeError):
            reader.load_state_dict(broken)
    with pytest.raises(InvalidArgumentError, match="version 99"):
        reader.load_state_dict({**state, "version": 99})
    with pytest.raises(TypeError, match="version"):
        reader.load_state_dict({**state, "version": True})
    with pytest.raises(InvalidArgumentError, match="place"):
        reader.load_state_dict({**state, "place": -1})
    next(reader.epoch(0))
    state = reader.state_dict()
    for edited in ({"place": ROWS + 1}, {"step": 101}, {"step": 0}, {"place": 0}):
        with pytest.raises(InvalidArgumentError, match=r"state\['(place|step)'\]=.*expected"):
            reader.load_state_dict({**state, **edited})


def test_rows_that_a_filter_leaves_out_change_no_other_step(file):
    plain = steps_of(file, lanes=5)
    kept = steps_of(file, lanes=5, filter="x % 3 = 0", world_size=3)
    assert all(np.array_equal(a[a % 3 == 0], b) for a, b in zip(plain, kept, strict=True))
    reader = file.training(filter="x % 3 = 0", batch_rows=100)
    assert reader.count() == sum(len(batch) for batch in reader) == len(range(0, ROWS, 3))


def test_a_filter_that_selects_nothing_gives_empty_batches(file):
    batches = list(file.training(["x", "name"], filter="x < 0", batch_rows=1_000))
    assert [len(batch) for batch in batches] == [0] * 5
    assert batches[0].to_arrow().num_rows == 0


def test_whole_batches_are_never_split(batched):
    whole = batched.read(["id"])["id"].to_numpy()
    for world_size in (1, 2, 5):
        readers = [
            batched.training(
                shuffle="batches", batch_rows=240 // world_size, rank=rank, world_size=world_size
            )
            for rank in range(world_size)
        ]
        by_rank = [[batch["id"] for batch in reader] for reader in readers]
        assert len({len(batches) for batches in by_rank}) == 1 == len({len(r) for r in readers})
        steps = [np.sort(np.concatenate(step)).tolist() for step in zip(*by_rank, strict=True)]
        if world_size == 1:
            alone = steps
        assert steps == alone
        for batch in (batch for batches in by_rank for batch in batches):
            ids, counts = np.unique(batch, return_counts=True)
            assert np.array_equal(counts, [np.count_nonzero(whole == number) for number in ids])
    assert sorted(np.concatenate(alone)) == sorted(whole)


def test_whole_batches_are_resumed(batched):
    reader = batched.training(shuffle="batches", batch_rows=100)
    epoch = reader.epoch(0)
    seen = [next(epoch)["id"] for _ in range(5)]
    other = batched.training(shuffle="batches", batch_rows=70)
    other.load_state_dict(reader.state_dict())
    rows = np.concatenate([*seen, *(batch["id"] for batch in other)])
    ids = batched.read(["id"])["id"].to_pylist()
    assert sorted(rows) == sorted(ids)
    with pytest.raises(InvalidArgumentError, match=rf"place.*expected 0 to {len(set(ids))}$"):
        other.load_state_dict({**reader.state_dict(), "place": len(set(ids)) + 1})


def test_whole_batches_need_batches(file):
    with pytest.raises(InvalidArgumentError, match="batch"):
        file.training(shuffle="batches", batch_rows=10)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_rows": 0}, InvalidArgumentError, "batch_rows"),
        ({"batch_rows": 1.5}, TypeError, "batch_rows"),
        ({"seed": -1}, InvalidArgumentError, "seed"),
        ({"shuffle": "row"}, InvalidArgumentError, "shuffle='row'"),
        ({"last": None}, InvalidArgumentError, "last=None"),
        ({"lanes": 0}, InvalidArgumentError, "lanes"),
        ({"window_rows": "1M"}, TypeError, "window_rows"),
        ({"rank": 2, "world_size": 2}, InvalidArgumentError, "rank=2: expected 0 to 1"),
        ({"rank": 1}, InvalidArgumentError, "rank and world_size"),
        ({"threads": 0}, InvalidArgumentError, "threads"),
        ({"mask": 1}, TypeError, "mask"),
        ({"fill": [0]}, TypeError, "fill"),
        ({"fill": {"y": 0}}, ColumnNotFoundError, "'y'"),
        ({"fill": {"name": ""}}, InvalidArgumentError, "Arrow array"),
        ({"fill": {"x": "a"}}, InvalidArgumentError, "int64"),
        ({"fill": {"x": None}}, InvalidArgumentError, "int64"),
        ({"fill": {"x": 1.5}}, InvalidArgumentError, "int64"),
        ({"fill": {"x": 10**30}}, InvalidArgumentError, "int64"),
        ({"seed": 2**128}, InvalidArgumentError, "seed"),
        ({"window_rows": 2**80}, InvalidArgumentError, "window_rows"),
        ({"shuffle": "batches", "last": "repeat"}, InvalidArgumentError, "repeat"),
    ],
    ids=lambda value: "",
)
def test_what_is_not_possible_is_said_at_once(file, options, error, message):
    with pytest.raises(error, match=message):
        file.training(**{"batch_rows": 10, **options})


def test_ranks_come_from_the_environment(file, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    reader = file.training(batch_rows=10)
    assert (reader.rank, reader.world_size) == (2, 3)
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(InvalidArgumentError, match="RANK='two'"):
        file.training(batch_rows=10)
    for name in ("WORLD_SIZE", "RANK"):  # one alone: each of several processes would give all rows
        monkeypatch.setenv("RANK", "2")
        monkeypatch.setenv("WORLD_SIZE", "3")
        monkeypatch.delenv(name)
        with pytest.raises(InvalidArgumentError, match=f"{name}=None"):
            file.training(batch_rows=10)
        assert file.training(batch_rows=10, rank=0, world_size=1).world_size == 1


def test_an_epoch_that_is_left_early_ends_its_threads(file):
    reader = file.training(["x"], batch_rows=10)
    for _ in range(3):
        epoch = reader.epoch(0)
        next(epoch)
        epoch.close()
    assert reader.state_dict()["step"] == 3  # it goes on from there


def test_a_forked_process_goes_on(file):
    reader = file.training(["x"], batch_rows=500)
    expected = [batch["x"].tolist() for batch in reader.epoch(1)]

    def child(queue):
        queue.put([batch["x"].tolist() for batch in reader.epoch(1)])

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == expected
    process.join(60)


def test_statistics_count_rows_and_bytes(file):
    reader = file.training(["x"], batch_rows=1_000)
    rows = sum(len(batch) for batch in reader)
    stats = reader.stats()
    assert (stats.rows, stats.batches, rows) == (ROWS, 5, ROWS)
    assert stats.bytes_read > 0
    assert 0 <= stats.seconds_waited <= stats.seconds


def test_rows_are_mixed_well(tmp_path):
    """A batch has few rows of each block, and neighbours come from far away."""
    path = tmp_path / "many.fermion"
    rows = 1 << 18
    fermion.write_table({"x": np.arange(rows)}, path)
    with fermion.open(path) as opened:
        batch = next(iter(opened.training(batch_rows=1_024)))["x"]
    blocks = np.bincount(batch >> 14, minlength=16)
    assert blocks.max() <= 1.5 * 1_024 / 16
    distances = abs(np.diff(batch[:64]))
    assert np.median(distances) > 1_000


@pytest.fixture
def damaged(tmp_path):
    """Five stripes of a thousand rows, the second one with a page of `y` that is damaged."""
    path = tmp_path / "rows.fermion"
    x = np.arange(ROWS)
    rows = {"x": x, "y": np.random.default_rng(0).random(ROWS)}
    fermion.write_table(rows, path, options=fermion.WriteOptions(stripe_rows=1_000))
    with fermion.open(path) as opened:
        offset = opened.column("y").streams[-1].chunks[1].pages[0].offset
    content = bytearray(path.read_bytes())
    content[offset + 100] ^= 4
    path.write_bytes(content)
    with fermion.open(path) as opened:
        yield opened, offset


def test_damage_is_an_error_that_names_file_column_and_page(damaged):
    file, offset = damaged
    reader = file.training(batch_rows=100, shuffle=None)
    epoch = reader.epoch(0)
    with pytest.raises(ChecksumError) as raised:
        list(epoch)
    for part in ("rows.fermion", f"page at offset {offset}:", "column 'y', stripe 1"):
        assert part in str(raised.value)
    assert sum(len(batch) for batch in file.training(["x"], batch_rows=100)) == ROWS


@pytest.mark.parametrize("world_size", [1, 2])
def test_damaged_blocks_are_left_out_where_that_is_asked_for(damaged, world_size, caplog):
    """Every rank leaves out the same rows, and the other rows keep their steps."""
    file, _ = damaged
    options = {"world_size": world_size, "step_rows": 120, "columns": ["x", "y"], "lanes": 3}
    steps = steps_of(file, on_damage="skip", **options)
    whole = steps_of(file, **{**options, "columns": ["x"]})
    kept = [step[(step < 1_000) | (step >= 2_000)] for step in whole]
    assert all(np.array_equal(a, b) for a, b in zip(steps, kept, strict=True))
    assert {record.rows_skipped for record in caplog.records} == {1_000}
    assert "column 'y', stripe 1" in caplog.text


def test_what_was_left_out_is_counted(damaged):
    file, _ = damaged
    reader = file.training(batch_rows=100, on_damage="skip")
    rows = sum(len(batch) for batch in reader)
    stats = reader.stats()
    assert (stats.rows, stats.rows_skipped, stats.blocks_skipped) == (rows, 1_000, 1)
    assert rows == ROWS - 1_000
    list(reader.epoch(1))
    assert reader.stats().rows_skipped == 2_000


def test_training_that_met_damage_goes_on_without_the_damaged_rows(damaged):
    file, _ = damaged
    reader = file.training(batch_rows=300, shuffle=None)
    seen = []
    with pytest.raises(ChecksumError):
        seen.extend(batch["x"] for batch in reader)
    other = file.training(batch_rows=300, shuffle=None, on_damage="skip")
    other.load_state_dict(reader.state_dict())
    rest = [batch["x"] for batch in other]
    assert np.concatenate([*seen, *rest]).tolist() == [*range(1_000), *range(2_000, ROWS)]


def test_a_missing_file_is_no_damage(tmp_path):
    path = tmp_path / "rows.fermion"
    fermion.write_table({"x": np.arange(1_000)}, path)
    with fermion.open(path) as file:
        reader = file.training(batch_rows=100, on_damage="skip")
    with pytest.raises(ValueError, match="closed"):
        list(reader)


def test_stats_tell_who_waits(file):
    reader = file.training(["x"], batch_rows=100)
    assert reader.stats() == TrainingStats(bytes_read=file.io_stats.bytes_requested)
    epoch = reader.epoch(0)
    for _ in range(7):
        next(epoch)
    early = reader.stats()
    assert (early.rows, early.batches) == (700, 7)
    for _ in epoch:
        time.sleep(0.002)  # a model that takes longer than reading
    stats = reader.stats()
    assert (stats.rows, stats.batches) == (ROWS, ROWS // 100)
    assert early.rows == 700  # a copy
    assert stats.bytes_read == file.io_stats.bytes_requested
    assert stats.seconds_ahead > 0
    assert 0 < stats.seconds_waited < stats.seconds
    assert stats.rows_per_second == pytest.approx(stats.rows / stats.seconds)
    assert "rows=5000" in repr(stats)
    assert "_started" not in repr(stats)


def test_progress_is_told_where_it_is_asked_for(file, monkeypatch):
    told = []
    reader = file.training(["x"], batch_rows=1_000)
    list(reader.epoch(0, progress=lambda done, total: told.append((done, total))))
    assert told == [(done, 5) for done in range(1, 6)]
    shown = []

    @contextlib.contextmanager
    def bar(label, stream):
        yield lambda done, total: shown.append((label, done, total))

    monkeypatch.setattr("fermion.progress.bar", bar)
    list(reader.epoch(2, progress=True))
    assert not shown  # no terminal
    monkeypatch.setattr("fermion.progress.is_watched", lambda: True)
    epoch = reader.epoch(2, progress=True)
    assert next(epoch).step == 0
    del epoch  # another bar can be shown now
    list(reader.epoch(2, progress=True))
    assert shown[-1] == ("epoch 2", 5, 5)
    for wrong in ("yes", 1, None):
        with pytest.raises(TypeError, match="progress"):
            reader.epoch(0, progress=wrong)


def test_an_epoch_is_a_record_of_the_log(file, caplog):
    caplog.set_level("INFO", "fermion.training.reader")
    list(file.training(["x"], batch_rows=1_000).epoch(3))
    (record,) = caplog.records
    assert (record.epoch, record.batches) == (3, 5)
    assert record.getMessage().startswith("epoch 3 of rank 0 of 1: 5 batches in ")
