"""Takes a picture of a web page: ``python -m tools.chromium PAGE.html OUT.png [--dark]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.chromium.browser import Browser
from tools.servers import NotAvailableError


def main() -> int:
    """Open a page, and write what the window shows."""
    parser = argparse.ArgumentParser(prog="tools.chromium", description=__doc__)
    parser.add_argument("page", type=Path, metavar="PAGE.html")
    parser.add_argument("picture", type=Path, metavar="OUT.png")
    parser.add_argument("--dark", action="store_true", help="with dark colours")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    arguments = parser.parse_args()
    try:
        with Browser() as browser:
            page = browser.open(arguments.page, width=arguments.width, height=arguments.height)
            page.scheme("dark" if arguments.dark else "light")
            page.screenshot(arguments.picture)
            errors = page.errors()
    except NotAvailableError as error:
        errors = [str(error)]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
