"""Snapshots, manifests, schemas, references and pointers, both directions."""
