"""S3 servers on the loopback interface: moto's, which is made for tests, and Ceph's gateway.

Ceph is a real object store: a monitor, a disk in memory and the S3 gateway, each a process of its
own that ends with the test. Debian's packages ceph-mon, ceph-osd and radosgw bring the programs.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

BUCKET = "bucket"
START_SECONDS_MAX = 90
CEPH_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
# One request at a time: with threads, moto looks for an object and stores it in two steps, and two
# writers win the same slot. (The probe before a process's first commit finds that out.)
MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
application = DomainDispatcherApplication(create_backend_app)
make_server("127.0.0.1", int(sys.argv[1]), application, threaded=False).serve_forever()
"""
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v1:127.0.0.1:{monitor_port}]
public network = 127.0.0.0/8
public addr = 127.0.0.1
ms bind msgr2 = false
auth cluster required = none
auth service required = none
auth client required = none
run dir = {directory}
log file = {directory}/$name.log
admin socket = {directory}/$name.socket
pid file = {directory}/$name.pid
mon data = {directory}/monitor
mon allow pool size one = true
osd data = {directory}/disk
osd objectstore = memstore
memstore device bytes = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""

Options = dict[str, Any]


class NotStartedError(Exception):
    """A server gave no sign of life in time, or its own tools failed while it was set up."""


def missing_of_ceph() -> str:
    """Why Ceph can't be started, empty if it can."""
    missing = [program for program in CEPH_PROGRAMS if shutil.which(program) is None]
    if not missing:
        return ""
    return (
        f"no {', '.join(missing)} on the path: Debian's packages ceph-mon, ceph-osd and radosgw "
        f"bring a real S3 server"
    )


@contextmanager
def moto(directory: Path) -> Iterator[Options]:
    """moto's server in a process of its own; the storage options of its bucket."""
    port = _free_port()
    with _running([sys.executable, "-c", MOTO, str(port)], directory / "moto.log"):
        yield _with_bucket(port)


@contextmanager
def ceph(directory: Path) -> Iterator[Options]:
    """Ceph's monitor, a disk in memory and its gateway; the storage options of its bucket."""
    port, monitor_port = _free_port(), _free_port()
    fsid, disk_id = str(uuid.uuid4()), str(uuid.uuid4())
    configuration = directory / "ceph.conf"
    configuration.write_text(
        CONFIGURATION.format(directory=directory, port=port, monitor_port=monitor_port, fsid=fsid)
    )
    for name in ("monitor", "disk"):
        (directory / name).mkdir()
    chosen = ["-c", str(configuration)]
    monitors = str(directory / "monitors")
    address = f"[v1:127.0.0.1:{monitor_port}]"
    _run(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monitors])
    _run(["ceph-mon", *chosen, "--mkfs", "-i", "a", "--monmap", monitors])
    with ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[bytes]:
            return stack.enter_context(_running([*command, "-f"], directory / f"{command[0]}.out"))

        def disk_is_up() -> bool:
            # A disk that asks the monitor before it was told the cluster's id is refused, and ends.
            if disks[-1].poll() is not None:
                disks.append(start(*disk))
            return " 1 up" in _run(["ceph", *chosen, "osd", "stat"])

        start("ceph-mon", *chosen, "-i", "a")
        _run(["ceph", *chosen, "osd", "new", disk_id])
        _run(["ceph-osd", *chosen, "-i", "0", "--mkfs", "--osd-uuid", disk_id])
        disk = ("ceph-osd", *chosen, "-i", "0")
        disks = [start(*disk)]
        _until(disk_is_up, "the disk of Ceph")
        user = ["user", "create", "--uid=u", "--display-name=u", "--access-key=k", "--secret-key=s"]
        _run(["radosgw-admin", *chosen, *user])
        start("radosgw", *chosen, "-n", "client.gateway")
        yield _with_bucket(port)


def _with_bucket(port: int) -> Options:
    """Wait for a server, and make the bucket."""
    import s3fs

    url = f"http://127.0.0.1:{port}"
    options: Options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"},
        "config_kwargs": {  # Debian's Ceph is older than the checksums that clients send by default
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    }

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        return False

    _until(answers, url)
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket=BUCKET)
    return options


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=START_SECONDS_MAX
        )
    except subprocess.CalledProcessError as error:
        raise NotStartedError(f"{command}: {error.stderr[-1_000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotStartedError(str(error)) from error
    return done.stdout


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(holds: Callable[[], bool], what: str) -> None:
    """Wait until a server answers; tools that fail before are asked again."""
    ends = time.monotonic() + START_SECONDS_MAX
    while True:
        with contextlib.suppress(NotStartedError):
            if holds():
                return
        if time.monotonic() > ends:
            raise NotStartedError(f"{what} did not start in {START_SECONDS_MAX} s")
        time.sleep(0.2)
