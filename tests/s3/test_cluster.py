"""The cluster that the other tests use: it goes when it should, and says why it does not come."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import debian
from tools.ceph import packages
from tools.servers import NotAvailableError

pytestmark = pytest.mark.services

ENDS_SECONDS_MAX = 30
PROGRAM = """
import os, signal, sys
from pathlib import Path
from tools.ceph.cluster import Cluster
cluster = Cluster(Path(sys.argv[1]))
cluster.start()
print(*[(cluster.folder / f"{name}.pid").read_text() for name in cluster.running()], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_a_cluster_ends_with_a_process_that_is_killed(ceph_cluster, project_environment):
    folder = ceph_cluster.folder.with_name("other")
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(
        command, env=project_environment, stdout=subprocess.PIPE, text=True, check=False
    )
    servers = [Path("/proc") / number for number in done.stdout.split()]
    assert len(servers) == 3
    ends = time.monotonic() + ENDS_SECONDS_MAX
    while folder.exists() or any(server.exists() for server in servers):
        assert time.monotonic() < ends, "servers or their folder are left"
        time.sleep(0.2)


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    """Without Debian's tools, and with them but without the packages."""
    monkeypatch.setattr(debian, "BUILD", tmp_path / "build")
    monkeypatch.setattr(packages, "PROGRAMS", ("no-such-program",))
    which = shutil.which
    monkeypatch.setattr(
        debian.shutil, "which", lambda name: None if name == "apt-get" else which(name)
    )
    with pytest.raises(NotAvailableError, match=r"no-such-program.* without apt-get"):
        packages.find_programs()
    monkeypatch.undo()
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get")
    monkeypatch.setattr(debian, "BUILD", tmp_path / "build")
    monkeypatch.setattr(packages, "PROGRAMS", ("no-such-program",))
    monkeypatch.setattr(packages, "PACKAGES", ("no-such-package-of-debian",))
    real = debian._apt

    def without_network(folder, *arguments):
        if "update" in arguments:
            raise subprocess.CalledProcessError(100, "apt-get", stderr="no route to host")
        return real(folder, *arguments)

    monkeypatch.setattr(debian, "_apt", without_network)
    with pytest.raises(NotAvailableError, match="can't be downloaded: no route to host"):
        packages.find_programs()
    assert list((tmp_path / "build" / "ceph").iterdir()) == []
