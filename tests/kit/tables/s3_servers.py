"""moto's server of S3 in a process of its own, and the bucket of tests; see also `tools.ceph`."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.ceph.cluster import BUCKET, Options, User, options_of
from tools.servers import HOST, Servers, free_ports

# One request at a time: with threads, moto looks for an object and stores it in two steps, and two
# writers win the same slot. (The probe before a process's first commit finds that out.)
PROGRAM = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
application = DomainDispatcherApplication(create_backend_app)
make_server("127.0.0.1", int(sys.argv[1]), application, threaded=False).serve_forever()
"""
USER = User("anybody", "k", "s")


class Moto(Servers):
    """moto's server."""

    what = "moto"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{HOST}:{self.port}"

    def _start_all(self) -> None:
        self._run("moto", [sys.executable, "-c", PROGRAM, str(self.port)])

        def answers() -> bool:
            with urllib.request.urlopen(self.url, timeout=5):
                return True

        self.until(answers, self.url)


@contextmanager
def moto(directory: Path) -> Iterator[Options]:
    """moto's server in a process of its own; the storage options of its bucket."""
    with Moto(directory / "moto") as server:
        options = options_of(USER, server.url)
        make_bucket(options)
        yield options


def make_bucket(options: Options, name: str = BUCKET) -> None:
    """Make a bucket."""
    import s3fs

    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket=name)
