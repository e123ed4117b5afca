"""Kernels are verified before they are compiled."""

from collections.abc import Iterator

import pytest

from amdjax.core.config import config


@pytest.fixture(autouse=True, scope="session")
def checked() -> Iterator[None]:
    """Tile programs are verified, and verified again after each pass."""
    before = config.check
    config.update("check", True)
    yield
    config.update("check", before)
