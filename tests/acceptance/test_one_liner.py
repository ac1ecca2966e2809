"""The first thing that anybody types works in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = (
    "import fermion_table, pyarrow as pa; "
    "t = fermion_table.Table.create('t1', pa.schema([('a', pa.int64())])); "
    "t.append(pa.table({'a':[1,2]})); t.append(pa.table({'a':[3]})); "
    "print(t.scan(snapshot_id=1).count(), t.scan(filter='a > 1').to_arrow().num_rows)"
)


def test_two_appends_a_count_in_the_past_and_a_filter(tmp_path, project_environment):
    """Run as `python -c` in an empty directory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=project_environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("2 2", "", 0)
