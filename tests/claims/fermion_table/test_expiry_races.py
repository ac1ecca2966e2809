"""Expiry, naming and the removal of orphans at once: nothing kept goes, nothing gone comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fermion_table.checks.verify import verify
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import VersionNotFound
from fermion_table.expiry.orphans import remove_orphan_files
from fermion_table.metadata import pointers
from fermion_table.metadata.history import load_snapshot
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import (
    create_branch,
    create_tag,
    list_tags,
)
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import earliest_hint_path, expired_mark_path
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import MemoryStore, WrappedStore
from tests.kit.tables.maintenance_setups import (
    FUTURE_MS,
    append,
    expire,
    files,
    made_store,
)

pytestmark = pytest.mark.usefixtures("small_tail")


@pytest.fixture
def store() -> MemoryStore:
    return made_store()


class Meanwhile(WrappedStore):
    """Something else happens before one of the calls."""

    def __init__(self, inner: AtomicStore, calls: int, other: Callable[[], object]) -> None:
        super().__init__(inner)
        self.left = calls
        self.other = other

    def call(self, operation: str, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.other()
        return super().call(operation, *arguments)


@pytest.mark.parametrize("mine", [1, 4])
@pytest.mark.parametrize("what", ["expiry", "orphans"])
def test_an_expiry_within_any_call_of_another_run_takes_nothing_kept(
    store: MemoryStore, what: str, mine: int
) -> None:
    """Another one runs as a whole between two calls, a name is given, and files come back."""
    old = [entry for entry in live_entries(store, load_snapshot(store, 6)) if "/a." in entry.path]
    commit(store, CommitRequest(kind="restore", added=old))
    append(store, "h")
    create_branch(store, "dev", load_snapshot(store, 8))
    for name in "xyz":
        append(store, name, branch="dev")
    expected = files(store)
    for calls in range(1, 2000):
        copy = MemoryStore()
        copy.objects = dict(store.objects)
        shared_cache.clear()

        def other(copy: MemoryStore = copy) -> None:
            expire(copy, retain_last=5 - mine)
            expire(copy, branch="dev")
            with contextlib.suppress(VersionNotFound):
                create_tag(copy, "named", load_snapshot(copy, 8))

        mixed = Meanwhile(copy, calls, other)
        if what == "expiry":
            expire(mixed, retain_last=mine)
        else:
            remove_orphan_files(mixed, older_than_ms=FUTURE_MS)
        shared_cache.clear()
        report = verify(copy)
        assert report.ok, (calls, report)
        assert files(copy) == expected
        assert files(copy, branch="dev") == {"abcd", *"efgxyz"}
        missing = {
            name
            for version in (None, *(tag.name for tag in list_tags(copy)), "dev")
            for name in files(copy, version)
            if not copy.exists(f"data/{name}.fermion")
        }
        assert missing == set()
        if mixed.left > 0:
            return
    pytest.fail("never finished")


@pytest.mark.parametrize("order", [(3, 6), (6, 3)])
def test_what_has_expired_never_comes_back(store: MemoryStore, order: tuple[int, int]) -> None:
    """One stalls before it overwrites the hint, and then moves it back."""
    first, second = order
    pointers.mark_expired(store, first)

    class Stalled(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "overwrite_hint":
                pointers.mark_expired(self.inner, 8)
            return super().call(operation, *arguments)

    assert pointers.mark_expired(Stalled(store), second) == max(6, *order, 8 * (first < second))
    kept = 8 if first < second else 6
    assert pointers.first_kept(store) == pointers.read_earliest(store) == kept
    pointers.drop_old_markers(store)
    assert [item.path for item in store.list("expired")] == [expired_mark_path(kept)]
    store.objects[earliest_hint_path()] = b"1"  # and dies before it looks again
    assert pointers.first_kept(store) == kept
    with pytest.raises(VersionNotFound, match="expired"):
        create_tag(store, "v1", msgspec.structs.replace(load_snapshot(store, 2)))
