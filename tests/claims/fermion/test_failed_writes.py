"""Whatever goes wrong while a file is written, what had its name before stays, byte for byte."""

from __future__ import annotations

import gc
import inspect
import io
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion import FermionError, InvalidArgumentError, InvalidFileError
from fermion.writing import column_changes
from fermion.writing import file as file_writer
from tests.kit.files.storages import NAME, STORAGES, Place, Storages, all_storages
from tests.kit.tables.webhdfs_server import WebHdfsServer

ROWS = 80_000
# Random: more than a part of a multipart upload goes to the storage before the writer fails.
TABLE = pa.table({"a": np.random.default_rng(1).random(10 * ROWS), "b": np.arange(10 * ROWS)})
OPTIONS = fermion.WriteOptions(profile="fast", stripe_rows=ROWS, durable=False)


class StopError(Exception):
    """Whatever the caller's code raises."""


@pytest.fixture(scope="module")
def storages(tmp_path_factory) -> Iterator[Storages]:
    with all_storages(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture(params=STORAGES)
def place(request, storages, tmp_path) -> Place:
    return storages.place(request.param, tmp_path)


@pytest.fixture(scope="module")
def stored() -> bytes:
    sink = io.BytesIO()
    fermion.write_table(TABLE, sink, options=OPTIONS)
    return sink.getvalue()


@pytest.fixture(scope="module")
def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=ROWS, use_dictionary=False, write_page_checksum=True)
    return sink.getvalue()


def batches(error: BaseException, count: int = 9) -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=ROWS)[:count]
    raise error


def writer_of(place: Place, **options) -> fermion.Writer:
    chosen = OPTIONS.with_overrides(options)
    return fermion.Writer(place.target, TABLE.schema, options=chosen, storage_options=place.options)


def write_table_of_a_bad_producer(place, **_):
    with pytest.raises(StopError):
        fermion.write_table(
            batches(StopError()), place.target, options=OPTIONS, storage_options=place.options
        )


def write_table_interrupted(place, **_):
    with pytest.raises(KeyboardInterrupt):
        fermion.write_table(
            batches(KeyboardInterrupt()),
            place.target,
            options=OPTIONS,
            storage_options=place.options,
        )


def write_table_that_reads_back_otherwise(place, monkeypatch, **_):
    def refuse(*_):
        raise InvalidFileError("read back otherwise")

    monkeypatch.setattr(file_writer, "verify_written", refuse)
    with pytest.raises(InvalidFileError):
        fermion.write_table(
            TABLE, place.target, options=OPTIONS, read_back=True, storage_options=place.options
        )


def writer_in_a_block_that_raises(place, **_):
    def stop():
        with writer_of(place) as writer:
            writer.write(TABLE)
            raise StopError

    with pytest.raises(StopError):
        stop()


def writer_before_its_first_row(place, **_):
    with pytest.raises(StopError), writer_of(place):
        raise StopError


def writer_that_gives_up(place, **_):
    writer = writer_of(place)
    writer.write(TABLE)
    writer.abort()
    writer.abort()


def writer_that_is_dropped(place, **_):
    writer = writer_of(place)
    writer.write(TABLE)
    del writer
    gc.collect()


def writer_that_is_dropped_at_once(place, **_):
    writer_of(place)
    gc.collect()


def writer_of_rows_that_do_not_fit(place, **_):
    with writer_of(place) as writer:
        writer.append_batch(1, TABLE)
        with pytest.raises(InvalidArgumentError):
            writer.append_batch(2, pa.table({"a": ["x"]}))


def writer_that_fails_in_close(place, **_):
    writer = writer_of(place, sorted_by=["b"])
    writer.write(TABLE)
    writer.write(TABLE.slice(0, 1))
    with pytest.raises(InvalidArgumentError, match="sorted_by"):
        writer.close()


def from_parquet_of_a_damaged_source(place, parquet, **_):
    damaged = bytearray(parquet)
    middle = len(damaged) * 3 // 4
    damaged[middle : middle + 50_000] = bytes(50_000)
    damaged[-500:-400] = bytes(100)
    with pytest.raises(FermionError):
        fermion.from_parquet(
            bytes(damaged), place.target, options=OPTIONS, storage_options=place.options
        )


def from_parquet_of_no_parquet_file(place, **_):
    with pytest.raises(FermionError):
        fermion.from_parquet(b"x" * 100, place.target, storage_options=place.options)


def stop_late(done: int, total: int) -> None:
    if done > 0.9 * total:
        raise KeyboardInterrupt


def from_parquet_interrupted(place, parquet, **_):
    with pytest.raises(KeyboardInterrupt):
        fermion.from_parquet(
            parquet,
            place.target,
            options=OPTIONS,
            progress=stop_late,
            storage_options=place.options,
        )


def to_parquet_of_a_damaged_source(place, stored, **_):
    damaged = bytearray(stored)
    middle = len(damaged) * 3 // 4
    damaged[middle] ^= 1
    with pytest.raises(InvalidFileError):
        fermion.to_parquet(
            bytes(damaged), place.target, row_group_size=ROWS, storage_options=place.options
        )
    gc.collect()  # of pyarrow's writer, which writes a footer then


def to_parquet_interrupted(place, stored, **_):
    with pytest.raises(KeyboardInterrupt):
        fermion.to_parquet(
            stored,
            place.target,
            row_group_size=ROWS,
            progress=stop_late,
            storage_options=place.options,
        )
    gc.collect()


def to_parquet_with_a_wrong_option(place, stored, **_):
    with pytest.raises(InvalidArgumentError):
        fermion.to_parquet(stored, place.target, storage_options=place.options, version="9.9")
    gc.collect()


def add_columns_of_too_few_rows(place, stored, **_):
    more = TABLE.slice(1).rename_columns(["c", "d"])
    with pytest.raises(InvalidArgumentError, match="rows"):
        fermion.add_columns(stored, more, destination=place.target, storage_options=place.options)


def refuse_the_end(monkeypatch):
    def refuse(*_):
        raise StopError

    monkeypatch.setattr(column_changes, "build_end", refuse)


def drop_columns_that_fails_at_the_end(place, stored, monkeypatch, **_):
    refuse_the_end(monkeypatch)
    with pytest.raises(StopError):
        fermion.drop_columns(stored, ["b"], destination=place.target, storage_options=place.options)


def select_columns_that_fails_at_the_end(place, stored, monkeypatch, **_):
    refuse_the_end(monkeypatch)
    with pytest.raises(StopError):
        fermion.select_columns(
            stored, ["b"], destination=place.target, storage_options=place.options
        )


FAILURES = (
    write_table_of_a_bad_producer,
    write_table_interrupted,
    write_table_that_reads_back_otherwise,
    writer_in_a_block_that_raises,
    writer_before_its_first_row,
    writer_that_gives_up,
    writer_that_is_dropped,
    writer_that_is_dropped_at_once,
    writer_of_rows_that_do_not_fit,
    writer_that_fails_in_close,
    from_parquet_of_a_damaged_source,
    from_parquet_of_no_parquet_file,
    from_parquet_interrupted,
    to_parquet_of_a_damaged_source,
    to_parquet_interrupted,
    to_parquet_with_a_wrong_option,
    add_columns_of_too_few_rows,
    drop_columns_that_fails_at_the_end,
    select_columns_that_fails_at_the_end,
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: each.__name__)
def test_a_failed_overwrite_leaves_the_old_file_on_every_storage(
    failure: Callable, place: Place, stored, parquet, monkeypatch
):
    """Every way to write and to fail, over a target that exists: its bytes stay, and no other
    object, temporary file or unfinished upload is left."""
    failure(place=place, stored=stored, parquet=parquet, monkeypatch=monkeypatch)
    place.assert_untouched()


def test_every_writing_function_is_failed():
    """Those that this package exports and that take a path to write to."""
    writing = {
        name
        for name in fermion.__all__
        if callable(getattr(fermion, name))
        and not (inspect.isclass(getattr(fermion, name)) and name != "Writer")
        and {"target", "destination"} & set(inspect.signature(getattr(fermion, name)).parameters)
    }
    writing |= {"Writer", "write_table"}
    failed = {name for name in writing for each in FAILURES if name.lower() in each.__name__}
    assert failed == writing


@pytest.mark.parametrize("read_back", [False, True])
def test_a_finished_file_replaces_the_old_one_and_leaves_nothing_else(place, read_back):
    if read_back and place.target.startswith("buffered"):
        pytest.skip("this storage has no way to move a file")
    fermion.write_table(
        TABLE, place.target, options=OPTIONS, read_back=read_back, storage_options=place.options
    )
    assert place.names() == [NAME]
    assert place.pending() == 0
    with fermion.open(place.target, storage_options=place.options) as file:
        assert file.verify().ok
        assert file.read().equals(TABLE)


def test_a_rename_that_is_refused_gives_the_old_file_its_name_back(storages, tmp_path, monkeypatch):
    """HDFS answers false, which fsspec drops, and does not rename onto a file that is there."""
    place = storages.place("webhdfs", tmp_path)
    rename = WebHdfsServer.do_rename

    def refuse(server, path, query, body):
        moved.append(path)
        return {"boolean": False} if len(moved) == 2 else rename(server, path, query, body)

    moved: list[str] = []
    with monkeypatch.context() as broken:
        broken.setattr(WebHdfsServer, "do_rename", refuse)
        with pytest.raises(OSError, match="refused to rename"):
            fermion.write_table(TABLE, place.target, options=OPTIONS)
    assert len(moved) == 3
    place.assert_untouched()
