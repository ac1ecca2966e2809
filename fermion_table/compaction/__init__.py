"""Small files written again as larger ones."""
