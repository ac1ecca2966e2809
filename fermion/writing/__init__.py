"""From Arrow to a file: stripes, columns, metadata, and columns added or dropped later."""
