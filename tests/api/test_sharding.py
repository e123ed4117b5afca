"""Shardings over one device: the types, where they are taken, and what they refuse."""

import copy
import pickle

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.sharding import (
    AbstractMesh,
    AxisType,
    IndivisibleError,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    SingleDeviceSharding,
)


@pytest.fixture
def mesh():
    return Mesh(np.array(amdjax.devices()[:1]).reshape(1, 1), ("i", "j"))


class Pretended:
    """A device that is none, for what can be said without arrays."""

    platform, device_kind, process_index = "cpu", "pretended", 0

    def __init__(self, id):
        self.id = id


@pytest.fixture
def four():
    return Mesh(np.array([Pretended(i) for i in range(4)]).reshape(2, 2), ("i", "j"))


def test_specifications():
    assert repr(P("x", None, ("y", "z"))) == "P('x', None, ('y', 'z'))"
    assert P(("x",)) is P("x") and P([], "y") is P(None, "y")
    assert P("x") + P("y") is P("x", "y") and P("x") + (None,) is P("x", None)
    assert tuple(P("x", None)) == ("x", None) and P("x", "y").index("y") == 1
    assert len({P("x"), P("x"), P("y")}) == 2
    assert pickle.loads(pickle.dumps(P("x", P.UNCONSTRAINED))) is P("x", P.UNCONSTRAINED)
    assert copy.deepcopy(P("x")) is P("x")
    assert amdjax.tree.leaves({"a": P("x"), "b": P()}) == [P("x"), P()]
    with pytest.raises(ValueError, match="overlap"):
        P("x", unreduced={"x"})


def test_meshes(mesh):
    assert mesh is Mesh(mesh.devices, ["i", "j"]) and mesh.size == 1 and not mesh.empty
    assert mesh.shape == {"i": 1, "j": 1} and mesh.axis_types == (AxisType.Auto,) * 2
    assert str(mesh) == "Mesh('i': 1, 'j': 1, axis_types=(Auto, Auto))"
    assert mesh.abstract_mesh is AbstractMesh(
        (1, 1), ("i", "j"), abstract_device=mesh.abstract_mesh.abstract_device
    )
    assert amdjax.make_mesh((1,), ("i",)).axis_types == (AxisType.Explicit,)
    with pytest.raises(ValueError, match="ndim"):
        Mesh(mesh.devices, "i")
    with pytest.raises(ValueError, match="appears twice"):
        Mesh(amdjax.devices()[:1] * 2, "i")
    with pytest.raises(ValueError, match=r"Number of devices \d+ must be >= .* \(1024,\)"):
        amdjax.make_mesh((1024,), ("i",))
    with pytest.raises(ValueError, match="None"):
        Mesh(mesh.devices, ("i", None))


def test_the_current_mesh(mesh):
    from amdjax.sharding import get_abstract_mesh, get_mesh

    assert get_mesh().empty and get_abstract_mesh().empty
    with amdjax.set_mesh(mesh):
        assert get_mesh() is mesh
        x = amdjax.device_put(jnp.ones(2), P("i"))
        assert x.sharding == NamedSharding(mesh, P("i"))
        with pytest.raises(ValueError, match="outside of"):
            amdjax.jit(lambda x: amdjax.set_mesh(None) or x)(1.0)
    assert get_mesh().empty
    with pytest.raises(ValueError, match="current mesh"):
        amdjax.device_put(jnp.ones(2), P("i"))


def test_parts_of_arrays_over_several_devices(four):
    sharding = NamedSharding(four, P("i", ("j",)))
    assert sharding.shard_shape((4, 6)) == (2, 3) and not sharding.is_fully_replicated
    indices = sharding.devices_indices_map((4, 6))
    parts = {d.id: np.arange(24).reshape(4, 6)[index] for d, index in indices.items()}
    assert np.block([[parts[0], parts[1]], [parts[2], parts[3]]]).tolist() == (
        np.arange(24).reshape(4, 6).tolist()
    )
    both = NamedSharding(four, P(("j", "i")))
    starts = [index[0].start for index in both.devices_indices_map((8,)).values()]
    assert starts == [0, 4, 2, 6]
    with pytest.raises(IndivisibleError, match="axis 0 is partitioned 2 times"):
        sharding.shard_shape((3, 6))
    assert NamedSharding(four, P()).is_fully_replicated
    assert sharding.is_equivalent_to(NamedSharding(four, P("i", "j")), 2)
    assert not sharding.is_equivalent_to(NamedSharding(four, P("j", "i")), 2)


def test_nothing_pretends_to_shard(four):
    sharding = NamedSharding(four, P("i"))
    for attempt in (
        lambda: amdjax.device_put(jnp.ones(4), sharding),
        lambda: amdjax.jit(lambda x: x, in_shardings=sharding),
        lambda: amdjax.jit(lambda x: lax.with_sharding_constraint(x, sharding))(jnp.ones(4)),
        lambda: amdjax.shard_map(lambda x: x, mesh=four, in_specs=P("i"), out_specs=P("i"))(
            jnp.ones(4)
        ),
    ):
        with pytest.raises(NotImplementedError, match="4 devices"):
            attempt()


def test_arrays_say_where_they_are(mesh):
    x = jnp.ones((2, 3))
    assert x.sharding == SingleDeviceSharding(amdjax.devices()[0]) and not x.committed
    y = amdjax.device_put(x, NamedSharding(mesh, P("i", None)))
    assert y.committed and y.sharding.spec == P("i", None) and y.is_fully_replicated
    (shard,) = y.addressable_shards
    assert shard.device == amdjax.devices()[0] and shard.index == (slice(None),) * 2
    np.testing.assert_array_equal(shard.data, x)
    assert amdjax.typeof(y).sharding.spec == P(None, None)
    assert y.format.layout.major_to_minor == (0, 1)
    assert copy.deepcopy(y).sharding == y.sharding
    with pytest.raises(ValueError, match="rank at least 2"):
        amdjax.device_put(jnp.ones(2), NamedSharding(mesh, P("i", "j")))
    tree = amdjax.device_put({"a": x, "b": x}, {"a": y.sharding, "b": amdjax.devices()[0]})
    assert tree["a"].sharding == y.sharding and tree["b"].committed
    with pytest.raises(AttributeError):
        amdjax.jit(lambda x: x.sharding)(x)


def test_shardings_of_jitted_functions(mesh):
    rows, whole = NamedSharding(mesh, P("i")), NamedSharding(mesh, P())
    f = amdjax.jit(
        lambda x, y: {"sum": x + y, "total": (x * y).sum()},
        in_shardings=(rows, None),
        out_shardings={"sum": rows, "total": whole},
    )
    out = f(np.arange(3.0, dtype=np.float32), 1.0)
    assert out["sum"].sharding == rows and out["total"].sharding == whole
    x = np.arange(3.0, dtype=np.float32)
    for told in (f.eval_shape(x, 1.0), amdjax.eval_shape(f, x, 1.0), f.lower(x, 1.0).out_info):
        assert told["sum"].shape == (3,) and told["sum"].sharding == rows
        assert told["total"].sharding == whole
    np.testing.assert_array_equal(out["sum"], [1.0, 2.0, 3.0])
    assert amdjax.jit(lambda x: f(x, 2.0)["total"])(jnp.ones(3)) == 6.0
    with pytest.raises(ValueError, match="in_shardings"):
        amdjax.jit(lambda x, y: x, in_shardings=(rows, rows, rows))(jnp.ones(3), jnp.ones(3))
    with pytest.raises(ValueError, match="rank at least 1"):
        amdjax.jit(lambda x: x.sum(), out_shardings=rows)(jnp.ones(3))
    with pytest.raises(ValueError, match="keyword"):
        amdjax.jit(lambda x: x, in_shardings=rows)(x=jnp.ones(3))


def test_constraints_inside_programs(mesh):
    rows = NamedSharding(mesh, P("i"))
    f = lambda x: lax.with_sharding_constraint({"a": x * 2}, rows)["a"].sum()
    assert amdjax.jit(f)(jnp.ones(3)) == 6.0
    np.testing.assert_array_equal(amdjax.jit(amdjax.grad(f))(jnp.ones(3)), [2.0] * 3)
    with pytest.raises(ValueError, match="rank at least 1"):
        amdjax.jit(f)(1.0)


def test_shard_map(mesh):
    def f(x, w):
        i = lax.axis_index("i")
        gathered = lax.all_gather(x, "i", tiled=True)
        return lax.psum(gathered @ w, ("i", "j")) + i, lax.pmean(x.sum(), "j")

    mapped = amdjax.shard_map(f, mesh=mesh, in_specs=(P("i", "j"), P()), out_specs=(P("i"), P()))
    x, w = jnp.arange(6.0).reshape(2, 3), jnp.ones(3)
    for call in (mapped, amdjax.jit(mapped)):
        product, mean = call(x, w)
        np.testing.assert_array_equal(product, x @ w)
        assert mean == x.sum()
    slope = amdjax.grad(lambda w: mapped(x, w)[0].sum())(w)
    np.testing.assert_array_equal(slope, x.sum(0))
    only_i = amdjax.shard_map(
        lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"}
    )
    np.testing.assert_array_equal(only_i(w), w)
    with pytest.raises(ValueError, match="refers to 'k'"):
        amdjax.shard_map(lambda x: x, mesh=mesh, in_specs=P("k"), out_specs=P())(w)
    with pytest.raises(ValueError, match="rank is too small"):
        amdjax.shard_map(lambda x: x, mesh=mesh, in_specs=P("i", "j"), out_specs=P())(w)
    with pytest.raises(TypeError, match="PartitionSpec"):
        amdjax.shard_map(lambda x: x, mesh=mesh, in_specs="i", out_specs=P())(w)
    with pytest.raises(ValueError, match="context mesh cannot be empty"):
        amdjax.shard_map(lambda x: x, in_specs=P("i"), out_specs=P("i"))(w)
    with amdjax.set_mesh(mesh):
        smapped = amdjax.smap(lambda x: lax.psum(x, "i"), in_axes=0, out_axes=0, axis_name="i")
        np.testing.assert_array_equal(smapped(w), w)


def test_pmap_runs_the_function_itself():
    """Callbacks need no rule for batches, and what is mapped may be returned as it is."""
    x = jnp.arange(3.0)[None]
    seen = amdjax.pmap(lambda x: amdjax.pure_callback(np.sin, x, x))(x)
    np.testing.assert_allclose(seen, np.sin(x), rtol=1e-6)
    one = amdjax.pmap(lambda x, k: (x, x + k, lax.axis_index("i")), "i", out_axes=(None, 1, 0))
    whole, second, index = one(x, k=jnp.ones(1))
    np.testing.assert_array_equal(whole, x[0])
    assert second.shape == (3, 1) and index.shape == (1,)
    np.testing.assert_array_equal(
        amdjax.grad(lambda x: one(x, k=jnp.ones(1))[0].sum())(x), [[1] * 3]
    )
    assert amdjax.pmap(lambda x: lax.psum(x, "i"), "i")(np.array([True])).dtype == np.int32


def test_pmap_refuses():
    x = jnp.ones(1)
    with pytest.raises(ValueError, match="keyword is mapped"):
        amdjax.pmap(lambda x, y: x, in_axes=(0, 0))(x=x, y=x)
    with pytest.raises(ValueError, match="different lengths of tuple"):
        amdjax.pmap(lambda x, y: x[0], in_axes=((0, 0, 0), 0))((x, x), x)
    with pytest.raises(ValueError, match="along axis 1"):
        amdjax.pmap(lambda x: x, in_axes=1)(x)
    with pytest.raises(ValueError, match="out_axes places the mapped axis at 1"):
        amdjax.pmap(lambda x: x, out_axes=1)(x)


def test_pmap():
    f = amdjax.pmap(lambda x, n: lax.psum(x * n, "i"), axis_name="i", in_axes=(0, None))
    np.testing.assert_array_equal(f(jnp.ones((1, 3)), 2.0), np.full((1, 3), 2.0))
    g = amdjax.pmap(lambda n, x: x * n, static_broadcasted_argnums=0)
    np.testing.assert_array_equal(g(3, jnp.ones((1, 2))), [[3.0, 3.0]])
    with pytest.raises(ValueError, match="requires 1024 logical devices"):
        amdjax.pmap(lambda x: x)(jnp.ones(1024))
    with pytest.raises(ValueError, match="at least one argument with a mapped axis"):
        amdjax.pmap(lambda: 1.0)()
    with pytest.raises(TypeError, match="in_axes"):
        amdjax.pmap(lambda x: x, in_axes="a")


def test_arrays_from_parts(mesh):
    sharding = NamedSharding(mesh, P("i"))
    data = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    made = amdjax.make_array_from_callback((2, 3), sharding, lambda index: data[index])
    assert made.sharding == sharding
    np.testing.assert_array_equal(made, data)
    again = amdjax.make_array_from_single_device_arrays((2, 3), sharding, [made])
    local = amdjax.make_array_from_process_local_data(sharding, data)
    for x in (again, local):
        np.testing.assert_array_equal(x, data)
    with pytest.raises(ValueError, match="must have shape"):
        amdjax.make_array_from_callback((2, 2), sharding, lambda index: data)


def test_processes():
    assert amdjax.process_index() == 0 and amdjax.process_count() == 1
    assert amdjax.local_devices() == amdjax.devices()
    with pytest.raises(ValueError, match="process"):
        amdjax.local_devices(process_index=1)


ONE = amdjax.devices()[0]
X = jnp.ones(2)
NAMES = amdjax.make_mesh((1, 1), ("x", "y"))
REFUSED = {
    "nested tuple": (lambda: P("x", ("y", ("z",))), ValueError, "nested tuple"),
    "subclass": (lambda: type("Q", (P,), {}), TypeError, "Subclassing `jax.P` is prohibited"),
    "unknown unreduced": (
        lambda: NamedSharding(NAMES, P("x", unreduced={"a"})),
        ValueError,
        "Unreduced axes a .*not found in mesh",
    ),
    "unreduced auto": (
        lambda: NamedSharding(
            amdjax.make_mesh((1, 1), ("x", "y"), axis_types=(AxisType.Auto,) * 2),
            P("x", unreduced={"y"}),
        ),
        ValueError,
        "only refer to mesh axes of type Explicit",
    ),
    "memory": (lambda: NamedSharding(NAMES, P(), memory_kind="odd"), ValueError, "memory kind"),
    "add": (lambda: P("x", unreduced={"y"}) + (None,), TypeError, "unreduced in `__add__`"),
    "radd": (lambda: (None, *()) + P("x", unreduced={"y"}), TypeError, "unreduced in `__radd__`"),
    "not a list": (
        lambda: amdjax.make_array_from_single_device_arrays((2,), X.sharding, X),
        TypeError,
        "`arrays` argument must be a list",
    ),
    "traced parts": (
        lambda: amdjax.jit(
            lambda x: amdjax.make_array_from_single_device_arrays((2,), X.sharding, [x])
        )(X),
        ValueError,
        "requires a list of concrete arrays",
    ),
    "dtype of parts": (
        lambda: amdjax.make_array_from_single_device_arrays((2,), X.sharding, [X], dtype=np.int8),
        ValueError,
        "must match the dtype of the addressable shards",
    ),
    "shapes of parts": (
        lambda: amdjax.make_array_from_process_local_data(ONE, {"a": X}, {"a": (3,)}),
        ValueError,
        "global_shape is .3",
    ),
    "structure of shapes": (
        lambda: amdjax.make_array_from_process_local_data(ONE, {"a": X}, {"a": (2,), "b": (2,)}),
        ValueError,
        "key path|metadata",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case):
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


def test_structs_of_arrays_that_may_move_have_no_sharding():
    assert amdjax.ShapeDtypeStruct.like(jnp.ones(2)).sharding is None
    put = amdjax.device_put(jnp.ones(2), ONE)
    assert amdjax.ShapeDtypeStruct.like(put).sharding == put.sharding
