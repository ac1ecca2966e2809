"""Publishing snapshots: conflicts, retries, identities, and what replaces a state."""
