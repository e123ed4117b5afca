"""The command `python -m amdjax`; see `amdjax.driver`."""

from __future__ import annotations

import sys

from amdjax.driver import main

if __name__ == "__main__":
    sys.exit(main())
