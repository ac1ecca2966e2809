"""The metadata of a file as bytes, both directions: footer, indexes, blocks, sections."""
