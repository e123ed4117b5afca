"""Bad input to public functions: a clear error that names the function or the argument.

The first tests hand nonsense to every public function found in a module; the tables after them
take the mistakes people make: wrong shapes, axes, dtypes, lengths, structures.
"""

from __future__ import annotations

import inspect
import re
import traceback

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, optim, random, rnn, test_util, tree_util
from amdjax.core.context import Context, context
from amdjax.core.tracebacks import PACKAGE_DIR
from amdjax.scipy import special
from amdjax.scipy.stats import norm

ERRORS = (TypeError, ValueError, IndexError)


class Nonsense:
    """Not an array, not a number, not a shape, not a function."""

    def __repr__(self):
        return "Nonsense()"


X = jnp.ones((2, 3))
V = jnp.arange(4.0)
I = jnp.arange(4)
B = I > 1
C = jnp.ones((3, 3), "complex64")
IMAGE = jnp.ones((1, 8, 8, 3))
KERNEL = jnp.ones((3, 3, 3, 4))
KEY = random.key(0)


@pytest.fixture(autouse=True)
def nothing_half_done():
    """After an error no trace is left open and arrays can be computed."""
    yield
    assert context.trace is Context.base
    assert float(jnp.sin(jnp.float32(0.0))) == 0.0


def public(module):
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    for name in sorted(names):
        fun = getattr(module, name)
        if not callable(fun) or isinstance(fun, type):
            continue
        try:
            parameters = inspect.signature(fun).parameters.values()
        except (TypeError, ValueError):
            continue
        required = [
            p for p in parameters
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]  # fmt: skip
        if required:
            yield name, fun, required


_OF_ANY_TREE = {
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "reduce",
    "reduce_associative", "structure",
}  # fmt: skip

#: Functions to which any object is a fine argument, or which call what they are given later.
TAKE_ANYTHING = {
    "numpy": {"array_equal", "array_repr", "array_str", "iscomplexobj", "isrealobj", "isscalar",
              "iterable", "vectorize", "save", "load", "from_dlpack", "ndim", "shape", "size"},
    "lax": {"stop_gradient", "optimization_barrier", "composite"},
    "nn": {"count_parameters", "partition"},
    "amdjax": {"block_until_ready", "copy_to_host_async", "device_get", "ds", "named_scope"},
    "initializers": {"constant"},
    "optim": {"constant_schedule"},
    "tree": _OF_ANY_TREE,
    "tree_util": {"is_tree_node", *("tree_" + name for name in _OF_ANY_TREE)},
}  # fmt: skip

#: Other names under which functions speak of themselves.
ALIASES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "invert": "bitwise_not",
    "bitwise_invert": "bitwise_not", "bitwise_right_shift": "right_shift",
    "degrees": "rad2deg", "radians": "deg2rad", "mod": "remainder", "unique_all": "unique",
    "unique_counts": "unique",
    "unique_inverse": "unique", "unique_values": "unique", "array_equiv": "equal",
    "logspace": "linspace",
}  # fmt: skip


def calls_with_nonsense():
    modules = {
        "amdjax": amdjax, "debug": amdjax.debug, "flatten_util": amdjax.flatten_util, "lax": lax,
        "linalg": jnp.linalg, "fft": jnp.fft, "lax.linalg": lax.linalg, "losses": nn.losses,
        "initializers": nn.initializers, "nn": nn, "norm": norm, "numpy": jnp, "ops": amdjax.ops,
        "optim": optim, "random": random, "rnn": rnn, "special": special, "test_util": test_util,
        "tree": amdjax.tree, "tree_util": tree_util,
    }  # fmt: skip
    for where, module in modules.items():
        for name, fun, required in public(module):
            if name not in TAKE_ANYTHING.get(where, ()):
                yield pytest.param(name, fun, required, id=f"{where}.{name}")


@pytest.mark.parametrize("name,fun,required", list(calls_with_nonsense()))
def test_nonsense_is_refused(name, fun, required):
    with pytest.raises((*ERRORS, NameError, NotImplementedError)) as caught:
        fun(*[Nonsense() for _ in required])
    only_user_frames(caught.value)
    message = str(caught.value)
    words = [name, ALIASES.get(name, name), *inspect.signature(fun).parameters, "Nonsense"]
    assert any(w in message for w in words), message


@pytest.mark.parametrize("name,fun,required", list(calls_with_nonsense()))
def test_a_misspelled_keyword_is_named(name, fun, required):
    parameters = inspect.signature(fun).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        pytest.skip("takes any keyword")
    for option in parameters:
        if (wrong := f"{option[:-2]}{option[:-3:-1]}x") not in parameters:
            with pytest.raises(TypeError, match=rf"unexpected keyword argument '{wrong}'"):
                fun(*[X] * len(required), **{wrong: 0})


@pytest.mark.parametrize("call,error,words", [
    (lambda: nn.softmax(X, where="a"), TypeError, "where: 'a'"),
    (lambda: nn.standardize(X, mean=[None]), TypeError, r"mean: \[None\]"),
    (lambda: jnp.diff(X, prepend="a"), TypeError, "prepend: 'a'"),
    (lambda: jnp.cross(C, C, axisa=7), np.exceptions.AxisError, "axisa: 7"),
    (lambda: jnp.dot(X, C, preferred_element_type=1.7), TypeError, "preferred_element_type: 1.7"),
    (lambda: norm.cdf(X, loc=(7, 7)), TypeError, r"loc: \(7, 7\)"),
    (lambda: amdjax.jit(lambda x: nn.softmax(x, where="a"))(X), TypeError, "where: 'a'"),
])  # fmt: skip
def test_what_a_shared_check_refuses_is_named(call, error, words):
    """One check serves all functions and knows no names; the call that failed does."""
    with pytest.raises(error, match=words):
        call()


def gather_numbers(**changes):
    return lax.GatherDimensionNumbers(
        **{"offset_dims": (), "collapsed_slice_dims": (0,), "start_index_map": (0,), **changes}
    )


def identity(x):
    return x


TWO = amdjax.ShapeDtypeStruct((2,), "float32")


def table(*rows):
    """Cases `(call, error, words…)` with readable names."""
    return [
        pytest.param(call, error, words, id=re.sub(r"\W+", " ", " ".join(map(str, words))))
        for call, error, *words in rows
    ]


def only_user_frames(error):
    """Neither the error nor what caused it shows amdjax's own frames."""
    while error is not None:
        files = [f.filename for f in traceback.extract_tb(error.__traceback__)]
        assert not [f for f in files if f.startswith(PACKAGE_DIR)]
        error = error.__cause__ or error.__context__


def expect(call, error, words):
    with pytest.raises(error) as caught:
        call()
    only_user_frames(caught.value)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("call,error,words", table(
    (lambda: jnp.reshape(X, (4, 2)), TypeError, "reshape", "(2, 3)", "(4, 2)"),
    (lambda: jnp.reshape(X, (-1, 4)), (TypeError, ValueError), "reshape", "(2, 3)"),
    (lambda: jnp.reshape(X, (-1, -1)), ValueError, "-1"),
    (lambda: jnp.transpose(X, (0, 0)), TypeError, "(0, 0)"),
    (lambda: jnp.transpose(X, (0,)), TypeError, "(0,)"),
    (lambda: jnp.swapaxes(X, 0, 5), ValueError, "5"),
    (lambda: jnp.moveaxis(X, 0, 7), ValueError, "7"),
    (lambda: jnp.squeeze(X, 0), ValueError, "squeeze"),
    (lambda: jnp.expand_dims(X, 9), ValueError, "9"),
    (lambda: jnp.concatenate([X, V]), (TypeError, ValueError), "oncatenate"),
    (lambda: jnp.concatenate([]), ValueError, "oncatenate"),
    (lambda: jnp.concatenate([X, X], axis=3), ValueError, "3"),
    (lambda: jnp.stack([X, V]), ValueError, "(2, 3)", "(4,)"),
    (lambda: jnp.stack([]), ValueError, "array"),
    (lambda: jnp.split(V, 3), ValueError, "split"),
    (lambda: jnp.broadcast_to(X, (3, 2)), ValueError, "(2, 3)", "(3, 2)"),
    (lambda: jnp.sum(X, axis=2), ValueError, "axis 2"),
    (lambda: jnp.sum(X, axis=(0, 0)), ValueError, "(0, 0)"),
    (lambda: jnp.max(X, axis=-3), ValueError, "axis -3"),
    (lambda: jnp.max(jnp.zeros(0)), ValueError, "zero-size"),
    (lambda: jnp.argmax(jnp.zeros((0,))), ValueError, "arg"),
    (lambda: jnp.argmax(X, axis=4), ValueError, "4"),
    (lambda: jnp.cumsum(X, axis=5), ValueError, "5"),
    (lambda: jnp.sort(X, axis=3), ValueError, "3"),
    (lambda: jnp.dot(X, X), TypeError, "contract"),
    (lambda: X @ X, TypeError, "contract"),
    (lambda: jnp.matmul(X, jnp.float32(1)), ValueError, "matmul"),
    (lambda: jnp.einsum("ij,jk->ik", X, X), (TypeError, ValueError), "3"),
    (lambda: jnp.einsum("ij->ii", X), (TypeError, ValueError), "i"),
    (lambda: jnp.einsum("ij,jk", X), (TypeError, ValueError), "operand"),
    (lambda: jnp.add(X, V), (TypeError, ValueError), "(2, 3)", "(4,)"),
    (lambda: jnp.where(B, X, V), (TypeError, ValueError), "(2, 3)", "(4,)"),
    (lambda: jnp.zeros((2, -1)), TypeError, "-1"),
    (lambda: jnp.zeros("ab"), TypeError, "hape"),
    (lambda: jnp.zeros(3, dtype="nothing"), TypeError, "nothing"),
    (lambda: jnp.arange(3, 4, 0), (ValueError, ZeroDivisionError), "step"),
    (lambda: jnp.linspace(0, 1, -1), (TypeError, ValueError), "-1"),
    (lambda: jnp.eye(-2), (TypeError, ValueError), "-2"),
    (lambda: jnp.array(["a"]), TypeError, "'a'"),
    (lambda: jnp.array([[1, 2], [3]]), (TypeError, ValueError), "inhomogeneous"),
    (lambda: jnp.bitwise_and(V, V), TypeError, "and", "float32"),
    (lambda: jnp.left_shift(V, V), TypeError, "shift_left", "float32"),
    (lambda: jnp.floor(C), TypeError, "floor", "complex64"),
    (lambda: jnp.take(V, 1.5), ValueError, "take"),
    (lambda: jnp.take(V, I, mode="sideways"), ValueError, "sideways"),
    (lambda: jnp.take_along_axis(X, I, axis=0), ValueError, "indices and arr"),
    (lambda: V[1.5], TypeError, "ndex"),
    (lambda: V["a"], TypeError, "ndex"),
    (lambda: V[0, 0], IndexError, "indices"),
    (lambda: V[None, ..., ...], IndexError, "..."),
    (lambda: X[jnp.array([True, False, True])], IndexError, "oolean"),
    (lambda: V.at[0].set(X), ValueError, "(2, 3)"),
    (lambda: V.at[I].add(jnp.ones(3)), ValueError, "(3,)"),
    (lambda: V.__setitem__(0, 1.0), TypeError, "immutable", ".at["),
    (lambda: jnp.pad(X, ((1, 2, 3),)), ValueError, "pad"),
    (lambda: jnp.pad(X, 1, mode="odd"), (NotImplementedError, ValueError), "odd"),
    (lambda: jnp.repeat(X, 2, axis=4), ValueError, "4"),
    (lambda: jnp.repeat(V, -1), (TypeError, ValueError), "-1"),
    (lambda: jnp.roll(X, 1, axis=4), ValueError, "4"),
    (lambda: jnp.flip(X, 4), ValueError, "4"),
    (lambda: jnp.trace(V), ValueError, "diagonal"),
    (lambda: jnp.diag(jnp.ones((2, 2, 2))), ValueError, "diag"),
    (lambda: jnp.cross(jnp.ones(5), jnp.ones(5)), ValueError, "cross"),
    (lambda: jnp.linalg.inv(X), ValueError, "inv"),
    (lambda: jnp.linalg.cholesky(V), TypeError, "cholesky"),
    (lambda: jnp.linalg.solve(X, V), ValueError, "solve"),
    (lambda: jnp.linalg.norm(X, ord="odd"), ValueError, "odd"),
    (lambda: jnp.fft.fft(V, n=0), ValueError, "fft"),
    (lambda: jnp.histogram(V, bins=jnp.ones((2, 2))), (TypeError, ValueError), "bins"),
    (lambda: jnp.interp(V, X, X), ValueError, "xp and fp"),
    (lambda: jnp.meshgrid(V, V, indexing="no"), ValueError, "indexing"),
    (lambda: jnp.quantile(V, 2, method="odd"), (TypeError, ValueError), "method"),
    (lambda: jnp.unravel_index(I, "a"), TypeError, "'a'"),
    (lambda: jnp.nonzero(V, size=-1), (TypeError, ValueError), "-1"),
    (lambda: jnp.convolve(X, V), ValueError, "convolve"),
    (lambda: jnp.convolve(V, V, mode="odd"), ValueError, "mode"),
    (lambda: jnp.tile(V, -1.5), TypeError, "-1.5"),
    (lambda: jnp.select([B], [V, V]), ValueError, "condlist", "choicelist"),
    (lambda: jnp.choose(I, [V], mode="odd"), ValueError, "mode"),
    (lambda: jnp.searchsorted(X, V), ValueError, "a should be 1-dimensional"),
    (lambda: jnp.bincount(X), (TypeError, ValueError), "bincount"),
    (lambda: jnp.polyval(X, V), (TypeError, ValueError), "shapes"),
))  # fmt: skip
def test_numpy(call, error, words):
    expect(call, error, words)


@pytest.mark.parametrize("call,error,words", table(
    (lambda: lax.add(X, V), TypeError, "add", "(2, 3)", "(4,)"),
    (lambda: lax.add(V, I), TypeError, "add", "float32", "int32"),
    (lambda: lax.bitwise_and(V, V), TypeError, "and", "float32"),
    (lambda: lax.exp(I), TypeError, "exp", "int32"),
    (lambda: lax.neg(B), TypeError, "neg", "bool"),
    (lambda: lax.reshape(X, (4,)), ValueError, "reshape", "(2, 3)"),
    (lambda: lax.reshape(X, (-6,)), TypeError, "reshape"),
    (lambda: lax.transpose(X, (1, 1)), TypeError, "transpose", "(1, 1)"),
    (lambda: lax.broadcast_in_dim(X, (2, 3), (0,)), TypeError, "broadcast_in_dim"),
    (lambda: lax.broadcast_in_dim(X, (3, 2), (0, 1)), TypeError, "broadcast_in_dim"),
    (lambda: lax.broadcast_in_dim(V, (4, 4), (5,)), TypeError, "broadcast_in_dim"),
    (lambda: lax.squeeze(X, (0,)), ValueError, "squeeze"),
    (lambda: lax.expand_dims(X, (8,)), ValueError, "8"),
    (lambda: lax.concatenate([X, V], 0), (TypeError, ValueError), "concatenate"),
    (lambda: lax.concatenate([], 0), ValueError, "concatenate"),
    (lambda: lax.concatenate([V, I], 0), TypeError, "concatenate"),
    (lambda: lax.pad(X, 0.0, [(0, 0, 0)]), (TypeError, ValueError), "pad"),
    (lambda: lax.pad(X, 0.0, [(0, 0, -1), (0, 0, 0)]), ValueError, "pad"),
    (lambda: lax.pad(X, 0.0, [(-3, 0, 0), (0, 0, 0)]), ValueError, "pad"),
    (lambda: lax.slice(X, (0,), (1,)), TypeError, "slice"),
    (lambda: lax.slice(X, (0, 0), (3, 3)), TypeError, "slice"),
    (lambda: lax.slice(V, (2,), (1,)), TypeError, "slice"),
    (lambda: lax.slice(V, (0,), (3,), (0,)), TypeError, "slice"),
    (lambda: lax.dynamic_slice(X, (0,), (1, 1)), (TypeError, ValueError), "dynamic_slice"),
    (lambda: lax.dynamic_slice(V, (0,), (9,)), TypeError, "dynamic_slice"),
    (lambda: lax.dynamic_slice(V, (0.5,), (1,)), TypeError, "dynamic_slice"),
    (lambda: lax.dynamic_update_slice(V, X, (0,)), TypeError, "dynamic_update_slice"),
    (lambda: lax.dynamic_update_slice(V, jnp.ones(9), (0,)), TypeError, "dynamic_update_slice"),
    (lambda: lax.dot_general(X, X, (((1,), (0,)), ((), ()))), TypeError, "dot_general"),
    (lambda: lax.dot_general(X, X, (((5,), (0,)), ((), ()))),
     (TypeError, ValueError), "dot_general"),
    (lambda: lax.dot_general(X, X, 3), (TypeError, ValueError), "dimension_numbers"),
    (lambda: lax.dot(IMAGE, IMAGE), (TypeError, ValueError), "dot"),
    (lambda: lax.conv_general_dilated(IMAGE, X, (1, 1), "SAME"), (TypeError, ValueError), "conv"),
    (lambda: lax.conv_general_dilated(IMAGE, KERNEL, (1,), "SAME"),
     ValueError, "conv_general_dilated"),
    (lambda: lax.conv_general_dilated(IMAGE, KERNEL, (1, 1), "ODD"), RuntimeError, "ODD"),
    (lambda: lax.conv_general_dilated(IMAGE, IMAGE, (1, 1), "VALID", feature_group_count=2),
     ValueError, "feature_group_count"),
    (lambda: lax.reduce_sum(X, (4,)), ValueError, "reduce_sum"),
    (lambda: lax.argmax(X, 7, "int32"), ValueError, "7"),
    (lambda: lax.cumsum(X, 7), ValueError, "cumsum"),
    (lambda: lax.sort(X, dimension=4), ValueError, "sort", "4"),
    (lambda: lax.sort((X, V)), TypeError, "sort"),
    (lambda: lax.top_k(V, 9), ValueError, "top_k"),
    (lambda: lax.top_k(V, -1), ValueError, "top_k"),
    (lambda: lax.top_k(V, 2.5), TypeError, "top_k k", "2.5"),
    (lambda: lax.select(B, V, I), TypeError, "select"),
    (lambda: lax.select(V, V, V), TypeError, "select"),
    (lambda: lax.select_n(B, V, X), TypeError, "select"),
    (lambda: lax.clamp(V, X, V), TypeError, "clamp"),
    (lambda: lax.iota("int32", -1), TypeError, "iota"),
    (lambda: lax.broadcasted_iota("int32", (2, 3), 5), ValueError, "iota"),
    (lambda: lax.convert_element_type(V, "odd"), TypeError, "odd"),
    (lambda: lax.bitcast_convert_type(C, "int32"), TypeError, "bitcast"),
    (lambda: lax.rev(X, (4,)), TypeError, "rev"),
    (lambda: lax.integer_pow(V, 1.5), TypeError, "integer_pow"),
    (lambda: lax.gather(V, X, gather_numbers(), (1,)), TypeError, "gather"),
    (lambda: lax.gather(V, I[:, None], gather_numbers(start_index_map=(3,)), (1,)),
     TypeError, "gather"),
    (lambda: lax.fft(V, "odd", (4,)), ValueError, "fft"),
    (lambda: lax.fft(V, "FFT", (5,)), ValueError, "fft"),
    (lambda: lax.linalg.cholesky(X), (TypeError, ValueError), "cholesky"),
    (lambda: lax.linalg.qr(V), (TypeError, ValueError), "qr"),
    (lambda: lax.reduce_window(V, 0.0, lax.add, (2, 2), (1,), "VALID"), TypeError, "window"),
    (lambda: lax.psum(V, "unknown"), NameError, "unknown"),
    (lambda: lax.axis_index("unknown"), NameError, "unknown"),
    (lambda: lax.cond(V, identity, identity, V), TypeError, "scalar"),
    (lambda: lax.cond(True, identity, lambda x: (x, x), V), TypeError, "cond"),
    (lambda: lax.cond(True, identity, lambda x: x.astype("int32"), V),
     TypeError, "cond", "int32[4]"),
    (lambda: lax.cond(True, 3, identity, V), TypeError, "callable"),
    (lambda: lax.switch(0, [], V), ValueError, "switch"),
    (lambda: lax.switch(1.5, [identity, identity], V), TypeError, "switch"),
    (lambda: lax.while_loop(lambda x: x, identity, V), TypeError, "cond_fun"),
    (lambda: lax.while_loop(lambda x: True, lambda x: (x, x), V),
     TypeError, "while_loop body function"),
    (lambda: lax.while_loop(lambda x: x.sum() < 0, lambda x: x[:2], V),
     TypeError, "while_loop body function"),
    (lambda: lax.fori_loop(0, 3, lambda i, x: x.astype("int32"), V),
     TypeError, "fori_loop", "int32[4]"),
    (lambda: lax.fori_loop(0.5, 3, lambda i, x: x, V), TypeError, "fori_loop"),
    (lambda: lax.scan(lambda c, x: c, V, V), (TypeError, ValueError), "scan"),
    (lambda: lax.scan(lambda c, x: ((c, c), x), V, V), TypeError, "carry"),
    (lambda: lax.scan(lambda c, x: (c, x), V, (V, X)), ValueError, "scan"),
    (lambda: lax.scan(lambda c, x: (c, x), V, None), ValueError, "length"),
    (lambda: lax.scan(lambda c, x: (c, x), V, V, length=7), ValueError, "7"),
    (lambda: lax.map(identity, jnp.float32(1)), (TypeError, ValueError), "map", "scalar"),
    (lambda: lax.associative_scan(lax.add, jnp.float32(1)), ValueError, "axis 0"),
))  # fmt: skip
def test_lax(call, error, words):
    expect(call, error, words)


@pytest.mark.parametrize("call,error,words", table(
    (lambda: amdjax.grad(3), TypeError, "callable", "3"),
    (lambda: amdjax.grad(identity)(V), TypeError, "Gradient", "scalar", "(4,)"),
    (lambda: amdjax.grad(lambda x: x)(3), TypeError, "grad", "int32"),
    (lambda: amdjax.grad(lambda x: x * 1j)(1.0), TypeError, "grad", "complex"),
    (lambda: amdjax.grad(lambda x: x, argnums=2)(1.0), (TypeError, ValueError), "argnums"),
    (lambda: amdjax.grad(lambda x: x, argnums="a")(1.0), TypeError, "argnums"),
    (lambda: amdjax.grad(lambda x: (x, x))(1.0), TypeError, "Gradient", "tuple"),
    (lambda: amdjax.grad(lambda x: x, has_aux=True)(1.0), TypeError, "has_aux"),
    (lambda: amdjax.grad(lambda x: "a")(1.0), TypeError, "str"),
    (lambda: amdjax.value_and_grad(identity)(X), TypeError, "Gradient", "scalar", "(2, 3)"),
    (lambda: amdjax.jvp(identity, (V,), (X,)), (TypeError, ValueError), "jvp", "(2, 3)"),
    (lambda: amdjax.jvp(identity, (V,), ()), (TypeError, ValueError), "jvp"),
    (lambda: amdjax.jvp(identity, V, V), TypeError, "jvp"),
    (lambda: amdjax.jvp(identity, (V,), (I,)), TypeError, "jvp", "int32"),
    (lambda: amdjax.vjp(identity, V)[1](X), (TypeError, ValueError), "vjp"),
    (lambda: amdjax.vjp(identity, V)[1]((V, V)), (TypeError, ValueError), "vjp"),
    (lambda: amdjax.jacrev(identity)(3), TypeError, "jacrev"),
    (lambda: amdjax.jacfwd(identity)(3), TypeError, "jacfwd"),
    (lambda: amdjax.hessian(3), TypeError, "callable"),
    (lambda: amdjax.linearize(3, V), TypeError, "callable"),
    (lambda: amdjax.vmap(3), TypeError, "vmap", "callable"),
    (lambda: amdjax.vmap(identity)(1.0), ValueError, "vmap"),
    (lambda: amdjax.vmap(lambda a, b: a)(V, X), ValueError, "vmap", "4", "2"),
    (lambda: amdjax.vmap(identity, in_axes=3)(V), ValueError, "vmap"),
    (lambda: amdjax.vmap(identity, in_axes="a"), TypeError, "in_axes"),
    (lambda: amdjax.vmap(identity, in_axes=None)(V), ValueError, "vmap"),
    (lambda: amdjax.vmap(identity, in_axes=(0, 0))(V), ValueError, "in_axes"),
    (lambda: amdjax.vmap(identity, out_axes=(0, 0))(V), ValueError, "out_axes"),
    (lambda: amdjax.vmap(identity, axis_size=9)(V), ValueError, "axis_size"),
    (lambda: amdjax.jit(3), TypeError, "jit", "callable"),
    (lambda: amdjax.checkpoint(3), TypeError, "checkpoint"),
    (lambda: amdjax.custom_jvp(identity)(V), (AttributeError, TypeError), "defjvp"),
    (lambda: amdjax.custom_vjp(identity)(V), (AttributeError, TypeError), "defvjp"),
    (lambda: amdjax.custom_jvp(3), TypeError, "custom_jvp"),
    (lambda: amdjax.make_jaxpr(3), TypeError, "callable"),
    (lambda: amdjax.eval_shape(3, V), TypeError, "callable"),
    (lambda: amdjax.eval_shape(identity, Nonsense()), TypeError, "Nonsense"),
    (lambda: amdjax.linear_transpose(identity, 3.0)((1.0, 2.0)),
     (TypeError, ValueError), "cotangent tree"),
    (lambda: amdjax.pure_callback(3, TWO), TypeError, "callback"),
    (lambda: amdjax.pure_callback(lambda: np.zeros(3, "f"), TWO),
     RuntimeError, "(3,)", "(2,)"),
    (lambda: amdjax.device_put(Nonsense()), TypeError, "Nonsense"),
    (lambda: amdjax.ShapeDtypeStruct((2,), "odd"), TypeError, "odd"),
    (lambda: amdjax.config.update("nothing_of_that", 1), AttributeError, "nothing_of_that"),
    (lambda: amdjax.config.update("jax_enable_x64", "perhaps"), ValueError, "enable_x64"),
    (lambda: amdjax.enable_x64("perhaps"), ValueError, "enable_x64"),
))  # fmt: skip
def test_transforms(call, error, words):
    expect(call, error, words)


@pytest.mark.parametrize("call,error,words", table(
    (lambda: random.key("a"), TypeError, "'a'"),
    (lambda: random.key(1.5), TypeError, "seed"),
    (lambda: random.key(0, impl="odd"), ValueError, "odd"),
    (lambda: random.PRNGKey(V), TypeError, "seed"),
    (lambda: random.normal(V), (TypeError, ValueError), "key"),
    (lambda: random.normal(3), TypeError, "key"),
    (lambda: random.normal(KEY, (2, -1)), (TypeError, ValueError), "-1"),
    (lambda: random.normal(KEY, "ab"), (TypeError, ValueError), "shape"),
    (lambda: random.normal(KEY, (), "int32"), (TypeError, ValueError), "normal", "int32"),
    (lambda: random.uniform(KEY, (), "int32"), (TypeError, ValueError), "uniform", "int32"),
    (lambda: random.normal(random.split(KEY)), ValueError, "key"),
    (lambda: random.randint(KEY, (2,), 0, 5, "float32"), TypeError, "randint"),
    (lambda: random.split(KEY, -1), (TypeError, ValueError), "-1"),
    (lambda: random.split(KEY, 2.5), TypeError, "num", "2.5"),
    (lambda: random.fold_in(KEY, "a"), TypeError, "'a'"),
    (lambda: random.choice(KEY, jnp.zeros((0,))), ValueError, "choice"),
    (lambda: random.choice(KEY, V, (9,), replace=False), ValueError, "replace"),
    (lambda: random.choice(KEY, V, p=jnp.ones(3)), ValueError, "p"),
    (lambda: random.permutation(KEY, X, axis=5), ValueError, "5"),
    (lambda: random.categorical(KEY, X, axis=4), ValueError, "4"),
    (lambda: random.bernoulli(KEY, 1), TypeError, "bernoulli"),
    (lambda: random.gamma(KEY, V, shape=(3,)), ValueError, "gamma"),
    (lambda: random.multivariate_normal(KEY, V, X), ValueError, "multivariate_normal"),
))  # fmt: skip
def test_random(call, error, words):
    expect(call, error, words)


@pytest.mark.parametrize("call,error,words", table(
    (lambda: nn.one_hot("a", 3), TypeError, "one_hot"),
    (lambda: nn.one_hot(I, -1), ValueError, "num_classes", "-1"),
    (lambda: nn.Conv(3, 4, 0, key=KEY), ValueError, "Conv: kernel_size", "0"),
    (lambda: nn.Conv(3, 4, (3, 1.5), key=KEY), TypeError, "Conv: kernel_size", "1.5"),
    (lambda: nn.Dense("a", 3, key=KEY), (TypeError, ValueError), "in_features", "'a'"),
    (lambda: nn.Dropout(0.5)(X, train=True), ValueError, "key"),
    (lambda: nn.LayerNorm(4)(X), ValueError, "scale", "(4,)"),
    (lambda: rnn.LSTM(3, -1, key=KEY), ValueError, "hidden_features", "-1"),
    (lambda: rnn.LSTM(3, 4, key=KEY)(V), ValueError, "lstm", "(4,)"),
    (lambda: optim.adam("a"), TypeError, "learning_rate", "'a'"),
    (lambda: optim.adam(1e-3, b1=2.0), ValueError, "b1", "2.0"),
    (lambda: optim.clip_by_global_norm("a"), TypeError, "max_norm", "'a'"),
    (lambda: optim.masked(3, True), TypeError, "inner", "3"),
    (lambda: optim.scale_by_schedule(3), TypeError, "schedule", "3"),
    (lambda: optim.apply_updates({"a": V}, {"b": V}), ValueError, "a"),
    (lambda: nn.softmax(X, axis=4), ValueError, "4"),
    (lambda: nn.logsumexp(X, axis=4), ValueError, "4"),
    (lambda: nn.glu(jnp.ones(3)), (TypeError, ValueError), "axis", "3"),
    (lambda: nn.initializers.lecun_normal()(KEY, (3,)), ValueError, "1-dimensional"),
    (lambda: nn.initializers.variance_scaling(1.0, "odd", "normal")(KEY, (3, 3)),
     ValueError, "odd"),
))  # fmt: skip
def test_nn(call, error, words):
    expect(call, error, words)


LEAF = tree_util.tree_structure(0)
PAIR = tree_util.tree_structure((0, 0))


@pytest.mark.parametrize("call,error,words", table(
    (lambda: tree_util.tree_map(lambda a, b: a, (1, 2), [1, 2]), ValueError, "tuple", "list"),
    (lambda: tree_util.tree_map(lambda a, b: a, (1, 2), (1,)), ValueError, "2", "1"),
    (lambda: tree_util.tree_map(lambda a, b: a, {"a": 1}, {"b": 1}), ValueError, "a", "b"),
    (lambda: tree_util.tree_unflatten(PAIR, [1]), ValueError, "2", "1"),
    (lambda: tree_util.tree_unflatten(3, [1]), TypeError, "tree_unflatten"),
    (lambda: tree_util.tree_transpose(PAIR, LEAF, 3), (TypeError, ValueError), "tree"),
    (lambda: tree_util.tree_reduce(max, ()), TypeError, "tree_reduce"),
    (lambda: tree_util.register_pytree_node(3, identity, identity), TypeError, "nodetype"),
    (lambda: tree_util.register_pytree_node(dict, identity, identity), ValueError, "dict"),
    (lambda: amdjax.tree.map(3, (1,)), TypeError, "callable"),
    (lambda: tree_util.register_dataclass(int), TypeError, "data_fields"),
    (lambda: tree_util.register_dataclass(int, ["a"], ["b"]), TypeError, "int", "keyword"),
    (lambda: tree_util.register_dataclass(3, ["a"], ["b"]), TypeError, "nodetype", "3"),
    (lambda: tree_util.register_dataclass(Nonsense, "ab", []), TypeError, "data_fields", "'ab'"),
    (lambda: tree_util.register_dataclass(Nonsense, [], [1]), TypeError, "meta_fields", "[1]"),
    (lambda: tree_util.register_dataclass(Nonsense, ["a"], []), TypeError, "['a']"),
    (lambda: tree_util.register_pytree_node(Nonsense, 3, identity), TypeError, "flatten_func"),
    (lambda: tree_util.register_pytree_node(Nonsense, identity, 3), TypeError, "unflatten_func"),
    (lambda: tree_util.register_pytree_with_keys(Nonsense, 3, identity),
     TypeError, "flatten_with_keys"),
    (lambda: tree_util.register_pytree_node_class(Nonsense), TypeError, "tree_unflatten"),
    (lambda: tree_util.treedef_tuple([3]), TypeError, "treedefs", "3"),
    (lambda: tree_util.treedef_children(3), TypeError, "treedef", "3"),
    (lambda: tree_util.Partial(3), TypeError, "func", "3"),
    (lambda: tree_util.tree_transpose(3, LEAF, 3), TypeError, "outer_treedef", "3"),
    (lambda: tree_util.tree_transpose(PAIR, 3, (1, 2)), TypeError, "inner_treedef", "3"),
    (lambda: tree_util.tree_broadcast((1, 2), 3), ValueError, "tuple"),
    (lambda: tree_util.flatten_one_level(3), ValueError, "int"),
    (lambda: tree_util.tree_leaves({1: 0, "a": 0}), (TypeError, ValueError), "keys"),
))  # fmt: skip
def test_trees(call, error, words):
    expect(call, error, words)
