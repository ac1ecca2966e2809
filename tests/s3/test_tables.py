"""Tables on Ceph: what they do elsewhere, by many processes and by forks."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest

from fermion_table import Catalog, Table
from fermion_table.storage import fsspec as fsspec_store
from fermion_table.storage import probe as storage_probe
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.store import CreateResult
from tests.kit.tables.crowd import work
from tests.kit.tables.input_files import arguments_of, check_input_files
from tests.kit.tables.s3_proxy import Proxy
from tests.kit.tables.warehouses import kill_other_processes
from tools.ceph.cluster import options_of

pytestmark = pytest.mark.services

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
PROCESSES = 16


@pytest.fixture
def options(ceph_cluster):
    return ceph_cluster.options()


def rows(start: int, stop: int, text: str = "a") -> pa.Table:
    numbers = range(start, stop)
    return pa.table({"k": numbers, "v": [f"{text}{n}" for n in numbers]}, schema=SCHEMA)


def keys(table: Table) -> list[int]:
    return sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist())


def test_rows_versions_and_maintenance_work_as_on_disk(ceph_folder, options):
    table = Table.create(ceph_folder, SCHEMA, storage_options=options)
    for start in range(0, 9, 3):
        table.append(rows(start, start + 3))
    table.tags.create("before")
    table.delete("k = 4")
    assert table.compact().files_after == 1
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    again = Table.open(ceph_folder, storage_options=options)
    assert keys(again) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert again.scan(tag="before").count() == 9
    assert again.verify(data=True).ok
    ages = [time.time() * 1000 - item.modified_ms for item in again.store.list()]
    assert all(-60_000 < age < 600_000 for age in ages)


def test_names_that_urls_would_cut_are_kept(ceph_folder, options):
    for name in ("a#1", "a?1", "a b+ü", "a%41"):
        made = Table.create(f"{ceph_folder}/{name}", SCHEMA, storage_options=options)
        made.append(rows(0, len(name)))
    for name in ("a#1", "a b+ü", "a%41"):
        opened = Table.open(f"{ceph_folder}/{name}", storage_options=options)
        assert keys(opened) == list(range(len(name)))


def test_upserts_and_merges(ceph_folder, options):
    table = Table.create(
        ceph_folder, SCHEMA, primary_key=["k"], properties={"bucket": "2"}, storage_options=options
    )
    table.upsert(rows(0, 100))
    table.upsert(rows(50, 150, "b"))
    table.delete_keys([0])
    table.compact()
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["v"]) for row in found) == [
        (n, f"{'a' if n < 50 else 'b'}{n}") for n in range(1, 150)
    ]


def test_processes_that_are_killed_in_transactions_leave_all_or_nothing(
    ceph_folder, options, project_environment
):
    """At every step; another one goes on."""
    kill_other_processes(Catalog.open(ceph_folder, storage_options=options), project_environment)


def test_sixteen_processes_make_a_serializable_history(ceph_folder, options, project_environment):
    commits, done = work((ceph_folder, options), project_environment, PROCESSES, steps=2)
    assert commits >= PROCESSES // 2
    assert "append" in done


def test_the_race_of_the_probe_has_one_winner_each(ceph_folder, options, monkeypatch):
    monkeypatch.setattr(fsspec_store, "_probed", set())
    raced = []
    has_one_winner = storage_probe._has_one_winner

    def recorded(store, path, contents, results):
        if len(contents) == storage_probe.PROBE_THREADS:
            raced.append(path)
        return has_one_winner(store, path, contents, results)

    monkeypatch.setattr(storage_probe, "_has_one_winner", recorded)
    table = Table.create(ceph_folder, SCHEMA, storage_options=options)
    assert len(set(raced)) == storage_probe.PROBE_KEYS
    assert [item.path for item in table.store.list("probe")] == [storage_probe.VERDICT_PATH]


def test_creates_of_what_would_be_uploaded_in_parts_have_one_winner(
    ceph_folder, options, monkeypatch
):
    """Ceph knows the condition of a PUT, and ignores that of an upload in parts."""
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem._pipe_file, "__defaults__", (5 << 20, None, "overwrite"))
    store = FsspecStore(ceph_folder, storage_options=options)
    contents = [bytes([number]) * (11 << 20) for number in range(4)]
    with ThreadPoolExecutor(4) as executor:
        results = list(executor.map(store.create_if_absent, ["manifest/a.json"] * 4, contents))
    assert sorted(result.value for result in results) == ["created", "exists", "exists", "exists"]
    assert store.read("manifest/a.json") == contents[results.index(CreateResult.CREATED)]


def test_pickles_and_forked_processes_go_on(ceph_folder, options):
    table = Table.create(ceph_folder, SCHEMA, storage_options=options)
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


def test_a_catalog_creates_renames_and_drops_tables(ceph_folder, options):
    warehouse = f"{ceph_folder}/warehouse"
    catalog = Catalog.open(warehouse, storage_options=options)
    catalog.create_table("db.one", SCHEMA).append(rows(0, 3))
    catalog.create_table("db.two", SCHEMA)
    catalog.rename_table("db.one", "db.three")
    again = Catalog.open(warehouse, storage_options=options)
    assert again.tables() == ["db.three", "db.two"]
    assert keys(catalog.table("db.three")) == [0, 1, 2]
    catalog.drop_table("db.two")
    assert catalog.tables() == ["db.three"]


def test_an_append_makes_few_requests(ceph_folder, ceph_cluster):
    """Three objects are written: the data file, the snapshot file and the hint."""
    with Proxy(ceph_cluster.url) as proxy:
        options = options_of(ceph_cluster.owner, proxy.url)
        table = Table.create(ceph_folder, SCHEMA, storage_options=options)
        table.append(rows(0, 1_000))
        with proxy.counted() as requests:
            table.append(rows(1_000, 2_000))
    assert requests["PUT"] == 3
    assert requests.total() <= 5, requests


def test_the_command_line_takes_its_address(
    ceph_folder, ceph_cluster, options, project_environment
):
    Table.create(ceph_folder, SCHEMA, storage_options=options).append(rows(0, 3))
    environment = {
        **project_environment,
        "AWS_ENDPOINT_URL": ceph_cluster.url,
        "AWS_ACCESS_KEY_ID": ceph_cluster.owner.access_key,
        "AWS_SECRET_ACCESS_KEY": ceph_cluster.owner.secret_key,
    }
    command = [sys.executable, "-m", "fermion", "table", "show", ceph_folder, "--json"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert ceph_folder in json.dumps(json.loads(said.stdout))


def test_files_of_rows_are_created_from_appended_imported_and_added(ceph_folder, options):
    """With the credentials of the table, which the environment does not have."""
    check_input_files(ceph_folder, options, arguments_of(options))
