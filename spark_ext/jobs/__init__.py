"""Programs for the command line (``python -m``) and for ``spark-submit``."""

__all__: list[str] = []
