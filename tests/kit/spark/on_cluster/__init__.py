"""A session with executors in processes of their own, and what is tried on it."""
