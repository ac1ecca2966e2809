"""Programs for the command line and for ``spark-submit``; each is run as ``python -m``."""

__all__: list[str] = []
