"""Pages: frames, cuts, encoded chunks, batches and global dictionaries."""
