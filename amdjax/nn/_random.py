"""`amdjax.random`, loaded with the first draw: most functions of `nn` draw nothing."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # late: takes as long to load as all of nn
    from amdjax import random

    return getattr(random, name)
