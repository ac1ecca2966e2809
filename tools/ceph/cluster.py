"""Ceph: a monitor, a disk in memory and the S3 gateway, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.ceph.packages import find_programs
from tools.servers import HOST, START_SECONDS_MAX, NotAvailableError, Servers, free_ports

BUCKET = "bucket"
REGION = "us-east-1"
DISK_STARTS_MAX = 5
SETTINGS = {
    "public network": "127.0.0.0/8",
    "public addr": HOST,
    "ms bind msgr2": "false",
    "auth cluster required": "none",
    "auth service required": "none",
    "auth client required": "none",
    "mon allow pool size one": "true",
    "paxos propose interval": 0.05,  # every change of a map waits for it
    "paxos min wait": 0.01,
    "osd objectstore": "memstore",
    "memstore device bytes": 4 << 30,
    "osd crush chooseleaf type": 0,
    "osd pool default size": 1,
    "osd pool default min size": 1,
    "osd pool default pg num": 1,
    "osd pool default pgp num": 1,
    "osd pool default pg autoscale mode": "off",
    "osd client watch timeout": 2,  # tools wait so long for a gateway that was killed
    "rgw bucket quota ttl": 0,  # a quota counts at once
}

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    """Who may ask the gateway."""

    name: str
    access_key: str
    secret_key: str


class Cluster(Servers):
    """A monitor, a disk and the gateway, from `start` until `stop`; a context manager.

    They are called ``monitor``, ``disk`` and ``gateway``. What is stored lies in the disk's memory:
    the others may be killed and started again.

    Parameters
    ----------
    folder
        Where they keep everything: must not exist, and does not afterwards. Sockets lie in it, so
        its path must be short.
    """

    what = "Ceph"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.monitor_port = free_ports(2)
        self.owner = User("owner", "k", "s")
        self._configuration = self.folder / "ceph.conf"
        self._disk_starts = 0

    @property
    def url(self) -> str:
        """The gateway's address."""
        return f"http://{HOST}:{self.port}"

    def options(self, user: User | None = None, *, url: str | None = None) -> Options:
        """Storage options of a user (None: the owner), for the gateway or what stands before it."""
        return options_of(user or self.owner, url or self.url)

    def s3(self, user: User | None = None) -> Any:
        """A client of S3."""
        import boto3
        from botocore.config import Config

        who = user or self.owner
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=who.access_key,
            aws_secret_access_key=who.secret_key,
            region_name=REGION,
            config=Config(**CONFIGURATION),
        )

    def _check(self) -> None:
        self._programs = find_programs()
        self._environment = self._programs.environment()

    def _start_all(self) -> None:
        fsid, disk = str(uuid.uuid4()), str(uuid.uuid4())
        self._configure(fsid)
        monitors = str(self.folder / "monitors")
        address = f"[v1:{HOST}:{self.monitor_port}]"
        self._tool("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monitors)
        self._tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)
        self._serve("monitor", "ceph-mon", "-i", "a")
        self.admin("ceph", "osd", "new", disk)
        self._tool("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._start_disk()
        self.until(self._disk_is_up, "the disk of Ceph")
        user = self.owner
        keys = [f"--access-key={user.access_key}", f"--secret-key={user.secret_key}"]
        self.admin(
            "radosgw-admin", "user", "create", f"--uid={user.name}", "--display-name=u", *keys
        )
        self.start_gateway()

    def start_gateway(self, *, wait: bool = True) -> None:
        """Start the gateway."""
        self._serve("gateway", "radosgw", "-n", "client.gateway")
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the gateway answers."""

        def answers() -> bool:
            with urllib.request.urlopen(self.url, timeout=5):
                return True

        self.until(answers, self.url)

    def repair(self) -> None:
        """Start the gateway if it does not run."""
        if "gateway" not in self._processes:
            self.start_gateway()

    def add_user(self, name: str) -> User:
        """A user without a right."""
        said = json.loads(
            self.admin("radosgw-admin", "user", "create", f"--uid={name}", "--display-name=u")
        )
        keys = said["keys"][0]
        return User(name, keys["access_key"], keys["secret_key"])

    def remove_key(self, user: User) -> None:
        """Let a user's key end."""
        self.admin(
            "radosgw-admin", "key", "rm", f"--uid={user.name}", f"--access-key={user.access_key}"
        )

    @contextlib.contextmanager
    def quota(self, bucket: str, size_bytes: int) -> Iterator[None]:
        """Limit what a bucket may hold within a ``with`` block."""
        scope = ["quota", "--quota-scope=bucket", f"--bucket={bucket}"]
        verb, *which = scope
        self.admin("radosgw-admin", verb, "set", *which, f"--max-size={size_bytes}B")
        self.admin("radosgw-admin", verb, "enable", *which)
        try:
            yield
        finally:
            self.admin("radosgw-admin", verb, "disable", *which)

    def admin(self, program: str, *arguments: str) -> str:
        """What a tool of Ceph prints.

        Raises
        ------
        NotAvailableError
            It failed, or gave no answer.
        """
        return self._tool(program, *arguments)

    def _configure(self, fsid: str) -> None:
        for name in ("monitor", "disk"):
            (self.folder / f"{name}-data").mkdir()
        settings = {
            **SETTINGS,
            **self._programs.settings(),
            "fsid": fsid,
            "mon host": f"[v1:{HOST}:{self.monitor_port}]",
            "run dir": self.folder,
            "log file": f"{self.folder}/$name.ceph.log",
            "admin socket": f"{self.folder}/$name.socket",
            "pid file": "",
            "mon data": self.folder / "monitor-data",
            "osd data": self.folder / "disk-data",
            "rgw frontends": f"beast endpoint={HOST}:{self.port} tcp_nodelay=1",
        }
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        self._configuration.write_text("".join(["[global]\n", *lines]))

    def _tool(self, program: str, *arguments: str) -> str:
        chosen = () if program == "monmaptool" else ("-c", str(self._configuration))
        command = self._programs.command(program, *chosen, *arguments)
        try:
            return subprocess.run(
                command,
                env=self._environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=START_SECONDS_MAX,
            ).stdout
        except subprocess.CalledProcessError as error:
            raise NotAvailableError(f"{command}: {error.stderr[-1000:]}") from error
        except subprocess.TimeoutExpired as error:
            raise NotAvailableError(str(error)) from error

    def _serve(self, name: str, program: str, *arguments: str) -> None:
        command = self._programs.command(program, "-c", str(self._configuration), *arguments, "-f")
        self._run(name, command, self._environment)

    def _start_disk(self) -> None:
        self._disk_starts += 1
        self._serve("disk", "ceph-osd", "-i", "0")

    def _disk_is_up(self) -> bool:
        try:
            return " 1 up" in self.admin("ceph", "osd", "stat")
        except NotAvailableError:  # a monitor that has just begun refuses questions
            return False

    def _ended(self, name: str) -> None:
        # A disk that asks the monitor before it was told the cluster's id is refused, and ends.
        if name != "disk" or self._disk_starts == DISK_STARTS_MAX:
            super()._ended(name)
        self.kill("disk")
        self._start_disk()


CONFIGURATION = {  # Debian's Ceph is older than the checksums that clients send by default
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


def options_of(user: User, url: str) -> Options:
    """Storage options for a server of S3."""
    return {
        "key": user.access_key,
        "secret": user.secret_key,
        "client_kwargs": {"endpoint_url": url, "region_name": REGION},
        "config_kwargs": dict(CONFIGURATION),
    }
