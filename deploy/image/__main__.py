"""`python -m deploy.image`: builds Purser's image into dist/, or renews its lock."""

import argparse
import sys
from pathlib import Path

from purser.lab.driver.compile import cache_folder

from . import debs
from .build import build
from .saying import ImageError, say


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.image", description="Build Purser's image as an OCI archive."
    )
    parser.add_argument("--output", type=Path, default=Path("dist"), help="folder of the archive (default: dist)")
    parser.add_argument("--extra", action="append", default=[], help="an extra of pyproject.toml to have in: fast")
    parser.add_argument("--newest", action="store_true", help="take the newest of packages that Debian serves no more")
    parser.add_argument(
        "--renew-lock", action="store_true", help="write Debian's newest versions into the lock, and end"
    )
    given = parser.parse_args()
    try:
        if given.renew_lock:
            debs.LOCK.write_text(debs.renewed(cache_folder() / "image" / "debs"))
            say(f"{debs.LOCK} is written")
        else:
            build(given.output, given.extra, newest=given.newest)
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
