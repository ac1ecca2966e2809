"""From an open file to Arrow: projection, pruning, plans, decoding, verification."""
