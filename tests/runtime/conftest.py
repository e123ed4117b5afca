import pytest

from tests.support.hip_calls import Hip


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Tests neither read nor fill the user's cache."""
    from amdjax.core.config import config

    config.update("cache_dir", str(tmp_path_factory.mktemp("kernels")))


@pytest.fixture
def hip():
    return Hip("gfx942")


@pytest.fixture
def pair():
    return Hip("gfx942", "gfx1100")
