import pytest


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Tests neither read nor fill the user's cache."""
    from amdjax.core.config import config

    config.update("cache_dir", str(tmp_path_factory.mktemp("kernels")))
