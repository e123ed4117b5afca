"""`amdjax.random`, loaded with the first draw: most functions of `nn` draw nothing."""

from __future__ import annotations

from typing import Any


def checked_key(name: str, key: Any) -> Any:
    """The key, if it is one; an error names the function of which it is an argument."""
    # late: as below
    from amdjax.random._keys import as_key

    as_key(name, key)
    return key


def __getattr__(name: str) -> Any:
    # late: takes as long to load as all of nn
    from amdjax import random

    return getattr(random, name)
