"""Compacts tables with tasks, expires snapshots and removes orphan files."""
