"""How often HDFS is asked, by the cluster's own counters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion_table import Table
from tools.hdfs.cluster import METRICS_SECONDS

pytestmark = pytest.mark.services

BLOCK = 1 << 20
BOOKKEEPING = (
    "SendHeartbeat",
    "BlockReport",
    "BlockReceivedAndDeleted",
    "RegisterDatanode",
    "RenewLease",
)
"""What nodes send, and clients that wrote before, every few seconds."""


@contextmanager
def counted(cluster) -> Iterator[Counter[str]]:
    """Calls of clients to the NameNode, and what DataNodes served, within the block."""
    found: Counter[str] = Counter()
    before = _state(cluster)
    yield found
    found.update(_state(cluster))
    found.subtract(before)
    for name in [name for name, count in found.items() if not count]:
        del found[name]


def _state(cluster) -> Counter[str]:
    time.sleep(METRICS_SECONDS + 0.2)
    state = Counter(
        {name: n for name, n in cluster.calls().items() if not name.startswith("Overall")}
    )
    for name in [*BOOKKEEPING, *[name for name in state if name.startswith("SendLifeline")]]:
        del state[name]
    for served in cluster.blocks_read():
        state.update(served)
    return state


def test_ten_of_ten_thousand_columns_take_three_rounds(hdfs_folder, hdfs_cluster):
    """One call finds the blocks, one read brings the end of the file, one the columns."""
    path, names = f"{hdfs_folder}/wide.fermion", [f"c{n}" for n in range(10_000)]
    drawn = np.random.default_rng(1).integers(0, 2**62, (len(names), 50))
    data = pa.table(dict(zip(names, drawn, strict=True)))
    fermion.write_table(data, path)
    chosen = names[5_000:5_010]
    with counted(hdfs_cluster) as asked, fermion.open(path) as file:
        found = file.read(chosen)
        assert file.io_stats.requests == 2
    assert found.equals(data.select(chosen))
    assert asked["GetBlockLocations"] == 1
    assert asked["BlocksRead"] <= 4, asked  # each of the two ranges may lie in two blocks
    served = {"BlocksRead", "BytesRead", "ReadsFromLocalClient"}
    assert set(asked) == {"GetBlockLocations", *served}


def test_a_stripe_that_keeps_to_a_block_is_read_from_one(hdfs_folder, hdfs_cluster):
    """The DataNodes' counters: a stripe is one block read locally; without alignment it is two."""
    rows, stripes = 130_000, 4
    drawn = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, stripes * rows)
    data = pa.table({"a": drawn})
    read, near = {}, fermion.ReadOptions(prefetch_bytes=64 * 1024)
    for name, block in (("aligned", BLOCK), ("plain", None)):
        path = f"{hdfs_folder}/{name}.fermion"
        options = fermion.WriteOptions(stripe_rows=rows, block_bytes=block)
        with fermion.Writer(path, data.schema, options=options) as writer:
            writer.write(data)
        with fermion.open(path, options=near) as file:
            assert file.num_stripes == stripes
            with counted(hdfs_cluster) as asked:
                for stripe in range(1, stripes):
                    wanted = np.arange(stripe * rows, (stripe + 1) * rows)
                    assert file.take(wanted)["a"].to_numpy().tolist() == drawn[wanted].tolist()
        assert asked["ReadsFromLocalClient"] == asked["BlocksRead"]
        assert "GetBlockLocations" not in asked
        read[name] = asked["BlocksRead"]
    assert read == {"aligned": stripes - 1, "plain": 2 * (stripes - 1)}


def test_blocks_of_a_file_are_as_large_as_the_writer_was_told(hdfs_folder, hdfs_cluster):
    from fermion.io.remote import connect

    path = f"{hdfs_folder}/x.fermion"
    fermion.write_table(pa.table({"a": [1]}), path, block_bytes=4 * BLOCK)
    filesystem, inner = connect(path)
    assert filesystem.client.get_file_info(inner).blocksize == 4 * BLOCK


def test_an_append_makes_few_calls(hdfs_folder, hdfs_cluster):
    """Two files are written whole: those of the rows and of the snapshot, and the hint."""
    data = pa.table({"a": np.arange(1_000)})
    table = Table.create(hdfs_folder, data.schema)
    table.append(data)
    with counted(hdfs_cluster) as asked:
        table.append(data)
    assert asked["Create"] == asked["Complete"] == asked["AddBlock"] == 3
    assert asked["Rename2"] == 3
    assert asked["Delete"] == 0
    reads = asked["GetBlockLocations"] + asked["GetFileInfo"] + asked["GetListing"]
    assert reads <= 6, asked
