"""What the Flink connector asks of Python: ``python -m flink_ext.worker`` answers it."""

from flink_ext.worker.serving import serve

__all__ = ["serve"]
