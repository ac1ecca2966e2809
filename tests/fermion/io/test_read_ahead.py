"""Items made one ahead of the one in use: in order, errors in their turn, nothing beyond."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from fermion.io.read_ahead import iterate_ahead


def numbers(made: list[int], fails_at: int = 99) -> Iterator[int | None]:
    """Yield numbers and None, noting each when it is made."""
    for number in range(5):
        if number == fails_at:
            raise ValueError("broken")
        made.append(number)
        yield number or None


@pytest.mark.parametrize("at_once", [2, 4])
def test_items_come_in_order_and_no_more_than_asked_are_made_at_once(at_once):
    made: list[int] = []
    for place, item in enumerate(iterate_ahead(numbers(made), at_once)):
        assert item == (place or None)
        assert len(made) <= place + at_once + 1
    assert place == 4
    assert list(iterate_ahead(iter(()), 2)) == []


def test_the_next_item_is_made_while_one_is_in_use():
    made: list[int] = []
    items = iterate_ahead(numbers(made), 2)
    next(items)
    deadline = time.monotonic() + 30
    while len(made) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(made) >= 2


def test_an_error_comes_after_the_items_before_it():
    items = iterate_ahead(numbers([], fails_at=2), 2)
    assert [next(items), next(items)] == [None, 1]
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_no_thread_is_left_when_the_reader_stops():
    before = threading.active_count()
    items = iterate_ahead(numbers([]), 2)
    next(items)
    del items
    assert threading.active_count() == before
