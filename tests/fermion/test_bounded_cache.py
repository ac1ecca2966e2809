"""The cache of metadata: bounded, least recently used first out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fermion.bounded_cache import BoundedCache


def test_what_was_used_last_stays() -> None:
    cache = BoundedCache(30)
    for key in "abc":
        cache.put(key, key.upper(), 10)
    assert cache.get("a") == "A"
    cache.put("d", "D", 10)
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=30))
def test_it_never_holds_more_than_its_bound(puts: list[tuple[int, int]]) -> None:
    cache = BoundedCache(50)
    sizes: dict[int, int] = {}
    for key, size in puts:
        cache.put(key, (key, size), size)
        sizes[key] = size
        assert cache.size <= 50
        assert cache.get(key) == (key, size)
    held = [key for key in sizes if cache.get(key) is not None]
    assert cache.size == sum(sizes[key] for key in held)


def test_a_value_beyond_the_bound_is_not_kept() -> None:
    cache = BoundedCache(50)
    cache.put("small", 1, 10)
    cache.put("large", 2, 51)
    assert (cache.get("small"), cache.get("large")) == (1, None)


def test_cleared_it_is_empty() -> None:
    cache = BoundedCache(50)
    cache.put("a", 1, 10)
    cache.clear()
    assert (cache.get("a"), cache.size) == (None, 0)


def test_values_of_keys_that_are_not_wanted_are_let_go_and_make_room() -> None:
    cache = BoundedCache(30)
    for key in "abc":
        cache.put(key, key.upper(), 10)
    cache.keep_only("ac".__contains__)
    assert ([cache.get(key) for key in "abc"], cache.size) == (["A", None, "C"], 20)
    cache.put("d", "D", 10)
    assert [cache.get(key) for key in "acd"] == ["A", "C", "D"]


def test_values_come_in_the_order_of_their_last_use() -> None:
    cache = BoundedCache(30)
    for key in "abc":
        cache.put(key, key.upper(), 10)
    cache.get("a")
    assert cache.values() == ["B", "C", "A"]
