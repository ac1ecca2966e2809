"""``python -m flink_ext.worker``: answer requests of the standard input."""

from flink_ext.requests import quiet_streams
from flink_ext.worker.serving import serve

if __name__ == "__main__":
    serve(*quiet_streams())
