"""Arrow columns and their streams: taken apart, put together, and picked by row."""
