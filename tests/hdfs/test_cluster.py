"""The cluster that the other tests use: it goes when it should, and says why it does not come."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
from pathlib import Path

import pytest

from tools import maven
from tools.hdfs import jars, java
from tools.hdfs.cluster import Cluster
from tools.servers import NotAvailableError

pytestmark = pytest.mark.services

ENDS_SECONDS_MAX = 30
PROGRAM = """
import os, signal, sys
from pathlib import Path
from tools.hdfs.cluster import Cluster
cluster = Cluster(Path(sys.argv[1]), data_nodes=1)
cluster.start()
print(*[(cluster.folder / f"{name}.pid").read_text() for name in cluster.running()], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_a_cluster_ends_with_a_process_that_is_killed(hdfs_cluster, tmp_path, project_environment):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "cluster")]
    done = subprocess.run(
        command, env=project_environment, stdout=subprocess.PIPE, text=True, check=False
    )
    servers = [Path("/proc") / number for number in done.stdout.split()]
    assert len(servers) == 2
    ends = time.monotonic() + ENDS_SECONDS_MAX
    while (tmp_path / "cluster").exists() or any(server.exists() for server in servers):
        assert time.monotonic() < ends, "servers or their folder are left"
        time.sleep(0.2)


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    def unreachable(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(jars, "BUILD", tmp_path / "build")
    monkeypatch.setattr(maven.urllib.request, "urlopen", unreachable)
    with pytest.raises(NotAvailableError, match=r"Maven Central is not reachable: .*no route"):
        jars.class_path()
    assert list((tmp_path / "build").iterdir()) == []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotAvailableError, match="needs Java 17 or newer"):
        java.Java()
    with pytest.raises(NotAvailableError, match="needs Java 17 or newer"), Cluster(tmp_path / "c"):
        pass
    assert not (tmp_path / "c").exists()


def test_a_jar_with_other_bytes_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(jars, "BUILD", tmp_path)
    other = tmp_path / jars.PATH
    other.parent.mkdir(parents=True)
    other.write_bytes(b"other")
    (tmp_path / jars.NAME).write_bytes(b"broken")
    monkeypatch.setattr(maven, "MAVEN", tmp_path.as_uri())
    with pytest.raises(NotAvailableError, match="expected SHA-256"):
        jars.class_path()
