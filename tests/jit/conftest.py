import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Tests neither read nor fill the user's cache."""
    from amdjax.core.config import config

    before = config.cache_dir
    folder = str(tmp_path_factory.mktemp("kernels"))
    config.update("cache_dir", folder)
    os.environ["AMDJAX_CACHE_DIR"] = folder  # for processes that tests start
    yield
    config.update("cache_dir", before)
    os.environ.pop("AMDJAX_CACHE_DIR", None)


@pytest.fixture
def checked():
    """Every program is verified after every pass."""
    from amdjax.core.config import config

    config.update("check", True)
    yield
    config.update("check", False)
