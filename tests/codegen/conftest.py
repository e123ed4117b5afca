"""Backends that tile programs run on in tests."""

from collections.abc import Iterator

import pytest

from amdjax.core.config import config
from tests.support import tile_runner


@pytest.fixture(params=tile_runner.BACKENDS, ids=str)
def backend(request: pytest.FixtureRequest) -> Iterator[tile_runner.Backend]:
    """`tile_runner` compiles for this backend."""
    with tile_runner.using(request.param):
        yield request.param


@pytest.fixture(autouse=True, scope="session")
def checked() -> Iterator[None]:
    """Tile programs are verified, and verified again after each pass."""
    before = config.check
    config.update("check", True)
    yield
    config.update("check", before)
