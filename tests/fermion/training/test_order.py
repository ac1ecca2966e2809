"""The order of an epoch: computed for any place, the same for any number of ranks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.training.order import EpochOrder, Piece, UnitOrder, permutation

BLOCKS = st.lists(st.integers(1, 40), min_size=1, max_size=40).map(np.array)


def slots_of(order: EpochOrder, blocks: np.ndarray, piece: Piece) -> np.ndarray:
    """The numbers of a piece's slots among all slots."""
    first = np.cumsum(blocks) - blocks
    window = np.concatenate(
        [first[each] + np.arange(blocks[each]) for each in order.blocks_of(piece)]
    )
    places = order.slots_of(piece)
    return (window if places is None else window[places])[piece.start : piece.stop]


def between(order, blocks, start, stop, part):
    pieces = [slots_of(order, blocks, piece) for piece in order.pieces(start, stop, part)]
    return np.concatenate([np.empty(0, np.int64), *pieces])


@st.composite
def orders(draw):
    blocks = draw(BLOCKS)
    return blocks, EpochOrder(
        blocks,
        shuffle=draw(st.sampled_from(["rows", "blocks", None])),
        seed=draw(st.integers(0, 2**70)),
        epoch=draw(st.integers(0, 5)),
        lanes=draw(st.integers(1, 70)),
        window_slots=draw(st.integers(1, 500)),
    )


@given(orders())
def test_lanes_take_turns_as_evenly_as_they_can_and_never_go_back(case):
    _, order = case
    lengths = order.taken(order.total)
    before = order.taken(0)
    for place in range(order.total + 1):
        taken = order.taken(place)
        assert taken.sum() == place
        assert np.all(taken >= before)
        assert np.all(abs(taken - lengths * place / order.total) <= 1.5)
        before = taken


@given(orders(), st.integers(1, 100), st.integers(1, 9))
def test_steps_have_every_slot_once_and_ranks_share_them(case, rows, ranks):
    blocks, order = case
    came = []
    for start in range(0, order.total, rows):
        stop = min(start + rows, order.total)
        step = between(order, blocks, start, stop, (0, stop - start))
        bounds = [rank * (stop - start) // ranks for rank in range(ranks + 1)]
        shares = [between(order, blocks, start, stop, part) for part in pairwise(bounds)]
        assert np.array_equal(np.concatenate(shares), step)
        came.append(step)
    assert np.array_equal(np.sort(np.concatenate(came)), np.arange(blocks.sum()))


def test_without_a_shuffle_slots_come_in_their_order():
    blocks = np.array([3, 1, 4])
    order = EpochOrder(blocks, shuffle=None, seed=1, epoch=1, lanes=64, window_slots=2)
    assert between(order, blocks, 0, 8, (0, 8)).tolist() == list(range(8))


def test_the_order_of_a_seed_and_epoch_stays_what_it_was():
    """A state that was stored by an earlier version goes on with the same rows."""
    assert permutation(10, 17, 0).tolist() == [1, 2, 8, 3, 5, 6, 7, 9, 0, 4]
    assert permutation(10, 17, 1).tolist() != permutation(10, 17, 0).tolist()
    assert permutation(10, 18, 0).tolist() != permutation(10, 17, 0).tolist()
    assert permutation(10, 17 + 2**64, 0).tolist() != permutation(10, 17, 0).tolist()
    blocks = np.array([5, 2, 4, 3])
    order = EpochOrder(blocks, shuffle="rows", seed=17, epoch=2, lanes=2, window_slots=8)
    assert between(order, blocks, 0, 14, (0, 14)).tolist() == [
        6,
        5,
        7,
        9,
        8,
        10,
        1,
        0,
        4,
        3,
        2,
        12,
        11,
        13,
    ]


def test_random_orders_are_uniform():
    """Every value comes at every place about equally often (chi-squared, 99.99 %)."""
    counts = np.zeros((8, 8))
    for seed in range(4000):
        counts[np.arange(8), permutation(8, seed, 3)] += 1
    assert ((counts - 500) ** 2 / 500).sum() < 100  # 49 degrees of freedom


@given(st.lists(st.integers(1, 30), min_size=1, max_size=50).map(np.array), st.integers(1, 60))
def test_units_are_never_split_and_each_comes_once(rows, step_rows):
    order = UnitOrder(rows, seed=3, epoch=0)
    place, came = 0, []
    while place < order.total:
        stop = order.step_end(place, step_rows)
        taken = rows[order.order[place:stop]]
        assert len(taken) == 1 or taken.sum() <= step_rows
        for ranks in (1, 2, 5):
            shares = [order.of_rank(place, stop, rank, ranks) for rank in range(ranks)]
            assert sorted(np.concatenate(shares)) == sorted(order.order[place:stop])
        came += order.order[place:stop].tolist()
        place = stop
    assert sorted(came) == list(range(len(rows)))


@pytest.mark.parametrize("rows", [10**9, 10**12])
def test_the_order_of_very_many_rows_is_computed_not_replayed(rows):
    blocks = np.full(rows // 2**24, 2**24)
    order = EpochOrder(blocks, shuffle="rows", seed=0, epoch=0, lanes=64, window_slots=2**30)
    place = order.total - 1024
    taken = order.taken(place)
    assert taken.sum() == place
    assert (
        sum(piece.stop - piece.start for piece in order.pieces(place, order.total, (0, 1024)))
        == 1024
    )
