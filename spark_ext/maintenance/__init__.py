"""Compaction, conversion and expiry by Spark jobs."""
