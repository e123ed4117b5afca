"""A short run of random programs on every device; the module run as a command is the long one."""

import numpy as np
import pytest

from tests.random_programs.check import Mismatch, check, compare, shrink, some_modes
from tests.random_programs.draw import draw
from tests.random_programs.libraries import Traced
from tests.random_programs.program import Program, Step, Type, run
from tests.random_programs.reference import Reference


@pytest.fixture(scope="module")
def library():
    return Traced("amdjax")


@pytest.mark.parametrize("seed", range(10))
def test_programs(library, seed):
    program, inputs = draw(seed, 40)
    check(program, inputs, library, some_modes(seed))


@pytest.mark.devices
@pytest.mark.parametrize("seed", range(100, 104))
def test_programs_on_devices(library, device, seed):
    program, inputs = draw(seed, 14)
    check(program, inputs, library, ["jit"])


def test_programs_are_drawn_again():
    assert draw(7)[0] == draw(7)[0]
    assert draw(7)[0] != draw(8)[0]


class Wrong(Traced):
    """A library whose `sort` forgets to sort long arrays."""

    def sort(self, x, axis):
        return x if x.shape[axis] > 4 else super().sort(x, axis)


@pytest.mark.turns(3)
def test_a_wrong_library_is_found_and_the_program_shrunk():
    """The net itself: some program of a few notices, and little of it is left in the end."""
    library = Wrong("amdjax")

    def fails(program, inputs):
        try:
            check(program, inputs, library, ["eager"])
        except Mismatch:
            return True
        return False

    found = next(
        (program, inputs)
        for program, inputs in map(draw, range(100))
        if "sort" in program.names() and fails(program, inputs)
    )
    small = shrink(found[0], lambda p: fails(p, found[1]))
    assert "sort" in small.names() and small.operations() <= 4, str(small)


def test_bounds_follow_rounding():
    """Rounding is allowed what it does to this program, and no more."""
    x = np.linspace(1, 2, 50, dtype=np.float32)
    t = Type((50,), "float32")
    step = Step("unary", (0,), {"name": "sin"}, (t,))
    program = Program((t,), (step,), (1,))
    wanted = [run(program, Reference(s), [x.astype(float)])[0] for s in (None, 1, 2)]
    compare("right", np.sin(x), t, wanted)
    with pytest.raises(Mismatch, match="1 of 50 differ, first at"):
        compare("wrong", np.sin(x) + np.eye(50, dtype="f")[3] * 1e-4, t, wanted)
    with pytest.raises(Mismatch, match="float64"):
        compare("dtype", np.sin(x.astype(float)), t, wanted)
