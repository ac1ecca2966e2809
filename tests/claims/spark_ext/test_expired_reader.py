"""A task whose snapshot has expired since it was planned says so, as a reader does."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pyarrow as pa
import pytest

from fermion_table import Table, VersionNotFound
from spark_ext.conversion.to_parquet import _Export
from spark_ext.reading.task import ReadTask

NOW = timedelta(0)


@pytest.fixture
def overtaken(table_path):
    """A scan that was planned and pickled, with its splits, before its snapshot expired."""
    table = Table.create(table_path, pa.schema([("id", pa.int64())]))
    for number in range(3):
        table.append({"id": [number]})
    scan = table.scan()
    planned = pickle.dumps((scan.reader, scan.plan().splits))
    table.compact()
    table.expire_snapshots(older_than=NOW, retain_last=1)
    return pickle.loads(planned)


SAID = r"no snapshot 3 any more \(it has expired\); earliest 4 of .*, latest 4 of "


def test_a_reading_task_says_that_its_snapshot_has_expired(overtaken):
    """Pickled as Spark hands it to workers; the text is that of `Scan` itself."""
    reader, splits = overtaken
    with pytest.raises(VersionNotFound, match=SAID):
        list(ReadTask(reader, reader.schema).read(splits))


def test_an_exporting_task_says_that_its_snapshot_has_expired(overtaken, tmp_path):
    reader, splits = overtaken
    task = _Export(reader, str(tmp_path), whole=True, storage_options=None, parquet_options={})
    with pytest.raises(VersionNotFound, match=SAID):
        task((0, splits[0]))


def test_a_file_that_was_lost_is_not_taken_for_an_expired_one(table_path):
    """A snapshot that is kept: the error of the storage stays."""
    table = Table.create(table_path, pa.schema([("id", pa.int64())]))
    table.append({"id": [1]})
    scan = table.scan()
    reader, splits = pickle.loads(pickle.dumps((scan.reader, scan.plan().splits)))
    for file in (table_path / "data").iterdir():
        file.unlink()
    with pytest.raises(FileNotFoundError):
        list(ReadTask(reader, reader.schema).read(splits))
