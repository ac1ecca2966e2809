"""The worker of the Flink connector as a process: what it answers over pipes."""

from __future__ import annotations

import json
import subprocess
import sys

import fermion


def test_a_worker_says_its_version_and_ends_with_its_input():
    done = subprocess.run(
        [sys.executable, "-m", "flink_ext.worker"],
        input=b'{"op": "version"}\n',
        capture_output=True,
        check=False,
    )
    assert json.loads(done.stdout) == {"version": fermion.__version__}
    assert (done.returncode, done.stderr) == (0, b"")
