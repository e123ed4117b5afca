"""Whether passes are switched on, without what they are."""

from __future__ import annotations

import functools
from importlib import import_module

from amdjax.core.config import config
from amdjax.core.errors import did_you_mean


def is_on(name: str) -> bool:
    """Whether the pass of a name is switched on.

    Args:
      name: that of a pass in `PASSES`.

    Raises:
      ValueError: the option `disabled_passes` names what is no pass, or one that is needed.

    Example:
      >>> is_on("simplify")
      True
    """
    off = config.disabled_passes
    return not off or name not in _checked(off)


@functools.lru_cache
def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of passes that can be off."""
    # The table, which loads all passes: a program whose plan is kept does not need them.
    known = {p.name: p for p in import_module("amdjax.passes").PASSES}
    for name in names:
        if name not in known:
            raise ValueError(
                f"disabled_passes: there is no pass {name!r}.{did_you_mean(name, known, 3)}"
            )
        if known[name].is_needed:
            raise ValueError(f"disabled_passes: no program is compiled without {name!r}")
    return names
