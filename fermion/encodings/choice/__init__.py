"""Which encodings a chunk gets: profiles, samples, estimates and the search."""
