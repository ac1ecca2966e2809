"""Runs Ceph's S3 gateway on the loopback interface: ``python -m tools.ceph [COMMAND ...]``.

With a command: starts it, runs the command with the gateway's address and keys in the environment
variables that clients of S3 look for, and stops. Without one: prints them, and runs until it is
interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.ceph.cluster import BUCKET, Cluster
from tools.servers import NotAvailableError


def main(command: list[str]) -> int:
    """Run Ceph, and a command beside it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="ceph-"))
    folder.rmdir()  # the cluster makes it, and deletes it
    try:
        with Cluster(folder) as cluster:
            cluster.s3().create_bucket(Bucket=BUCKET)
            given = {
                "AWS_ENDPOINT_URL": cluster.url,
                "AWS_ACCESS_KEY_ID": cluster.owner.access_key,
                "AWS_SECRET_ACCESS_KEY": cluster.owner.secret_key,
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            if command:
                environment = {**os.environ, **given}
                return subprocess.run(command, env=environment, check=False).returncode
            for name, value in given.items():
                print(f"export {name}={value}")
            print(f"# s3://{BUCKET}; Ctrl-C stops it", flush=True)
            signal.pause()
    except NotAvailableError as error:
        print(f"Ceph can't be started: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
