"""Parts of a scan: together they are the scan, and dividing it reads next to nothing."""

from __future__ import annotations

import itertools
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CorruptMetadata, Table
from fermion_table.commit import next_snapshot
from fermion_table.engine import planned_parts
from fermion_table.metadata import manifest_store
from fermion_table.scanning.parts import _ends
from fermion_table.storage.cache import shared_cache

SCHEMA = pa.schema({"day": pa.int64(), "id": pa.int64()})
FILES = 60
OPEN = 4 * 1024**2
"""What opening a file counts as; it is most of the cost of these."""


def rows(start: int) -> pa.Table:
    ids = range(start, start + 10)
    return pa.table({"day": [each // 100 for each in ids], "id": ids}, SCHEMA)


@pytest.fixture(scope="module", params=[1, 1_000_000], ids=["packed", "loose"])
def table(request, tmp_path_factory) -> Table:
    """Files in several manifests, some of them dead, and in the snapshot itself."""
    path = tmp_path_factory.mktemp("parts") / "t"
    with pytest.MonkeyPatch.context() as patch:
        for module in (manifest_store, next_snapshot):
            patch.setattr(module, "PACK_ENTRIES_MIN", request.param)
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 4)
        table = Table.create(path, SCHEMA, partition_by="day", durability="fast")
        for start in range(0, 10 * FILES, 10):
            table.append(rows(start))
        table.delete("id BETWEEN 40 AND 49")
        table.delete("id = 5")
    assert len(table.snapshot.manifests) > 1
    assert any(each.dead for each in table.snapshot.manifests)
    return table


@pytest.mark.parametrize("filter", [None, "day = 2", "id % 7 = 1"])
@pytest.mark.parametrize("files", [1, 2, 7, 1000])
def test_parts_are_the_scan(table, files, filter) -> None:
    scan = table.scan(filter=filter)
    parts = pickle.loads(pickle.dumps(list(scan.parts(files * OPEN + OPEN // 2))))
    found = pa.concat_tables([part.scan().to_arrow() for part in parts])
    assert found.sort_by("id") == scan.to_arrow().sort_by("id")
    splits = [split for part in parts for split in part.scan().plan().splits]
    assert sorted(each.file for each in splits) == sorted(each.file for each in scan.plan().splits)


@pytest.mark.parametrize("filter", [None, "day = 2", "id BETWEEN 95 AND 215"])
def test_planned_parts_have_the_files_that_the_plan_lists(table, filter) -> None:
    """Each part some, none is empty; and they are small, without their scan."""
    scan = table.scan(filter=filter)
    bare, parts = planned_parts(scan, 3 * OPEN + OPEN // 2)
    bare, parts = pickle.loads(pickle.dumps((bare, list(parts))))
    assert bare.plan().splits == []
    lists = [[each.file for each in part.of(bare).plan().splits] for part in parts]
    assert [len(each) for each in lists] == [part.files for part in parts]
    assert {*map(len, lists)} <= {1, 2, 3, 4}
    assert sorted(itertools.chain(*lists)) == sorted(each.file for each in scan.plan().splits)
    found = pa.concat_tables([part.of(bare).to_arrow() for part in parts])
    assert found.sort_by("id") == scan.to_arrow().sort_by("id")
    assert max(len(pickle.dumps(part)) for part in parts) < len(pickle.dumps(bare))


def test_a_part_says_what_it_has(table) -> None:
    """How many files and their bytes; and about as many are in each."""
    parts = list(table.scan().parts(5 * OPEN))
    totals = table.snapshot.totals
    assert sum(part.files for part in parts) == totals.files
    assert sum(part.bytes for part in parts) == totals.bytes
    for part in parts:
        splits = part.scan().plan().splits
        assert (len(splits), sum(each.size for each in splits)) == (part.files, part.bytes)
        assert part.files <= 5
    (everything,) = table.scan().parts()
    assert everything.files == totals.files


def test_the_state_of_training_on_a_part_is_of_no_other_part(table) -> None:
    first, second, *_ = table.scan().parts(5 * OPEN)
    of_first, of_second = (part.scan().training(batch_rows=4) for part in (first, second))
    next(iter(of_first.epoch(0)))
    state = of_first.state_dict()
    first.scan().training(batch_rows=4).load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match=r"part was '[0-9a-f]{16}' and is"):
        of_second.load_state_dict(state)
    assert "part" not in table.scan().training(batch_rows=4).state_dict()["plan"]


def test_a_scan_that_can_not_be_divided_is_one_part(table, tmp_path) -> None:
    (part,) = table.scan(limit=12).parts(1)
    assert part.scan().to_arrow() == table.scan(limit=12).to_arrow()
    assert part.bytes == sum(each.bytes for each in table.scan().parts(OPEN))
    beside = Table.create(tmp_path / "beside", data=rows(0), durability="fast")
    beside.add_columns_with({"new": "id + 1"})
    sizes = {each.bytes for limit in (None, 12) for each in beside.scan(limit=limit).parts()}
    assert sizes == {beside.scan().entries[0][0].size}
    keyed = Table.create(tmp_path / "keyed", SCHEMA, primary_key="id", durability="fast")
    for _ in range(3):
        keyed.append(rows(0))
    (part,) = keyed.scan().parts(1)
    assert (part.files, part.scan().count()) == (keyed.snapshot.totals.files, 10)


def test_dividing_a_scan_makes_nothing_of_files_in_packed_manifests(table, monkeypatch) -> None:
    if table.snapshot.manifests[0].kind == "loose":
        pytest.skip("its entries are read to cut it")
    monkeypatch.delattr("fermion_table.metadata.packed_manifest._entries")
    assert len(list(table.scan().parts(OPEN))) > FILES // 2


def test_a_missing_manifest_is_told(table, tmp_path) -> None:
    path = shutil.copytree(table.location, tmp_path / "copy")
    copy = Table.open(path)
    for reference in copy.snapshot.manifests:
        copy.store.delete(reference.path)
    shared_cache.clear()
    with pytest.raises(CorruptMetadata, match=r"manifest/.*no such object"):
        [part.scan().count() for part in copy.scan(filter="id > 3").parts()]
    with pytest.raises(InvalidArgumentError, match="bytes_target"):
        table.scan().parts(0)


def test_very_many_large_files_are_cut_into_equal_pieces():
    """Their bytes times the number of pieces are more than 64 bits hold."""
    ends = _ends(np.cumsum(np.full(200_000, 2**31)), 2**32)
    assert len(ends) == 99_999
    assert {*np.diff([0, *ends]).tolist()} <= {1, 2, 3}
