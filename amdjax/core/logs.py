"""The options that say what the library's log tells: `logging_level` and `debug_log_modules`.

Loggers are called as the library's rooms are, such as "amdjax.jit". What the options ask for is
written to the error output, beside what handlers of the program's own do with it.
"""

from __future__ import annotations

from typing import Any

from amdjax.core.config import config

_ROOT = "amdjax"
_changed: dict[str, int] = {}
"""Loggers that the options have set, and the levels they had."""

_handler: Any = None


def _wanted() -> dict[str, str]:
    """The level of each logger that the options speak of; JAX's names stand for ours."""
    level = config.logging_level
    wanted = {} if level in (None, "NOTSET") else {_ROOT: level}
    for name in filter(None, (config.debug_log_modules or "").split(",")):
        wanted[_ROOT if name.split(".")[0] in ("jax", "jaxlib") else name] = "DEBUG"
    return wanted


def _follow(_: Any = None) -> None:
    # late: programs that do not ask for a log do without
    import logging

    global _handler
    if _handler is None:
        _handler = logging.StreamHandler()
        form = "{levelname}:{asctime}:{name}:{lineno}: {message}"
        _handler.setFormatter(logging.Formatter(form, style="{"))
    for name, level in _changed.items():
        logging.getLogger(name).removeHandler(_handler)
        logging.getLogger(name).setLevel(level)
    _changed.clear()
    wanted = _wanted()
    for name, chosen in wanted.items():
        logger = logging.getLogger(name)
        _changed[name] = logger.level
        logger.setLevel(chosen)
        # A logger above one that tells of it tells of it once more.
        if not any(name.startswith(f"{other}.") for other in wanted):
            logger.addHandler(_handler)


def follow_options() -> None:
    """Let the log tell what the options say, now and whenever they change."""
    for name in ("logging_level", "debug_log_modules"):
        config.on_update(name, _follow)
    if _wanted():
        _follow()
