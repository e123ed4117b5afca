import pytest

from tests.support.hip_calls import Hip


@pytest.fixture
def hip():
    return Hip("gfx942")


@pytest.fixture
def pair():
    return Hip("gfx942", "gfx1100")
