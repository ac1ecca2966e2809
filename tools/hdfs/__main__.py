"""Runs HDFS on the loopback interface: ``python -m tools.hdfs [COMMAND ...]``.

With a command: starts the cluster, runs the command with its address in ``HDFS_URL``, and stops.
Without one: prints the address, and runs until it is interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.hdfs.cluster import Cluster
from tools.servers import NotAvailableError


def main(command: list[str]) -> int:
    """Run the cluster, and a command beside it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="hdfs-"))
    folder.rmdir()  # the cluster makes it, and deletes it
    try:
        with Cluster(folder) as cluster:
            environment = {**os.environ, "HDFS_URL": cluster.url, "WEBHDFS_URL": cluster.web_url}
            if command:
                return subprocess.run(command, env=environment, check=False).returncode
            print(f"{cluster.url} (also {cluster.web_url}); Ctrl-C stops it", flush=True)
            signal.pause()
    except NotAvailableError as error:
        print(f"HDFS can't be started: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
