"""Random programs compute the same whichever passes are on."""

import pytest

from amdjax.core.config import disabled_passes
from amdjax.passes import PASSES
from tests.random_programs.check import check
from tests.random_programs.draw import draw
from tests.random_programs.libraries import Traced

SWITCHED = list(dict.fromkeys(p.name for p in PASSES if not p.is_needed))


@pytest.fixture(scope="module")
def library():
    return Traced("amdjax")


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", SWITCHED)
@pytest.mark.parametrize("seed", range(2))
def test_without_one_pass(library, name, seed):
    program, inputs = draw(5000 + 2 * SWITCHED.index(name) + seed, 12)
    with disabled_passes(name):
        check(program, inputs, library, ["jit"])


@pytest.mark.turns(4)
@pytest.mark.parametrize("mode", ["jit", "derivative"])
@pytest.mark.parametrize("seed", range(4))
def test_without_any(library, seed, mode):
    program, inputs = draw(6000 + seed, 12)
    with disabled_passes(SWITCHED):
        check(program, inputs, library, [mode])


@pytest.mark.devices
@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(3))
def test_without_any_on_devices(library, device, seed):
    program, inputs = draw(7000 + seed, 8)
    with disabled_passes(SWITCHED):
        check(program, inputs, library, ["jit"])
