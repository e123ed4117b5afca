"""Backends that tile programs run on in tests."""

from collections.abc import Iterator

import pytest

from tests.support import tile_runner


@pytest.fixture(params=tile_runner.BACKENDS, ids=str)
def backend(request: pytest.FixtureRequest) -> Iterator[tile_runner.Backend]:
    """`tile_runner` compiles for this backend."""
    with tile_runner.using(request.param):
        yield request.param
