"""The command line: models from files are read, compiled, run, timed, compared, quantized, tuned.

    python -m amdjax COMMAND FILE …

`tables.py` has the commands and their flags as data; a command is a function of the options, which
answers with data and the same as text. See docs/driver.md.
"""

from __future__ import annotations

from amdjax.driver.main import main as main

__all__ = ["main"]
