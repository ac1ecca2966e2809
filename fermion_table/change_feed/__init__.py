"""Changes between two snapshots: planned, read and recorded."""
