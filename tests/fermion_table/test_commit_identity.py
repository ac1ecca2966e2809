"""A commit's user and identifier, by which a repeated commit is found."""

from __future__ import annotations

from commit_setups import append, names, new_table

from fermion_table import commit_index
from fermion_table.history import latest
from fermion_table.testing import made_up_entry


def test_an_identifier_is_the_same_as_number_and_as_text() -> None:
    """In both directions, and where the index of the history is read anew."""
    store = new_table()
    first = append(store, made_up_entry("a"), commit_user="job", commit_identifier=5)
    second = append(store, made_up_entry("b"), commit_user="job", commit_identifier="6")
    for _ in range(2):
        assert append(store, made_up_entry("x"), commit_user="job", commit_identifier="5") == first
        assert append(store, made_up_entry("x"), commit_user="job", commit_identifier=6) == second
        commit_index._indexes.clear()
    append(store, made_up_entry("c"), commit_user="job", commit_identifier="05")
    assert names(store) == ["a", "b", "c"]
    assert first.is_commit_of("job", "5")
    assert not first.is_commit_of("other", 5)
    assert not latest(store).is_commit_of("job", 5)
