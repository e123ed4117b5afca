"""Memory spaces in types: what puts values there, what keeps them there, what is refused.

Types and messages are those that JAX 0.10.2 gives for the same programs.
"""

import copy
import pickle
import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import P, checkpoint_policies as policies, lax
from amdjax.ad_checkpoint import checkpoint_name
from amdjax.core.aval import ShapedArray
from amdjax.core.check import check_jaxpr
from amdjax.core.parse import parse_jaxpr
from amdjax.memory import Space
from amdjax.sharding import Mesh, NamedSharding, SingleDeviceSharding


def device():
    return amdjax.devices()[0]


def sharding(kind=None):
    return SingleDeviceSharding(device(), memory_kind=kind)


def named(kind=None):
    return NamedSharding(Mesh(amdjax.devices()[:1], "i"), P("i"), memory_kind=kind)


to_host = lambda x: amdjax.device_put(x, Space.Host)
to_device = lambda x: amdjax.device_put(x, Space.Device)


def host(*shape):
    return to_host(jnp.arange(1.0, 1.0 + np.prod(shape)).reshape(shape))


def types(f, *args):
    """The types of results, as JAX writes them."""
    return [str(a) for a in amdjax.make_jaxpr(f)(*args).out_avals]


def test_types():
    aval = ShapedArray((2, 3), "float32", memory_space=Space.Host)
    assert str(aval) == "float32<host>[2,3]" and aval.str_short() == "f32<host>[2,3]"
    assert repr(aval) == "ShapedArray(float32<host>[2,3])"
    plain = ShapedArray((2, 3), "float32")
    assert plain.memory_space is Space.Device and aval is not plain
    assert aval.update(memory_space=Space.Device) is plain
    assert aval.update(shape=(6,)).memory_space is aval.to_tangent().memory_space is Space.Host
    assert pickle.loads(pickle.dumps(aval)) is copy.deepcopy(aval) is aval


def test_memories_of_devices():
    here = device()
    assert [m.kind for m in here.addressable_memories()] == ["device", "pinned_host"]
    assert here.default_memory() == here.memory("device")
    assert here.memory("pinned_host").addressable_by_devices() == [here]
    with pytest.raises(amdjax.errors.JaxRuntimeError, match=r"kinds: device, pinned_host\. Got"):
        here.memory("odd")


def test_kinds_of_shardings():
    there, here = sharding("pinned_host"), sharding()
    assert here.memory_kind == "device" and there.memory_kind == "pinned_host"
    assert sharding("device") == here != there == here.with_memory_kind("pinned_host")
    on_mesh = named("pinned_host")
    assert "memory_kind=pinned_host" in repr(on_mesh)
    assert not on_mesh.is_equivalent_to(on_mesh.with_memory_kind("device"), 1)
    with pytest.raises(ValueError, match="memory kind"):
        sharding("unpinned_host")


@pytest.mark.parametrize("made", [sharding, named])
def test_arrays(made):
    where = made("pinned_host")
    x = amdjax.device_put(np.arange(4.0, dtype=np.float32), where)
    assert x.sharding == where and x.committed and str(x.aval) == "float32<host>[4]"
    assert (x + 1).sharding == (x + 1)[0:2].sharding == where
    np.testing.assert_array_equal(x + 1, [1, 2, 3, 4])
    back = amdjax.device_put(x, where.with_memory_kind("device"))
    assert back.sharding.memory_kind == "device" and (back + jnp.ones(4)).aval.ndim == 1
    np.testing.assert_array_equal(back, x)
    assert amdjax.device_put(x, Space.Host) is x and amdjax.device_put(x, Space.Any) is x
    assert amdjax.device_put(x, device()).sharding.memory_kind == "device"
    assert copy.copy(x).sharding.memory_kind == "pinned_host"
    assert amdjax.typeof(x).memory_space is Space.Host


#: Of an array in the host's memory; what the result is.
TYPES = {
    "add": (lambda x: x + 1.0, "float32<host>[4]"),
    "both": (lambda x: x * x, "float32<host>[4]"),
    "slice": (lambda x: x[1:3], "float32<host>[2]"),
    "reshape": (lambda x: x.reshape(2, 2).T, "float32<host>[2,2]"),
    "sum": (jnp.sum, "float32<host>[]"),
    "dot": (lambda x: x @ x, "float32<host>[]"),
    "convert": (lambda x: x.astype(jnp.float16), "float16<host>[4]"),
    "concatenate": (lambda x: jnp.concatenate([x, x]), "float32<host>[8]"),
    "scatter": (lambda x: x.at[jnp.array([1])].set(0.0), "float32<host>[4]"),
    "zeros": (jnp.zeros_like, "float32[4]"),
    "put": (lambda x: to_device(x) + jnp.ones(4), "float32[4]"),
    "sharding": (lambda x: amdjax.device_put(x, sharding()) + jnp.ones(4), "float32[4]"),
    "any": (lambda x: amdjax.device_put(x, Space.Any), "float32<host>[4]"),
    "cond": (lambda x: lax.cond(True, lambda x: x, lambda x: 2 * x, x), "float32<host>[4]"),
    "jit": (amdjax.jit(lambda x: x + 1), "float32<host>[4]"),
    "custom": (lambda x: amdjax.nn.relu(x), "float32<host>[4]"),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_of_results(name):
    f, expected = TYPES[name]
    x = host(4)
    assert types(f, x) == [expected]
    out, plain = amdjax.jit(f)(x), to_device(x)
    assert str(out.aval) == expected
    np.testing.assert_array_equal(out, f(plain))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + jnp.ones(4),
        lambda x: jnp.where(x > 0, x, 0),
        lambda x: jnp.concatenate([x, jnp.ones(4)]),
        lambda x: x @ jnp.ones(4),
    ],
)
@pytest.mark.parametrize("how", [lambda f: f, amdjax.jit, amdjax.make_jaxpr])
def test_mixed_operands_are_refused(f, how):
    with pytest.raises(ValueError, match=r"memory_space of all inputs passed to `.*` must be"):
        how(f)(host(4))


def test_loops_keep_memory_spaces():
    with pytest.raises(TypeError, match="32<host>"):
        lax.while_loop(lambda c: True, to_device, host(4))
    with pytest.raises(TypeError, match="branches"):
        lax.cond(True, lambda x: x, lambda x: jnp.ones(4), host(4))
    total, ys = lax.scan(lambda c, x: (c + to_device(x), to_host(c)), jnp.zeros(()), host(4))
    assert float(total) == 10 and str(ys.aval) == "float32<host>[4]"
    np.testing.assert_array_equal(ys, [0, 1, 3, 6])
    carried = lambda x: lax.fori_loop(0, 3, lambda i, c: c + 1, x)
    assert types(carried, host(4)) == ["float32<host>[4]"]


def test_programs_are_read_as_printed():
    def f(x, y):
        return lax.scan(lambda c, x: (c + to_device(x), to_host(c)), jnp.sum(to_device(y)), x)

    closed = amdjax.make_jaxpr(f)(host(3), host(2, 2))
    for exact in (False, True):
        text = closed.jaxpr.pretty_print(exact=exact)
        assert "f32<host>[2,2]" in text and "devices=(MemorySpace.Device,)" in text
        read = parse_jaxpr(text)
        check_jaxpr(read)
        assert [str(a) for a in read.out_avals] == ["float32[]", "float32<host>[3]"]
    placed = amdjax.make_jaxpr(lambda x: amdjax.device_put(x, sharding("pinned_host")))(jnp.ones(3))
    check_jaxpr(parse_jaxpr(str(placed)))
    wrong = "{ lambda ; a:f32<host>[3]. let b:f32[3] = neg a in (b,) }"
    with pytest.raises(amdjax.errors.JaxprTypeError, match=r"the operation gives f32<host>\[3\]"):
        check_jaxpr(parse_jaxpr(wrong))


def test_derivatives_go_back_to_where_values_came_from():
    def f(x):
        return jnp.sum(jnp.sin(to_device(to_host(x) * 2.0)))

    x = jnp.arange(3.0)
    np.testing.assert_allclose(amdjax.grad(f)(x), 2 * np.cos(2 * x), rtol=1e-6)
    wanted = ["float32[3]"]
    assert types(amdjax.grad(f), x) == wanted
    assert types(lambda x: amdjax.jvp(f, (x,), (x,))[1], x) == ["float32[]"]
    weights = host(3)
    slope = lambda w: amdjax.grad(lambda w: jnp.sum(to_device(w) ** 2))(w)
    assert types(slope, weights) == ["float32<host>[3]"]
    np.testing.assert_array_equal(slope(weights), [2, 4, 6])
    unused = amdjax.grad(lambda w: jnp.sum(to_device(w[:0])))(weights)
    assert str(unused.aval) == "float32<host>[3]" and not unused.any()
    on_host = amdjax.grad(lambda w: jnp.sum(2 * jnp.sum(w * w)))(weights)
    assert str(on_host.aval) == "float32<host>[3]"
    np.testing.assert_array_equal(on_host, [4, 8, 12])


def test_batches():
    f = lambda w, x: (to_device(w) @ x, to_host(x))
    w, x = host(2, 3, 3), jnp.ones((2, 3))
    assert types(amdjax.vmap(f), w, x) == ["float32[2,3]", "float32<host>[2,3]"]
    np.testing.assert_array_equal(amdjax.vmap(f)(w, x)[0], np.asarray(w).sum(-1))


def test_jit_with_memory_kinds():
    there, here = sharding("pinned_host"), sharding()
    f = amdjax.jit(lambda x: x * 2, out_shardings=there)
    out = f(jnp.ones(3))
    assert out.sharding == there and str(out.aval) == "float32<host>[3]"
    compiled = f.lower(jnp.ones(3)).compile()
    assert compiled(jnp.ones(3)).sharding.memory_kind == "pinned_host"
    assert types(f, jnp.ones(3)) == ["float32<host>[3]"]
    g = amdjax.jit(lambda x: x * 2, in_shardings=there, out_shardings=here)
    assert g(host(3)).sharding == here
    with pytest.raises(ValueError, match="does not match memory kind on the respective arg"):
        g(jnp.ones(3))
    with pytest.raises(ValueError, match="Memory kinds"):
        amdjax.jit(lambda x: x, in_shardings=here)(host(3))
    assert lax.with_sharding_constraint(jnp.ones(3), there).sharding == there


# Policies of checkpoint


def net(x, w):
    y = checkpoint_name(jnp.sin(x @ w), "y")
    z = checkpoint_name(jnp.cos(y @ w), "z")
    return jnp.sum(jnp.sin(z))


def steps(x, w):
    return lax.scan(lambda c, _: (jnp.sin(net(c, w)) + c, None), x, None, length=3)[0].sum()


def scanned(step):
    def f(x, w):
        return lax.scan(lambda c, _: (step(c, w) * c, None), x, None, length=3)[0].sum()

    return f


NAMES = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["y"],
    names_which_can_be_offloaded=["z"],
    offload_src="device",
    offload_dst="pinned_host",
)
DOTS = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
BOTH = policies.save_from_both_policies(NAMES, policies.save_only_these_names("z"))


@pytest.mark.parametrize(
    "policy, on_host, kept",
    [(NAMES, 1, 2), (DOTS, 2, 2), (BOTH, 0, 2)],
    ids=["names", "dots", "both"],
)
@pytest.mark.parametrize(
    "wrap",
    {
        "flat": lambda policy: amdjax.checkpoint(net, policy=policy),
        "in a loop": lambda policy: scanned(amdjax.checkpoint(net, policy=policy)),
        "around a loop": lambda policy: amdjax.checkpoint(steps, policy=policy),
    }.values(),
    ids=["flat", "in a loop", "around a loop"],
)
def test_offloaded_residuals(wrap, policy, on_host, kept):
    x = jnp.linspace(0.1, 1, 16).reshape(4, 4)
    w = jnp.linspace(-1, 1, 16).reshape(4, 4)
    plain = wrap(None)
    f = wrap(policy)
    for how in (lambda g: g, amdjax.jit):
        found, expected = (how(amdjax.grad(g, argnums=(0, 1)))(x, w) for g in (f, plain))
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    text = str(amdjax.make_jaxpr(amdjax.grad(f))(x, w))
    puts = re.findall(r"f32(<host>)?\[[\d,]*\] = device_put", text)
    assert puts.count("<host>") == on_host and puts.count("") == on_host
    check_jaxpr(amdjax.make_jaxpr(amdjax.grad(f))(x, w))


def test_residuals_of_a_loop_are_stacked_in_the_host():
    f = amdjax.checkpoint(steps, policy=NAMES)
    text = str(amdjax.make_jaxpr(amdjax.grad(f))(jnp.ones((4, 4)), jnp.ones((4, 4))))
    assert "f32<host>[3,4,4]" in text and "f32[3,4,4]" in text


def test_policies_that_cannot_be():
    with pytest.raises(ValueError, match="memory kinds"):
        policies.offload_dot_with_no_batch_dims("device", "elsewhere")
    backward = policies.offload_dot_with_no_batch_dims("pinned_host", "device")
    with pytest.raises(ValueError, match="where it is not"):
        amdjax.grad(amdjax.checkpoint(net, policy=backward))(jnp.ones((4, 4)), jnp.ones((4, 4)))
