"""Which sharding a result has, over a mesh of one device: values as JAX gives them."""

import pickle

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, random
from amdjax.experimental.layout import Format, Layout, with_layout_constraint
from amdjax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    SingleDeviceSharding,
    auto_axes,
    reshard,
    use_abstract_mesh,
)

MESHES = {
    kind: amdjax.make_mesh((1, 1), ("x", "y"), axis_types=(kind,) * 2)
    for kind in (AxisType.Auto, AxisType.Explicit)
}
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def rows(mesh):
    return NamedSharding(mesh, P("x"))


# Of x, 4 × 2, divided along its rows: the specification of the result if axes are of type Auto,
# and if they are Explicit; one if both are the same; None if it is on a device, not on the mesh.
OPERATIONS = {
    "itself": (lambda x: x[:], P("x")),
    "device_put": (lambda x: amdjax.device_put(x), P("x")),
    "with an array that is anywhere": (lambda x: x * 2 + X, P("x"), P("x", None)),
    "transpose": (lambda x: x.T, P("x"), P(None, "x")),
    "sum": (lambda x: x.sum(), P()),
    "sum of columns": (lambda x: x.sum(0), P(), P(None)),
    "sum of rows": (lambda x: x.sum(1), P(), P("x")),
    "element": (lambda x: x[0], P(), P(None)),
    "slice": (lambda x: x[:2], P("x"), P("x", None)),
    "joined axes": (lambda x: x.reshape(8), P(), P("x")),
    "split axes": (lambda x: x.reshape(2, 2, 2), P(), P("x", None, None)),
    "new axis": (lambda x: x[:, None], P(), P("x", None, None)),
    "concatenate": (lambda x: jnp.concatenate([x, x]), P("x"), P("x", None)),
    "where": (lambda x: jnp.where(x > 1, x, 0), P("x"), P("x", None)),
    "product": (lambda x: x @ X.T, P("x"), P("x", None)),
    "sort": (lambda x: jnp.sort(x), P("x"), P("x", None)),
    "jit": (amdjax.jit(lambda x: x), P("x"), P("x", None)),
    "result of nothing": (amdjax.jit(lambda x: (x, jnp.ones(3))[1]), None),
    "another argument": (lambda x: amdjax.jit(lambda x, y: y + 1)(x, X), None),
    "result of another": (lambda x: amdjax.jit(lambda x, y: (x, y))(x, X)[1], P()),
    "donated": (
        lambda x: amdjax.jit(lambda x: x + 1, donate_argnums=0)(x.copy()), P("x"), P("x", None)
    ),
    "constant": (lambda x: amdjax.jit(lambda: x * 2)(), None, P("x", None)),
    "zeros_like": (jnp.zeros_like, P("x")),
    "full_like": (lambda x: lax.full_like(x, 2, shape=(4,)), P("x")),
    "astype": (lambda x: x.astype(int), P("x"), P("x", None)),
    "gradient": (amdjax.grad(lambda x: (x * x).sum()), P("x"), P("x", None)),
    "compiled gradient": (amdjax.jit(amdjax.grad(lambda x: (x * x).sum())), P("x"), P("x", None)),
    "vmap": (amdjax.vmap(lambda x: x * 2), P("x"), P("x", None)),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0, 0] < 3, lambda x: x + 1, x), P("x"), P("x", None)
    ),
    "another one": (
        lambda x: amdjax.device_put(x, NamedSharding(x.sharding.mesh, P(None, "x"))), P(None, "x")
    ),
    "told": (
        lambda x: amdjax.jit(
            lambda x: x * 2, out_shardings=NamedSharding(x.sharding.mesh, P("x", "y"))
        )(X),
        P("x", "y"),
    ),
    "one was told": (
        lambda x: amdjax.jit(lambda x: (x, x + 1), out_shardings=(x.sharding, None))(X)[1], P()
    ),
    "arguments were told": (lambda x: amdjax.jit(lambda x: x, in_shardings=x.sharding)(X), P()),
    "made": (lambda x: lax.full((4,), 2.0, sharding=x.sharding), P("x")),
    "zeros": (lambda x: jnp.zeros(4, device=x.sharding), P("x")),
    "key": (lambda x: amdjax.device_put(random.key(0), NamedSharding(x.sharding.mesh, P())), P()),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", MESHES, ids=str)
def test_shardings_follow_from_arguments(kind, name):
    call, *specs = OPERATIONS[name]
    mesh = MESHES[kind]
    out = call(amdjax.device_put(X, rows(mesh)))
    spec = specs[-1 if kind is AxisType.Explicit else 0]
    here = SingleDeviceSharding(amdjax.devices()[0])
    assert out.sharding == (here if spec is None else NamedSharding(mesh, spec))


# With the mesh the current one, of a NumPy array; None for what is refused.
IN_CONTEXT = {
    "ones": (lambda x: jnp.ones(3), P(), P(None)),
    "array": (lambda x: jnp.array([1.0]), P()),
    "operation": (lambda x: jnp.asarray(x) * 2, P(), P(None, None)),
    "jit": (amdjax.jit(lambda x: x * 2), P(), P(None, None)),
    "device_put": (lambda x: amdjax.device_put(x, P("x")), P("x")),
    "random": (lambda x: random.normal(random.key(0), (4,)), P(), P(None)),
    "reshard": (lambda x: reshard(x, P("x")), None, P("x", None)),
    "reshard inside": (amdjax.jit(lambda x: reshard(x, P("x")) * 2), None, P("x", None)),
    "zeros": (lambda x: jnp.zeros(4, out_sharding=P("x")), None, P("x")),
    "zeros inside": (amdjax.jit(lambda: jnp.zeros(4, out_sharding=P("x"))), None, P("x")),
    "numbers": (lambda x: random.normal(random.key(0), (4,), out_sharding=P("x")), None, P("x")),
    "einsum": (
        lambda x: jnp.einsum("ij,kj->ik", x, x, out_sharding=P("x")), None, P("x", None)
    ),
    "gather": (
        lambda x: jnp.asarray(x).at[jnp.array([0])].get(out_sharding=P("x")), None, P("x", None)
    ),
    "auto_axes": (
        lambda x: auto_axes(lambda x: jnp.asarray(x) * 2, out_sharding=P("x"))(x), P(), P("x", None)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_CONTEXT)
@pytest.mark.parametrize("kind", MESHES, ids=str)
def test_the_current_mesh_is_where_results_are(kind, name):
    call, *specs = IN_CONTEXT[name]
    mesh, spec = MESHES[kind], specs[-1 if kind is AxisType.Explicit else 0]
    argument = () if name.endswith("zeros inside") else (X,)
    with amdjax.set_mesh(mesh):
        if spec is None:
            with pytest.raises(ValueError, match="cannot contain axis names that are of type Auto"):
                call(*argument)
        else:
            assert call(*argument).sharding == NamedSharding(mesh, spec)


def test_types_say_how_explicit_axes_divide():
    for kind, spec in ((AxisType.Auto, P(None, None)), (AxisType.Explicit, P("x", None))):
        put = amdjax.device_put(X, rows(MESHES[kind]))
        assert amdjax.typeof(put).sharding == NamedSharding(MESHES[kind].abstract_mesh, spec)
    two = AbstractMesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    kept = amdjax.core.ShapedArray((8, 2), np.float32, sharding=NamedSharding(two, P("x")))
    assert kept.sharding.spec == P("x", None) and pickle.loads(pickle.dumps(kept)) is kept
    with pytest.raises(ValueError, match="evenly divide"):
        kept.update(shape=(5, 2), sharding=NamedSharding(two, P("x")))


def test_what_programs_say_of_their_values():
    auto = rows(MESHES[AxisType.Auto])
    for inside in (
        lambda x: lax.with_sharding_constraint(x * 2, auto),
        lambda x: amdjax.jit(lambda x: x * 2, out_shardings=auto)(x),
        lambda x: amdjax.jit(lambda x: x * 2, in_shardings=auto)(x),
        amdjax.shard_map(lambda x: x * 2, mesh=auto.mesh, in_specs=P("x"), out_specs=P("x")),
    ):
        assert amdjax.jit(inside)(X).sharding == NamedSharding(auto.mesh, P())
    assert inside(X).sharding == auto


def test_results_of_pmap():
    for axes, spec in ((0, P("i")), (1, P(None, "i")), (None, P())):
        mapped = amdjax.pmap(lambda x: x * 2, "i", out_axes=axes)(X[:1])
        mesh = Mesh(amdjax.devices()[:1], "i")
        assert mapped.sharding == NamedSharding(mesh, spec)
        assert (mapped + 1).sharding == mapped.sharding


def test_what_a_reference_holds_keeps_its_sharding():
    put = amdjax.device_put(X, rows(MESHES[AxisType.Auto]))
    ref = amdjax.new_ref(put)

    @amdjax.jit
    def write():
        ref[...] = ref[...] + 1
        return ref[...]

    assert write().sharding == ref.sharding == ref[...].sharding
    assert ref.sharding.mesh is put.sharding.mesh


def test_a_device_is_no_mesh():
    device = amdjax.devices()[0]
    put = amdjax.device_put(X, rows(MESHES[AxisType.Auto]))
    assert amdjax.device_put(put, device).sharding == SingleDeviceSharding(device)
    assert amdjax.jit(jnp.sin, out_shardings=SingleDeviceSharding(device))(put).sharding == (
        SingleDeviceSharding(device)
    )
    again = pickle.loads(pickle.dumps(put))
    assert again.sharding == SingleDeviceSharding(device) and not again.committed


def test_what_cannot_be_is_refused():
    explicit, auto = MESHES[AxisType.Explicit], MESHES[AxisType.Auto]
    other = amdjax.make_mesh((1,), ("z",))
    with amdjax.set_mesh(explicit), pytest.raises(ValueError, match=r"context mesh.*aval mesh"):
        amdjax.jit(jnp.add)(X, amdjax.device_put(X, NamedSharding(other, P())))
    with pytest.raises(ValueError, match="can only refer to Auto axes"):
        lax.with_sharding_constraint(X, rows(explicit))
    with pytest.raises(ValueError, match="not under a mesh context"):
        jnp.einsum("ij,jk->ik", X, X.T, out_sharding=P("x"))
    with pytest.raises(ValueError, match="Unconstrained dims are not allowed"):
        amdjax.jit(jnp.sin, in_shardings=NamedSharding(auto, P(P.UNCONSTRAINED)))
    with pytest.raises(ValueError, match="got an empty NamedSharding"):
        amdjax.jit(jnp.sin, out_shardings=NamedSharding(amdjax.sharding.get_mesh(), P()))
    here = SingleDeviceSharding(amdjax.devices()[0])
    with pytest.raises(ValueError, match=r"spmd_axis_name .*SingleDeviceSharding"):
        constrain = lambda x: lax.with_sharding_constraint(x, here)
        amdjax.jit(amdjax.vmap(constrain, spmd_axis_name="x"))(X)
    with pytest.raises(ValueError, match="sharding None which is not allowed"):
        lax.with_sharding_constraint(X, None)
    inner = amdjax.jit(jnp.sin, compiler_options={"fast": True})
    with pytest.raises(ValueError, match="can only be passed to top-level"):
        amdjax.jit(lambda x: inner(x))(X)


def test_layouts():
    here = SingleDeviceSharding(amdjax.devices()[0])
    for order in ((0, 1), Layout.AUTO, None):
        form = Format(Layout(order) if isinstance(order, tuple) else order, here)
        assert amdjax.jit(jnp.sin, in_shardings=form, out_shardings=form)(X).sharding == here
    assert amdjax.jit(jnp.sin, in_shardings=Format(Layout.AUTO))(X).shape == (4, 2)
    three, columns = Format(Layout((0, 1, 2)), here), Format(Layout((1, 0)), here)
    for put in (
        lambda form: amdjax.device_put(X, form),
        lambda form: amdjax.jit(jnp.sin, in_shardings=form)(X),
        lambda form: amdjax.jit(jnp.sin, out_shardings=form)(X),
    ):
        with pytest.raises(ValueError, match="major_to_minor and the rank of the value"):
            put(three)
        with pytest.raises(NotImplementedError, match="row-major"):
            put(columns)
    with pytest.raises(ValueError, match=r"sharding and layout .*should be concrete"):
        amdjax.device_put(X, Format(Layout.AUTO, here))
    with pytest.raises(ValueError, match="does not accept device-local layouts directly"):
        amdjax.jit(jnp.sin, in_shardings=Layout.AUTO)
    with pytest.raises(RuntimeError, match="jit requires a non-empty mesh in context"):
        amdjax.jit(jnp.sin, in_shardings=P("x"))


@pytest.mark.parametrize(
    "mesh", [MESHES[AxisType.Explicit], AbstractMesh((2, 1), ("x", "y"), (AxisType.Explicit,) * 2)]
)
def test_shapes_that_are_evaluated_tell_of_explicit_axes(mesh):
    x = amdjax.ShapeDtypeStruct((4, 2), np.float32, sharding=rows(mesh))
    f = lambda x: (x.T, x.sum(0))
    out = amdjax.jit(f).eval_shape(x)
    assert amdjax.eval_shape(f, x) == out
    assert [y.sharding.spec for y in out] == [P(None, "x"), P(None)]
    assert out[0].sharding.mesh == mesh.abstract_mesh
    traced = amdjax.jit(jnp.sin).trace(x)
    assert traced.out_info.sharding.spec == P("x", None)
    auto = amdjax.ShapeDtypeStruct((4, 2), np.float32, sharding=rows(MESHES[AxisType.Auto]))
    assert amdjax.jit(jnp.sin).eval_shape(auto).sharding is None
    other = AbstractMesh((4,), ("x",), (AxisType.Explicit,))
    with use_abstract_mesh(other), pytest.raises(ValueError, match=r"For primitive sin, .*mesh"):
        amdjax.jit(jnp.sin).trace(x)
    with use_abstract_mesh(other), pytest.raises(ValueError, match=r"For primitive sin, .*mesh"):
        amdjax.eval_shape(jnp.sin, x)


def test_layouts_that_arrays_have_are_accepted():
    x, rows_first = np.ones((2, 3), np.float32), Layout(major_to_minor=(0, 1))
    assert with_layout_constraint({"a": x}, rows_first)["a"] is x
    out = amdjax.jit(lambda x: with_layout_constraint(x + 1, rows_first))(x)
    assert out.format.layout == rows_first
    with pytest.raises(NotImplementedError, match="row-major"):
        with_layout_constraint(x, Layout(major_to_minor=(1, 0)))
    with pytest.raises(ValueError, match="rank"):
        with_layout_constraint(x, Layout(major_to_minor=(0,)))
    with pytest.raises(ValueError, match="must be of type `Layout`"):
        with_layout_constraint(x, "row-major")
