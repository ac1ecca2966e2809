"""Files that are still open when the process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import fermion

PROGRAM = """
import ctypes, sys, fermion

file = fermion.open("a.fermion")
for name in ("__main__", "fermion.forks"):  # as a module that something in C holds
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))
"""


def test_bug_a_file_that_was_open_at_the_end_of_the_process_printed_an_error(
    tmp_path: Path, project_environment: dict[str, str]
) -> None:
    """Modules lose their names then, from the last imported one to the first."""
    fermion.write_table(pa.table({"a": [1]}), tmp_path / "a.fermion")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=project_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
