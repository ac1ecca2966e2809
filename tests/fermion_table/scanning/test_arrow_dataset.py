"""A scan as a dataset of pyarrow: what pyarrow does with one, also past the methods of Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.scanning.arrow_dataset import ScanDataset

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
OTHER = pa.table({"id": [1, 2, 9], "size": [10, 20, 90]})


@pytest.fixture
def dataset(tmp_path: Path) -> ScanDataset:
    return Table.create(tmp_path / "t", ROWS, durability="fast").scan().to_dataset()


def test_bug_sorting_and_joining_a_dataset_ended_the_process(dataset: ScanDataset) -> None:
    assert dataset.sort_by("name").to_table() == ROWS
    assert dataset.sort_by([("id", "descending")]).head(1)["name"].to_pylist() == ["c"]
    other = pyarrow.dataset.dataset(OTHER)
    joined = dataset.join(other, keys="id", join_type="inner").to_table().sort_by("id")
    assert joined.to_pydict() == {"id": [1, 2], "name": ["a", "b"], "size": [10, 20]}
    again = dataset.filter(pa.compute.field("id") < 2).join(dataset, "id", right_suffix="_2")
    assert again.to_table().to_pydict() == {"id": [1], "name": ["a"], "name_2": ["a"]}
    nearest = dataset.join_asof(other, on="id", by=[], tolerance=-1)
    assert nearest.to_table()["size"].to_pylist() == [10, 20, 20]


def test_what_pyarrow_can_not_do_with_a_scan_is_an_error(dataset: ScanDataset) -> None:
    """It reads the dataset of C++ there, and ended the process without one."""
    other = pyarrow.dataset.dataset(OTHER)
    with pytest.raises(pa.ArrowInvalid, match=r"read it with to_table\(\) first"):
        other.join(dataset, keys="id")
    with pytest.raises(InvalidArgumentError, match="schema of a scan"):
        pyarrow.dataset.dataset([dataset, other])
    with pytest.raises(InvalidArgumentError, match="schema of a scan"):
        dataset.replace_schema(ROWS.schema)
    assert dataset.partition_expression.equals(pa.compute.scalar(True))


def test_a_dataset_is_read_and_written_as_any_other(dataset: ScanDataset, tmp_path: Path) -> None:
    assert dataset.take([2, 0])["name"].to_pylist() == ["c", "a"]
    pyarrow.dataset.write_dataset(dataset, tmp_path / "out", format="parquet")
    written = pyarrow.dataset.dataset(tmp_path / "out")
    table = Table.create(tmp_path / "copy", written)  # the other way, without reading it first
    table.append(written.scanner(filter=pa.compute.field("id") > 1))
    table.append(dataset)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 2, 3, 3, 3]
    fermion.write_table(written, tmp_path / "a.fermion")
    assert fermion.read_table(tmp_path / "a.fermion") == ROWS


def test_a_dataset_tells_what_it_read_last(dataset: ScanDataset) -> None:
    assert dataset.last_scan is None
    rows = dataset.to_table(columns=["id"], filter=pa.compute.field("id") > 2)
    assert (rows.to_pydict(), dataset.last_scan.schema.names) == ({"id": [3]}, ["id"])
    assert dataset.count_rows(filter=pa.compute.field("name") == "a") == 1
    assert "filter name = 'a'" in repr(dataset.last_scan)


def test_the_fragment_of_a_dataset_is_the_whole_scan(dataset: ScanDataset) -> None:
    """Its filter and columns reach the scan, as DataFusion gives them."""
    (fragment,) = dataset.get_fragments(filter=pa.compute.field("id") > 5)
    assert fragment.physical_schema == dataset.schema
    assert fragment.to_table() == ROWS
    two = pa.compute.field("id") == 2
    scanner = fragment.scanner(dataset.schema, columns=["name"], filter=two, batch_size=10)
    assert scanner.to_table().to_pydict() == {"name": ["b"]}
    assert "filter id = 2" in repr(dataset.last_scan)
    assert sum(batch.num_rows for batch in fragment.to_batches(columns=[])) == 3
    assert fragment.count_rows(filter=two) == 1
    assert fragment.head(1, columns=["id"]).to_pydict() == {"id": [1]}
    assert fragment.partition_expression.equals(dataset.partition_expression)
    with pytest.raises(InvalidArgumentError, match="schema of a scan"):
        fragment.scanner(OTHER.schema)


def test_datafusion_reads_only_the_files_and_columns_that_a_query_needs(tmp_path: Path) -> None:
    """The file of other rows is gone: reading it would fail."""
    datafusion = pytest.importorskip("datafusion", reason="make test-recipes installs DataFusion")
    table = Table.create(tmp_path / "t", {"id": [1, 2], "name": ["a", "b"]}, partition_by="id")
    next(Path(table.location).glob("data/id=2/*.fermion")).unlink()
    context, dataset = datafusion.SessionContext(), table.scan().to_dataset()
    context.register_dataset("t", dataset)
    rows = context.sql("SELECT count(*) AS n FROM t WHERE id = 1 AND name IN ('a', 'b')")
    assert rows.to_pydict() == {"n": [1]}
    assert dataset.last_scan.io_stats["files"] == 1
    with pytest.raises(Exception, match="names a file that is gone"):
        context.sql("SELECT count(name) FROM t").to_pydict()
