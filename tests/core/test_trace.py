"""Arrays, tracers, and what happens when they are used where values are needed."""

import copy
import pickle

import numpy as np
import pytest

import amdjax
from amdjax import lax
from amdjax.core.array import ConcreteArray, asarray_concrete
from amdjax.core.aval import ShapedArray
from amdjax.core.context import context
from amdjax.core.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from amdjax.core.jaxpr_trace import hoist_tracers, trace_to_jaxpr
from amdjax.core.trace import Tracer, concrete_or_error, eval_trace, is_concrete

X = np.arange(3.0, dtype=np.float32)
F3 = ShapedArray((3,), "float32")


def test_eager_values_are_arrays():
    y = lax.add(X, X)
    assert isinstance(y, amdjax.Array)
    assert type(y) is ConcreteArray
    assert (y.shape, y.dtype, y.ndim, y.size, y.weak_type) == ((3,), np.float32, 1, 3, False)
    assert (y.itemsize, y.nbytes, len(y)) == (4, 12, 3)
    np.testing.assert_array_equal(y, [0, 2, 4])
    assert y.tolist() == [0.0, 2.0, 4.0]


def test_numpy_view_needs_no_copy_and_is_read_only():
    y = lax.add(X, X)
    view = np.asarray(y)
    assert not view.flags.writeable
    assert view.ctypes.data == np.asarray(y).ctypes.data
    assert np.array(y).flags.writeable
    assert np.asarray(y, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        y.__array__(np.float64, copy=False)
    np.testing.assert_array_equal(np.from_dlpack(y), y)


def test_repr_is_jax_like():
    assert repr(lax.add(X, X)) == "Array([0., 2., 4.], dtype=float32)"
    assert repr(asarray_concrete(1.5)) == "Array(1.5, dtype=float32, weak_type=True)"
    assert repr(lax.full((2, 0), np.float32(1))) == "Array([], shape=(2, 0), dtype=float32)"
    assert str(lax.add(1, 2)) == "3"
    assert f"{lax.add(1.0, 2.0):.2f}" == "3.00"


def test_scalars_convert():
    one = asarray_concrete(1)
    assert bool(one) and int(one) == 1 and float(one) == 1.0 and complex(one) == 1
    assert [10, 20][one] == 20
    assert one.item() == 1
    with pytest.raises(TypeError):
        [10, 20][asarray_concrete(1.0)]
    with pytest.raises(TypeError, match="len"):
        len(one)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(lax.add(X, X))


def test_copies_and_saved_form():
    y = lax.add(X, X)
    for other in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        np.testing.assert_array_equal(other, y)
        assert np.asarray(other).ctypes.data != np.asarray(y).ctypes.data


def test_deleted_arrays_say_so():
    y = lax.add(X, X)
    y.delete()
    assert y.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        repr(y)
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(y)


def test_sixty_four_bits_are_narrowed():
    assert asarray_concrete(np.arange(3.0)).dtype == np.float32
    with amdjax.enable_x64(True):
        assert asarray_concrete(np.arange(3.0)).dtype == np.float64


def test_objects_with_jax_array():
    class Wrapped:
        def __jax_array__(self):
            return asarray_concrete(X)

    np.testing.assert_array_equal(lax.add(Wrapped(), X), 2 * X)
    np.testing.assert_array_equal(amdjax.jit(lambda: lax.add(Wrapped(), X))(), 2 * X)


def test_tracers_are_arrays_too():
    seen = []

    def f(x):
        seen.append((isinstance(x, amdjax.Array), isinstance(x, Tracer), x.shape, x.dtype))
        return x

    amdjax.make_jaxpr(f)(X)
    assert seen == [(True, True, (3,), np.float32)]


USES = {
    "bool": (lambda x: bool(x), TracerBoolConversionError),
    "if": (lambda x: 1.0 if x else 2.0, TracerBoolConversionError),
    "int": (lambda x: int(x), ConcretizationTypeError),
    "float": (lambda x: float(x), ConcretizationTypeError),
    "complex": (lambda x: complex(x), ConcretizationTypeError),
    "index": (lambda x: [1, 2][x], TracerIntegerConversionError),
    "range": (lambda x: range(x), TracerIntegerConversionError),
    "numpy": (lambda x: np.sin(np.asarray(x)), TracerArrayConversionError),
    "item": (lambda x: x.item(), ConcretizationTypeError),
    "tolist": (lambda x: x.tolist(), ConcretizationTypeError),
    "hash": (lambda x: hash(x), TypeError),
}


@pytest.mark.parametrize("use", USES)
def test_abstract_values_teach(use):
    fun, error = USES[use]
    with pytest.raises(error) as e:
        amdjax.make_jaxpr(lambda scale: fun(scale))(1)
    if use != "hash":
        assert "scale" in str(e.value)
        assert "test_trace.py" in str(e.value)


def test_values_are_known_under_differentiation_but_not_under_vmap():
    def relu(x):
        return lax.neg(x) if lax.gt(x, 0.0) else lax.mul(x, 0.0)

    assert float(amdjax.grad(relu)(2.0)) == -1.0
    assert float(amdjax.grad(relu)(-2.0)) == 0.0
    assert float(amdjax.jvp(relu, (2.0,), (1.0,))[1]) == -1.0
    with pytest.raises(TracerBoolConversionError, match="vmap maps over"):
        amdjax.vmap(relu)(X)
    assert amdjax.vmap(lambda x, y: lax.sin(x) if y else x, in_axes=(0, None))(X, 1.0).shape == (3,)


def test_concrete_or_error():
    assert concrete_or_error(int, 3) == 3
    assert is_concrete(1.0)

    def f(n):
        assert not is_concrete(n)
        concrete_or_error(int, n, "the argument `n` of f")

    with pytest.raises(ConcretizationTypeError, match="the argument `n` of f"):
        amdjax.make_jaxpr(f)(1)


def test_leaked_tracers_are_found():
    kept = []

    @amdjax.jit
    def f(x):
        kept.append(lax.sin(x))
        return x

    f(X)
    with pytest.raises(UnexpectedTracerError, match=r"escaped[\s\S]*test_trace.py"):
        lax.add(kept[0], X)
    with pytest.raises(UnexpectedTracerError):
        amdjax.make_jaxpr(lambda x: lax.add(x, kept[0]))(X)


def test_leak_check_reports_at_once():
    kept = []

    def f(x):
        kept.append(lax.sin(x))
        return x

    with amdjax.check_tracer_leaks(True):
        amdjax.make_jaxpr(lax.sin)(X)
        with pytest.raises(UnexpectedTracerError, match="Leaked trace, with 1 tracer"):
            amdjax.make_jaxpr(f)(X)


_PUSH = lambda f: lambda x: amdjax.jvp(f, (x,), (x,))
LEAKING = {
    "vmap": amdjax.vmap,
    "jvp": _PUSH,
    "grad": lambda f: amdjax.grad(lambda x: f(x).sum()),
    "aux": lambda f: amdjax.grad(lambda x: (x.sum(), {"y": f(x)}), has_aux=True),
    "linearize": lambda f: lambda x: amdjax.linearize(f, x)[1](x),
    "vmap of jvp": lambda f: amdjax.vmap(_PUSH(f)),
    "jit": amdjax.jit,
    "scan": lambda f: lambda x: lax.scan(lambda c, y: (c, f(y)), 0, x),
    "checkpoint": lambda f: amdjax.grad(lambda x: amdjax.checkpoint(f)(x).sum()),
}


@pytest.mark.parametrize("name", LEAKING)
def test_all_transforms_report_leaks(name):
    kept = []

    def leaking(x):
        kept.append(lax.sin(x))
        return x

    norm = amdjax.numpy.linalg.norm
    calls = amdjax.jit(lambda x: lax.cond(True, lax.sin, lax.cos, x) * norm(x))
    with amdjax.check_tracer_leaks(True):
        LEAKING[name](lambda x: calls(amdjax.nn.relu(x)))(X)
        with pytest.raises(UnexpectedTracerError, match="Leaked trace"):
            LEAKING[name](leaking)(X)


def test_the_current_trace_is_restored_after_an_error():
    def f(x):
        raise ZeroDivisionError

    for transform in (amdjax.jit, amdjax.vmap, amdjax.make_jaxpr):
        with pytest.raises(ZeroDivisionError):
            transform(f)(X)
        assert context.trace is eval_trace
    with pytest.raises(ZeroDivisionError):
        amdjax.grad(f)(1.0)
    assert context.trace is eval_trace


def test_results_must_be_arrays():
    with pytest.raises(TypeError, match=r"'text'|type <class 'str'>"):
        amdjax.make_jaxpr(lambda x: {"a": x, "b": "text"})(X)


def test_closed_over_tracers_are_hoisted():
    inner = {}

    def outer(x):
        y = lax.sin(x)
        closed = trace_to_jaxpr(lambda z: [lax.add(lax.mul(z, y), X)], [F3])
        inner["closed"], inner["values"] = hoist_tracers(closed)
        return x

    amdjax.make_jaxpr(outer)(X)
    assert len(inner["values"]) == 1
    assert len(inner["closed"].consts) == 1
    assert len(inner["closed"].in_avals) == 2


def test_scalar_constants_become_literals():
    closed = amdjax.make_jaxpr(lambda x: lax.mul(lax.add(x, np.float32(1)), asarray_concrete(2.0)))(
        1.0
    )
    assert not closed.consts
    assert [type(e.invars[1]).__name__ for e in closed.eqns] == ["Literal", "Literal"]


def test_compile_time_evaluation():
    def f(x):
        with amdjax.ensure_compile_time_eval():
            n = int(lax.add(1, 2))
        return lax.mul(x, float(n))

    assert "3.0:f32[]" in str(amdjax.make_jaxpr(f)(1.0))


def test_threads_do_not_share_the_current_trace():
    import threading

    found = []

    def f(x):
        thread = threading.Thread(target=lambda: found.append(float(lax.add(1.0, 2.0))))
        thread.start()
        thread.join()
        return lax.sin(x)

    amdjax.make_jaxpr(f)(X)
    assert found == [3.0]


@pytest.mark.parametrize("kind", [int, float, complex])
@pytest.mark.parametrize("shape", [(1,), (3,), (0,), (1, 1)])
def test_only_scalars_become_python_scalars(kind, shape):
    x = amdjax.numpy.ones(shape)
    for convert in (kind, amdjax.jit(kind), amdjax.jit(lambda _: kind(x))):
        with pytest.raises(TypeError, match="Only scalar arrays can be converted"):
            convert(x)


def test_empty_arrays_have_no_truth_value():
    with pytest.raises(ValueError, match="truth value of an empty array"):
        amdjax.jit(bool)(np.zeros(0))
