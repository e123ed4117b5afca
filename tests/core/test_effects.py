"""Which effects may happen where."""

import pytest

import amdjax
from amdjax import lax
from amdjax.core.effects import (
    Effect,
    control_flow_allowed_effects,
    custom_derivatives_allowed_effects,
    remat_allowed_effects,
)
from amdjax.core.primitive import Primitive


class Beep(Effect):
    """Makes a sound."""


class Light(Effect):
    """Is allowed everywhere."""


for allowed in (
    control_flow_allowed_effects,
    custom_derivatives_allowed_effects,
    remat_allowed_effects,
):
    allowed.add_type(Light)

act_p = Primitive("act")
act_p.def_abstract_eval(lambda x, *, effect: x)
act_p.def_effects(lambda x, *, effect: frozenset((effect,)))
act_p.def_jvp(lambda p, t, *, effect: (act_p.bind(*p, effect=effect), t[0]))

PLACES = {
    "cond": lambda f: lambda x: lax.cond(x > 0, f, lambda x: x, x),
    "while": lambda f: lambda x: lax.while_loop(lambda x: x < 3, f, x),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
    "custom_jvp": amdjax.custom_jvp,
    "custom_vjp": amdjax.custom_vjp,
    "checkpoint": lambda f: amdjax.grad(amdjax.checkpoint(f)),
}


def place(name, effect):
    fun = PLACES[name](lambda x: act_p.bind(x, effect=effect))
    for setter in ("defjvp", "defvjp"):
        if hasattr(fun, setter):
            getattr(fun, setter)(*(lambda *_: None,) * (1 + (setter == "defvjp")))
    return fun


@pytest.mark.parametrize("name", PLACES)
def test_effects_of_unknown_kinds_are_refused(name):
    with pytest.raises(NotImplementedError, match=f"Effects not supported in .*{name}.*Beep"):
        amdjax.make_jaxpr(place(name, Beep()))(1.0)


@pytest.mark.parametrize("name", PLACES)
def test_effects_of_allowed_kinds_are_those_of_the_whole(name):
    effect = Light()
    closed = amdjax.make_jaxpr(place(name, effect))(1.0)
    assert effect in closed.effects


def test_programs_declare_their_effects():
    jaxpr = amdjax.make_jaxpr(lambda x: act_p.bind(x, effect=Beep()))(1.0).jaxpr
    with pytest.raises(TypeError, match="Equation effect not present in jaxpr effects"):
        amdjax.core.check_jaxpr(jaxpr.replace(effects=frozenset()))
