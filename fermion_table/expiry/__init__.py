"""Snapshots, files and tables that are removed, and what is still reachable."""
