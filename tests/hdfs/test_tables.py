"""Tables on HDFS: what they do elsewhere, by many processes, by forks, and over WebHDFS."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from datetime import timedelta

import pyarrow as pa
import pytest

from fermion_table import Catalog, Table
from fermion_table.storage import fsspec as fsspec_store
from fermion_table.storage import probe as storage_probe
from tests.kit.tables.crowd import work
from tests.kit.tables.input_files import check_input_files
from tests.kit.tables.mirrored import check_mirrors_on_a_storage
from tests.kit.tables.warehouses import kill_other_processes

pytestmark = pytest.mark.services

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
PROCESSES = 16


def rows(start: int, stop: int, text: str = "a") -> pa.Table:
    numbers = range(start, stop)
    return pa.table({"k": numbers, "v": [f"{text}{n}" for n in numbers]}, schema=SCHEMA)


def keys(table: Table) -> list[int]:
    return sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist())


def test_rows_versions_and_maintenance_work_as_on_disk(hdfs_folder):
    table = Table.create(hdfs_folder, SCHEMA)
    for start in range(0, 9, 3):
        table.append(rows(start, start + 3))
    table.tags.create("before")
    table.delete("k = 4")
    assert table.compact().files_after == 1
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    again = Table.open(hdfs_folder)
    assert keys(again) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert again.scan(tag="before").count() == 9
    assert again.verify(data=True).ok
    assert [item.path for item in again.store.list() if item.path.endswith(".tmp")] == []
    ages = [time.time() * 1000 - item.modified_ms for item in again.store.list()]
    assert all(-60_000 < age < 600_000 for age in ages)


def test_mirrors_are_published_beside_the_table(hdfs_folder, tmp_path):
    check_mirrors_on_a_storage(hdfs_folder, tmp_path, {})


def test_names_that_urls_would_cut_are_kept(hdfs_folder):
    """urlparse takes what follows ``#`` and ``?`` for parts of a URL."""
    for name in ("a#1", "a?1", "a#2", "a%41"):
        Table.create(f"{hdfs_folder}/{name}", SCHEMA).append(rows(0, len(name)))
    assert keys(Table.open(f"{hdfs_folder}/a#1")) == [0, 1, 2]
    assert keys(Table.open(f"{hdfs_folder}/a%41")) == [0, 1, 2, 3]


def test_upserts_and_merges(hdfs_folder):
    table = Table.create(hdfs_folder, SCHEMA, primary_key=["k"], properties={"bucket": "2"})
    table.upsert(rows(0, 100))
    table.upsert(rows(50, 150, "b"))
    table.delete_keys([0])
    table.compact()
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["v"]) for row in found) == [
        (n, f"{'a' if n < 50 else 'b'}{n}") for n in range(1, 150)
    ]


def test_processes_that_are_killed_in_transactions_leave_all_or_nothing(
    hdfs_folder, project_environment
):
    """At every step; another one goes on."""
    kill_other_processes(Catalog.open(hdfs_folder), project_environment)


def test_sixteen_processes_make_a_serializable_history(hdfs_folder, project_environment):
    commits, done = work((hdfs_folder, {}), project_environment, PROCESSES, steps=2)
    assert commits >= PROCESSES // 2
    assert "append" in done


def test_the_race_of_the_probe_has_one_winner_each(hdfs_folder, monkeypatch):
    """As of a storage that nobody has documented."""
    monkeypatch.setattr(storage_probe, "_KNOWN", set())
    monkeypatch.setattr(storage_probe, "PROBE_KEYS", 4)
    monkeypatch.setattr(fsspec_store, "_probed", set())
    raced = []
    has_one_winner = storage_probe._has_one_winner

    def recorded(store, path, contents, results):
        if len(contents) == storage_probe.PROBE_THREADS:
            raced.append(path)
        return has_one_winner(store, path, contents, results)

    monkeypatch.setattr(storage_probe, "_has_one_winner", recorded)
    table = Table.create(hdfs_folder, SCHEMA)
    assert len(set(raced)) == 4
    assert [item.path for item in table.store.list("probe")] == [storage_probe.VERDICT_PATH]


def test_pickles_and_forked_processes_go_on(hdfs_folder):
    """Right after reads, whose connections the client would take for its own in a fork, too."""
    table = Table.create(hdfs_folder, SCHEMA)
    table.append(rows(0, 10))
    scan = table.scan()
    assert scan.to_arrow().num_rows == 10
    assert keys(pickle.loads(pickle.dumps(table))) == list(range(10))
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # one that hangs would hang the test
        try:
            assert scan.to_arrow().num_rows == 10
            table.append(rows(10, 20))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    table.append(rows(20, 30))
    table.refresh()
    assert keys(table) == list(range(30))


def test_webhdfs_of_the_same_cluster_works(hdfs_folder, hdfs_cluster, monkeypatch):
    pytest.importorskip("requests", reason="fsspec's WebHDFS needs requests")
    monkeypatch.setattr(storage_probe, "PROBE_KEYS", 1)
    url = hdfs_folder.replace(hdfs_cluster.url, hdfs_cluster.web_url)
    monkeypatch.setenv("HADOOP_USER_NAME", "root")
    options = {"user": os.environ.get("USER", "root")}
    table = Table.create(url, SCHEMA, storage_options=options)
    table.append(rows(0, 10))
    Table.open(hdfs_folder).append(rows(10, 20))
    table.refresh()
    assert keys(table) == list(range(20))


def test_a_catalog_creates_renames_and_drops_tables(hdfs_folder):
    catalog = Catalog.open(f"{hdfs_folder}/warehouse")
    catalog.create_table("db.one", SCHEMA).append(rows(0, 3))
    catalog.create_table("db.two", SCHEMA)
    catalog.rename_table("db.one", "db.three")
    assert Catalog.open(f"{hdfs_folder}/warehouse").tables() == ["db.three", "db.two"]
    assert keys(catalog.table("db.three")) == [0, 1, 2]
    catalog.drop_table("db.two")
    assert catalog.tables() == ["db.three"]


def test_what_a_killed_process_leaves_is_removed(hdfs_folder):
    table = Table.create(hdfs_folder, SCHEMA)
    table.append(rows(0, 3))
    filesystem = table.store.filesystem
    path = f"/{hdfs_folder.rpartition('/')[2]}/snapshot"
    file = filesystem.create_file(f"{path}/.LATEST.{'0' * 32}.tmp")  # never completed
    table.remove_orphan_files(older_than=timedelta(days=-1))
    assert not [each for each in filesystem.find(path) if each.endswith(".tmp")]
    assert not file.closed
    assert keys(Table.open(hdfs_folder)) == [0, 1, 2]


def test_the_command_line_takes_its_address(hdfs_folder, project_environment):
    Table.create(hdfs_folder, SCHEMA).append(rows(0, 3))
    command = [sys.executable, "-m", "fermion", "table", "show", hdfs_folder, "--json"]
    said = subprocess.run(
        command, env=project_environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert hdfs_folder in json.dumps(json.loads(said.stdout))


def test_files_of_rows_are_created_from_appended_imported_and_added(hdfs_folder):
    check_input_files(hdfs_folder, {}, [])
