"""Whether measured choices have a say in what is compiled, and where they are kept."""

from __future__ import annotations

from pathlib import Path

from amdjax.core.backend import load_finder
from amdjax.core.config import config
from amdjax.runtime.cache import default_directory

__all__ = ["SYSTEM", "ask_finder", "database_path"]

#: The database that comes with the package, if there is one.
SYSTEM = Path(__file__).parents[1] / "find" / "system.db"

_loaded = False


def database_path() -> Path | None:
    """Where the user's database is; None where there is to be none."""
    text = config.db_path
    if (text or "").strip().lower() in ("off", "0", "none"):
        return None
    return Path(text).expanduser() if text else default_directory() / "find.db"


def ask_finder() -> None:
    """Load what knows decisions, where settings or a database give it something to say."""
    global _loaded
    if not _loaded and config.find_mode != "off" and _has_say():
        _loaded = True
        load_finder()


def _has_say() -> bool:
    if config.find_mode != "fast" or config.find_enforce != "none":
        return True
    return SYSTEM.exists() or ((path := database_path()) is not None and path.exists())
