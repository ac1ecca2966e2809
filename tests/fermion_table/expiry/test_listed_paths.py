"""What manifests keep alive, found without an object for each file."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from fermion_table.expiry.reachable import LiveObjects
from fermion_table.metadata.manifest import DeletionVector, Entry, paths_of, reference_to
from fermion_table.metadata.manifest_store import MetadataWriter
from fermion_table.metadata.packed_manifest import PackedFiles
from tests.kit.stores import MemoryStore, made_up_entry

DEAD = (0, 3, 7)


def entry_of(number: int) -> Entry:
    """Every third has a deletion vector; every fifth is a file of another table."""
    fields = {"added_snapshot": 1, "sequence_start": 1, "row_id_base": number}
    if number % 3 == 0:
        vector = DeletionVector(path=f"deletion/{number:032x}.dv", size=9, rows=1, hash="0" * 32)
        fields |= {"deletion_vector": vector, "delete_rows": 1}
    if number % 5 == 0:
        return Entry(external_path=f"/other/data/{number:032x}.fermion", size=9, rows=9, **fields)
    return made_up_entry(f"{number:032x}", **fields)


@pytest.mark.parametrize(("count", "kind"), [(20, "loose"), (600, "packed")])
def test_what_is_live_is_what_the_entries_say_that_are_not_dead(count, kind, monkeypatch):
    store = MemoryStore()
    entries = [entry_of(number) for number in range(count)]
    stored = MetadataWriter(store).write_manifest(entries)
    assert stored.kind == kind
    whole = reference_to(
        entries, path=stored.path, hash=stored.hash, size=stored.size, kind=stored.kind
    )
    monkeypatch.delattr(PackedFiles, "entries")  # no entry is made of what a packed one holds
    live = LiveObjects()
    live.add_listed(store, [msgspec.structs.replace(whole, dead=DEAD)])
    every = {path for entry in entries for path in paths_of(entry)}
    dead = {path for place in DEAD for path in paths_of(entries[place])}
    assert live.among([*every, "data/none.fermion"]) == every - dead
    live.add_listed(store, [whole])  # another snapshot has all of them
    assert live.among(every) == every
    assert live.among([]) == set()
    few = LiveObjects(pa.array([min(every - dead), "data/none.fermion"]))
    few.add_listed(store, [msgspec.structs.replace(whole, dead=DEAD)])
    assert few.among([min(every - dead), "data/none.fermion"]) == {min(every - dead)}
    assert sum(map(len, few._chosen + few._listed)) == 1, "nothing else is held in memory"
