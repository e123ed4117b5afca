import pytest


@pytest.fixture
def checked():
    """Every program is verified after every pass."""
    from amdjax.core.config import config

    config.update("check", True)
    yield
    config.update("check", False)
