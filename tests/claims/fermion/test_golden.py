"""Files that earlier releases wrote give the values that they were written with."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import fermion
from tests.golden import write_golden
from tests.kit.equality import assert_logically_equal
from tests.kit.files.features import FEATURES, LARGE_FEATURES
from tests.kit.files.independent_reader import File

GOLDEN = Path(write_golden.__file__).parent
FILES = sorted(GOLDEN.glob("v*/*.fermion"))
NAMES = [f"{path.parent.name}-{path.stem}" for path in FILES]

every_file = pytest.mark.parametrize("path", FILES, ids=NAMES)


@cache
def expected(path: Path) -> pa.Table:
    with pa.OSFile(str(path.with_suffix(".arrow"))) as source:
        return pa.ipc.open_file(source).read_all()


@every_file
def test_a_golden_file_gives_its_values(path):
    """Schema, rows, metadata, stripes, settings; and nothing is wrong with it."""
    table, facts = expected(path), json.loads(path.with_suffix(".json").read_text())
    with fermion.open(path) as file:
        assert_logically_equal(file.read(), table)
        assert file.key_value_metadata == facts["metadata"]
        assert list(file.stripe_rows) == facts["stripe_rows"]
        assert facts["settings"].items() <= file.settings.items()
        assert file.verify().problems == ()


def test_a_golden_file_keeps_the_order_of_its_dictionaries():
    """Of two stripes, beside what it was written with."""
    path = GOLDEN / "v1.1" / "dictionary_orders.fermion"
    facts = json.loads(path.with_suffix(".json").read_text())
    with fermion.open(path) as file:
        found = write_golden.dictionaries(file.read())
        assert write_golden.dictionaries(file.take([13, 12])) == [facts["dictionaries"][1]]
    assert len(found) == 2
    assert found == facts["dictionaries"]


@every_file
def test_a_golden_file_gives_any_part_of_its_values(path):
    """Each column alone, a run of rows, single rows, in batches."""
    table = expected(path)
    rows, columns = table.num_rows, table.num_columns
    with fermion.open(path) as file:
        for ordinal in range(columns):
            assert_logically_equal(file.read([ordinal]), table.select([ordinal]))
        low, high = rows // 3, 2 * rows // 3
        assert_logically_equal(file.read(rows=(low, high)), table.slice(low, high - low))
        if rows:
            assert_logically_equal(file.take([rows - 1]), table.slice(rows - 1))
        parts = pa.Table.from_batches(file.iter_batches(batch_size=7), schema=table.schema)
        assert_logically_equal(parts, table)


@every_file
def test_a_golden_file_is_filtered_as_it_was(path):
    """With statistics and without."""
    facts = json.loads(path.with_suffix(".json").read_text())
    for use in (True, False):
        options = fermion.ReadOptions(use_statistics=use)
        with fermion.open(path, options=options) as file:
            if facts["filter"] is not None:
                assert file.count(facts["filter"]) == facts["filtered_rows"]
                found = file.read(filter=facts["filter"])
                assert found.num_rows == facts["filtered_rows"]
            for batch_id, count in (facts["batches"] or {}).items():
                assert file.read_batch(int(batch_id)).num_rows == count
            if facts.get("positions") is not None:
                found = file.read(["index_in_batch"])["index_in_batch"]
                assert found.to_pylist() == facts["positions"]


@every_file
def test_a_golden_file_is_what_the_specification_says(path):
    file, table = File(path.read_bytes()), expected(path)
    assert file.schema.equals(table.schema, check_metadata=True)
    for ordinal in range(table.num_columns):
        assert len(file.column(ordinal)) == table.num_rows


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("v*")), ids=lambda folder: folder.name)
def test_golden_files_are_those_that_were_written(folder):
    """No file changed, none came without being noted, none went."""
    lines = (folder / write_golden.SUMS).read_text(encoding="utf-8").splitlines()
    noted = {name: sum_ for sum_, name in (line.split("  ") for line in lines)}
    assert len(noted) == len(lines)
    found = {path.name: write_golden.digest(path) for path in folder.iterdir()}
    del found[write_golden.SUMS]
    assert found == noted


def test_every_feature_has_a_golden_file():
    """`python -m tests.golden.write_golden` writes what is missing."""
    assert {*FEATURES, *LARGE_FEATURES} <= {path.stem for path in FILES}


def test_golden_files_are_never_written_again():
    with pytest.raises(FileExistsError):
        write_golden.write("integers", FEATURES["integers"]())
