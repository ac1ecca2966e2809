"""HDFS: ten of 10,000 columns beside Parquet, and an append beside its bare requests.

``python -m benchmarks.hdfs`` starts a NameNode and three DataNodes on the loopback interface (see
`tools.hdfs`). Both formats are read, and all requests made, by the same client, hdfs-native.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import data
from tools.hdfs.cluster import METRICS_SECONDS, Cluster
from tools.servers import NotAvailableError

COLUMNS = 10_000
ROWS = {"full": 2_000, "quick": 100}
ROUNDS = {"full": 15, "quick": 5}
APPENDED = 1_000
BLOCK_BYTES = 128 << 20  # HDFS's own default

Figures = dict[str, dict[str, float]]


def timed(act: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds and CPU seconds of this process, after one call to warm up."""
    act()
    walls, cpus = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        act()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def asked(cluster: Cluster, act: Callable[[], object]) -> tuple[int, int]:
    """Calls to the NameNode, and reads of DataNodes, by the cluster's own counters."""

    def state() -> tuple[int, int]:
        time.sleep(METRICS_SECONDS + 0.2)
        calls = cluster.calls()
        own = ("GetBlockLocations", "GetFileInfo", "GetListing", "Create", "AddBlock")
        own += ("Complete", "Rename2", "Delete", "GetServerDefaults", "Mkdirs")
        return sum(calls.get(name, 0) for name in own), sum(
            node["BlocksRead"] for node in cluster.blocks_read()
        )

    before = state()
    act()
    after = state()
    return after[0] - before[0], after[1] - before[1]


def ten_columns(cluster: Cluster, size: str) -> Figures:
    """Open a file of 10,000 columns and read ten that are spread over it."""
    import fsspec
    import pyarrow.parquet as pq

    import fermion
    from fermion.io.remote import connect

    table, names = data.wide(COLUMNS, ROWS[size]), data.some_names(COLUMNS)
    own, other = f"{cluster.url}/wide.fermion", f"{cluster.url}/wide.parquet"
    fermion.write_table(table, own)
    filesystem, path = connect(other)
    with filesystem.open(path, "wb") as file:
        pq.write_table(table, file, compression="zstd")
    plain = fsspec.filesystem("hdfs", host=filesystem.host, port=filesystem.port)

    def parquet() -> Any:
        return pq.read_table(path, columns=names, filesystem=plain, pre_buffer=True)

    found = {}
    for name, act in (
        ("fermion", lambda: fermion.read_table(own, columns=names)),
        ("parquet zstd", parquet),
    ):
        assert act().num_columns == len(names)
        calls, reads = asked(cluster, act)
        wall, cpu = timed(act, ROUNDS[size])
        found[name] = {"seconds": wall, "cpu": cpu, "NameNode calls": calls, "reads": reads}
    return found


def append(cluster: Cluster, size: str) -> Figures:
    """Append rows, and write files of the same sizes under names of their own, with the client."""
    from hdfs_native import Client, WriteOptions

    import fermion
    from fermion_table import Table

    rows = data.wide(3, APPENDED)
    table = Table.create(f"{cluster.url}/appended", rows.schema)
    table.append(rows)
    table.append(rows)
    sizes = {item.path: item.size for item in table.store.list()}
    newest = f"snapshot/{table.snapshot.id:020d}.json"
    names = [next(path for path in sizes if path.endswith(".fermion")), newest, "snapshot/LATEST"]
    contents = [os.urandom(sizes[name]) for name in names]
    client = Client(cluster.url)
    count = iter(range(1_000_000))

    def bare() -> None:
        for content in contents:
            number = next(count)
            file = client.create(f"/bare/{number}.tmp", WriteOptions(overwrite=False))
            file.write(content)
            file.close()
            client.rename(f"/bare/{number}.tmp", f"/bare/{number}", False)

    found = {}
    for name, act in (
        ("append", lambda: table.append(rows)),
        ("bare requests", bare),
        ("write_table alone", lambda: fermion.write_table(rows, f"{cluster.url}/one.fermion")),
    ):
        calls, reads = asked(cluster, act)
        wall, cpu = timed(act, 2 * ROUNDS[size])
        found[name] = {"seconds": wall, "cpu": cpu, "NameNode calls": calls, "reads": reads}
    return found


def main() -> int:
    """Start the cluster, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=sorted(ROWS), default="full")
    size = parser.parse_args().size
    try:
        folder = Path(tempfile.mkdtemp(prefix="hdfs-"))
        folder.rmdir()  # the cluster makes it, and deletes it
        with Cluster(folder, settings={"dfs.blocksize": BLOCK_BYTES}) as cluster:
            for title, case in (
                (f"10 of {COLUMNS:,} columns, {ROWS[size]:,} rows", ten_columns),
                (f"append of {APPENDED:,} rows", append),
            ):
                print(title)
                for name, figures in case(cluster, size).items():
                    print(
                        f"  {name:18} {1000 * figures['seconds']:8.1f} ms  CPU of the client "
                        f"{1000 * figures['cpu']:8.1f} ms  {figures['NameNode calls']:3.0f} calls "
                        f"to the NameNode, {figures['reads']:3.0f} reads of DataNodes",
                        flush=True,
                    )
    except NotAvailableError as error:
        print(f"HDFS can't be started: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
