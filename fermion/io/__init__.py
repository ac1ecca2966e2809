"""Bytes of files: where they come from and go to, checksums, compression."""
