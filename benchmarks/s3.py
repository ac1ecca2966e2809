"""S3: ten of 10,000 columns beside Parquet, and an append beside its bare requests.

``python -m benchmarks.s3`` starts Ceph with its gateway on the loopback interface (see
`tools.ceph`). Both formats are read, and all requests made, by the same client, s3fs; a proxy that
stands before the gateway while nothing is timed counts them.
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
from tests.kit.tables.s3_proxy import Proxy
from tools.ceph.cluster import BUCKET, Cluster, Options, options_of
from tools.servers import NotAvailableError

COLUMNS = 10_000
ROWS = {"full": 2_000, "quick": 100}
ROUNDS = {"full": 15, "quick": 5}
APPENDED = 1_000

Case = dict[str, Callable[[], Any]]


def ten_columns(options: Options, size: str) -> Case:
    """Open a file of 10,000 columns and read ten that are spread over it."""
    import pyarrow.parquet as pq

    import fermion
    from fermion.io.remote import connect

    table, names = data.wide(COLUMNS, ROWS[size]), data.some_names(COLUMNS)
    own, other = f"s3://{BUCKET}/wide.fermion", f"s3://{BUCKET}/wide.parquet"
    fermion.write_table(table, own, storage_options=options)
    filesystem, path = connect(other, options)
    with filesystem.open(path, "wb") as file:
        pq.write_table(table, file, compression="zstd")
    return {
        "fermion": lambda: fermion.read_table(own, columns=names, storage_options=options),
        "parquet zstd": lambda: pq.read_table(
            path, columns=names, filesystem=filesystem, pre_buffer=True
        ),
    }


def append(options: Options, size: str) -> Case:
    """Append rows, and store objects of the same sizes under names of their own."""
    import fermion
    from fermion.io.remote import connect
    from fermion_table import Table

    rows = data.wide(3, APPENDED)
    folder = f"s3://{BUCKET}/appended-{os.urandom(4).hex()}"
    table = Table.create(folder, rows.schema, storage_options=options)
    table.append(rows)
    table.append(rows)
    sizes = {item.path: item.size for item in table.store.list()}
    newest = f"snapshot/{table.snapshot.id:020d}.json"
    names = [next(path for path in sizes if path.endswith(".fermion")), newest, "snapshot/LATEST"]
    contents = [os.urandom(sizes[name]) for name in names]
    filesystem, _ = connect(folder, options)
    count = iter(range(1_000_000))

    def bare() -> None:
        for content in contents:
            filesystem.pipe_file(f"{BUCKET}/bare/{next(count)}", content)

    one = f"s3://{BUCKET}/one.fermion"
    return {
        "append": lambda: table.append(rows),
        "bare requests": bare,
        "write_table alone": lambda: fermion.write_table(rows, one, storage_options=options),
    }


def timed(acts: Case, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds and CPU seconds of this process, each act in turn in every round."""
    walls: dict[str, list[float]] = {name: [] for name in acts}
    cpus: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(rounds + 1):
        for name, act in acts.items():
            wall, cpu = time.perf_counter(), time.process_time()
            act()
            if number:  # the first is there to warm up
                walls[name].append(time.perf_counter() - wall)
                cpus[name].append(time.process_time() - cpu)
    return {name: (statistics.median(walls[name]), statistics.median(cpus[name])) for name in acts}


def counted(case: Callable[[Options, str], Case], cluster: Cluster, size: str) -> dict[str, str]:
    """The requests of each act, by a proxy."""
    found = {}
    with Proxy(cluster.url) as proxy:
        for name, act in case(options_of(cluster.owner, proxy.url), size).items():
            act()
            with proxy.counted() as requests:
                act()
            found[name] = ", ".join(f"{n} {method}" for method, n in sorted(requests.items()))
    return found


def main() -> int:
    """Start the cluster, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=sorted(ROWS), default="full")
    size = parser.parse_args().size
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ceph-") as folder,
            Cluster(Path(folder) / "cluster") as cluster,
        ):
            cluster.s3().create_bucket(Bucket=BUCKET)
            for title, case, factor in (
                (f"10 of {COLUMNS:,} columns, {ROWS[size]:,} rows", ten_columns, 1),
                (f"append of {APPENDED:,} rows", append, 2),
            ):
                print(title)
                requests = counted(case, cluster, size)
                figures = timed(case(cluster.options(), size), factor * ROUNDS[size])
                for name, (wall, cpu) in figures.items():
                    print(
                        f"  {name:18} {1000 * wall:8.1f} ms  CPU of the client "
                        f"{1000 * cpu:8.1f} ms  {requests[name]}",
                        flush=True,
                    )
    except NotAvailableError as error:
        print(f"Ceph can't be started: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
