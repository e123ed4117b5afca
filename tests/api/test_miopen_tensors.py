"""What docs/miopen.md maps MIOpen's recurrent layers, tensors, optimizers and searches to.

As in `test_miopen_layers.py`: what MIOpen's entry points do, in NumPy, beside what is called here.
"""

import itertools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import find, lax, nn, optim, rnn
from amdjax.core.config import State
from tests.support.miopen import NAMES, check, check_names, close, draw, table, wide
from tests.support.turns import in_turn

CASES, covers = table()


# Recurrent layers


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell(mode, w, x, state):
    """The next state, the hidden one first, by gates in the order of `rnn.Weights`."""
    size = w.hidden_kernel.shape[1] // {"lstm": 4, "gru": 3}.get(mode, 1)
    own = np.tile(x, w.hidden_kernel.shape[1] // size) if w.input_kernel is None else (
        x @ wide(w.input_kernel)
    )  # fmt: skip
    zero = np.zeros(w.hidden_kernel.shape[1])
    own = own + (zero if w.input_bias is None else wide(w.input_bias))
    past = state[0] @ wide(w.hidden_kernel) + (
        zero if w.hidden_bias is None else wide(w.hidden_bias)
    )
    if mode == "lstm":
        i, f, g, o = np.split(own + past, 4, -1)
        memory = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(memory), memory
    if mode == "gru":
        (a, b, c), (d, e, f) = np.split(own, 3, -1), np.split(past, 3, -1)
        r, z = sigmoid(a + d), sigmoid(b + e)
        return ((1 - z) * np.tanh(c + r * f) + z * state[0],)
    return (np.tanh(own + past) if mode == "tanh" else np.maximum(own + past, 0),)


def layers(mode, weights, x, lengths, both):
    """All layers over `(time, batch, features)`, each sequence by itself."""
    directions = 2 if both else 1
    for first in range(0, len(weights), directions):
        parts = []
        for d, w in enumerate(weights[first : first + directions]):
            size = w.hidden_kernel.shape[0]
            out = np.zeros((*x.shape[:2], size))
            for b, length in enumerate(lengths):
                state = (np.zeros(size),) * (2 if mode == "lstm" else 1)
                for t in range(length) if d == 0 else reversed(range(length)):
                    state = cell(mode, w, x[t, b], state)
                    out[t, b] = state[0]
            parts.append(out)
        x = np.concatenate(parts, -1)
    return x


MODES = {"relu": rnn.RNN, "tanh": rnn.RNN, "lstm": rnn.LSTM, "gru": rnn.GRU}


@covers("RNNForward", "RNNForwardTraining", "RNNForwardInference", "RNNBackwardData",
        "RNNBackwardSeqData", "RNNBackwardWeights", "RNNBackwardWeightsSeqTensor",
        "SetRNNDescriptor", "SetRNNDescriptor_V2", "SetRNNPaddingMode", "CreateSeqTensorDescriptor",
        "SetRNNDataSeqTensorDescriptor",
        by=("rnn.RNN", "rnn.LSTM", "rnn.GRU", "bidirectional", "lengths", "layers"))  # fmt: skip
def recurrent_layers():
    """Modes, one way and both, with and without biases, with inputs that skip, with lengths."""
    x, lengths = draw(4, 3, 5), np.array([4, 2, 3])
    options = list(itertools.product(MODES, (False, True), (True, False), ("linear", "skip")))
    for mode, both, bias, skip in in_turn(options, 8):
        more = {"activation": mode} if MODES[mode] is rnn.RNN else {}
        net = MODES[mode](
            5, 5, key=amdjax.random.key(1), layers=2, bidirectional=both, use_bias=bias,
            input_mode=skip, **more,
        )  # fmt: skip
        net = amdjax.tree.map(lambda w: 0.4 * jnp.asarray(draw(*w.shape)), net)
        known = np.arange(4)[:, None, None] < lengths[:, None]
        run = lambda net, x: jnp.where(known, net(x, lengths=lengths)[0], 0)
        define = lambda x, net=net, m=mode, b=both: layers(m, net.weights, x, lengths, b)
        if both and bias:
            check(lambda x, net=net: run(net, x), define, x)
        else:
            close(run(net, x), define(wide(x)))
        # Gradients of weights, in the direction of all ones.
        ct = draw(*run(net, x).shape, seed=5)
        gradient = amdjax.grad(lambda net, run=run, ct=ct: (run(net, x) * ct).sum())(net)
        found = sum(float(g.sum()) for g in amdjax.tree.leaves(gradient))
        moved = [
            (layers(mode, _moved(net.weights, s * 1e-6), wide(x), lengths, both) * ct).sum()
            for s in (1, -1)
        ]
        expected = (moved[0] - moved[1]) / 2e-6
        assert abs(found - expected) < 2e-4 * (1 + abs(expected)), (mode, both, bias, skip)


def _moved(weights, by):
    return [type(w)(*(None if a is None else wide(a) + by for a in w)) for w in weights]


@covers("GetRNNLayerParam", "SetRNNLayerParam", "GetRNNLayerBias", "SetRNNLayerBias",
        "GetRNNLayerParamSize", "GetRNNLayerBiasSize", "GetRNNLayerParamOffset",
        "GetRNNLayerBiasOffset", "GetRNNParamsSize", "GetRNNParamsDescriptor",
        by=("rnn.Parameters", ".place(part)", "rnn.pack", "rnn.unpack"))  # fmt: skip
def parameters_of_recurrent_layers():
    """Gates are read, replaced, and found in the packed vector where it says that they are."""
    for name, gates in (("LSTM", "ifgo"), ("GRU", "rzn"), ("RNN", "h")):
        net = getattr(rnn, name)(3, 4, layers=2, bidirectional=True, key=amdjax.random.key(0))
        for i, (layer, way) in enumerate(itertools.product((0, 1), ("forward", "reverse"))):
            for j, letter in enumerate(gates):
                kernel = draw(3 if layer == 0 else 8, 4, seed=10 * i + j)
                bias = draw(4, seed=100 * i + j)
                gate = net.params.layer(layer, way).gate(letter)
                assert gate.hidden_kernel.shape == (4, 4) and gate.input_bias.shape == (4,)
                net = net.replace(
                    weights=gate.replace(input_kernel=kernel, hidden_bias=bias).weights
                )
                found = net.params.layer(layer, way).gate(letter)
                np.testing.assert_array_equal(found.input_kernel, kernel)
                np.testing.assert_array_equal(
                    net.weights[i].input_kernel[:, 4 * j : 4 * j + 4], kernel
                )
                np.testing.assert_array_equal(net.weights[i].hidden_bias[4 * j : 4 * j + 4], bias)
        vector = rnn.pack(net.params)
        assert vector.shape == (net.params.size,)
        assert net.params.size == sum(a.size for w in net.weights for a in w if a is not None)
        gate = net.params.layer(1, "reverse").gate(gates[0])
        place = gate.place("input_kernel")
        part = vector[place.offset : place.offset + int(np.prod(place.shape))]
        np.testing.assert_array_equal(part.reshape(place.shape).T, gate.input_kernel)
        back = rnn.unpack(net.params, vector)
        for a, b in zip(amdjax.tree.leaves(back), amdjax.tree.leaves(net.params), strict=True):
            np.testing.assert_array_equal(a, b)


# Tensors


@covers("OpTensor", "ScaleTensor", "SetTensor", "TransformTensor", by=("fused",))
def tensor_operations():
    """`alpha3 (alpha1 a op alpha2 b) + beta c`, with `b` broadcast, as one kernel."""
    a, b, c = draw(2, 3, 4, 5), draw(1, 3, 1, 1), draw(2, 3, 4, 5, seed=2)
    ops = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    for name, op in ops.items():
        here = {"add": jnp.add, "mul": jnp.multiply, "min": jnp.minimum, "max": jnp.maximum}[name]
        f = lambda a, b, c, here=here: here(1.5 * a, 0.5 * b) + 2 * c
        check(f, lambda a, b, c, op=op: op(1.5 * a, 0.5 * b) + 2 * c, a, b, c)
        text = amdjax.jit(f).lower(a, b, c).compile().as_text("fusion")
        assert len(text.splitlines()) == 1
    check(lambda a: 3 * a, lambda a: 3 * a, a)
    np.testing.assert_array_equal(jnp.full_like(a, 7.0), np.full_like(a, 7.0))
    turned = lambda a, c: 2 * jnp.transpose(a, (0, 2, 3, 1)) + 0.5 * jnp.transpose(c, (0, 2, 3, 1))
    check(turned, lambda a, c: np.moveaxis(2 * a + 0.5 * c, 1, -1), a, c)


@covers("GetTensorNumBytes", "SetTensorCastType", "GetTensorDescriptor", "GetTensorDescriptorSize",
        "Get4dTensorDescriptor", by=("Array.shape", ".nbytes", ".astype"))  # fmt: skip
def tensors_describe_themselves():
    x = jnp.asarray(draw(2, 3, 4))
    for dtype, size in (("float16", 2), ("bfloat16", 2), ("int8", 1), ("float32", 4)):
        y = x.astype(dtype)
        assert (y.shape, y.ndim, y.nbytes) == ((2, 3, 4), 3, 24 * size) and y.dtype == dtype
        np.testing.assert_array_equal(y, np.asarray(x).astype(y.dtype))


NORM1 = lambda x, a: np.abs(x).sum(a)
REDUCTIONS = {
    "ADD": (jnp.sum, lambda x, a: x.sum(a)),
    "MUL": (jnp.prod, lambda x, a: x.prod(a)),
    "MIN": (jnp.min, lambda x, a: x.min(a)),
    "MAX": (jnp.max, lambda x, a: x.max(a)),
    "AMAX": (lambda x, a: jnp.max(jnp.abs(x), a), lambda x, a: np.abs(x).max(a)),
    "AVG": (jnp.mean, lambda x, a: x.mean(a)),
    "NORM1": (lambda x, a: jnp.sum(jnp.abs(x), a), NORM1),
    "NORM2": (lambda x, a: jnp.sqrt(jnp.sum(x * x, a)), lambda x, a: np.sqrt((x**2).sum(a))),
    "MUL_NO_ZEROS": (
        lambda x, a: jnp.prod(x, a, where=x != 0), lambda x, a: np.where(x == 0, 1, x).prod(a)
    ),
}  # fmt: skip


@covers("ReduceTensor", "SetReduceTensorDescriptor", by=(*REDUCTIONS, "numpy.argmax"))
def reductions():
    """Each operation over some axes and over all, and where extremes are."""
    x = draw(3, 4, 5)
    for name, (f, define) in REDUCTIONS.items():
        y = np.where(np.abs(x) < 0.3, 0, x).astype(np.float32) if name == "MUL_NO_ZEROS" else x
        for axes in ((0, 2), (1,), (0, 1, 2)):
            close(f(y, axes), define(wide(y), axes))
            if name != "MUL_NO_ZEROS":  # whose definition jumps beside zeros
                check(lambda x, f=f, a=axes: f(x, a), lambda x, d=define, a=axes: d(x, a), x)
    close(jnp.linalg.norm(x, axis=1), np.sqrt((wide(x) ** 2).sum(1)))
    np.testing.assert_array_equal(jnp.argmax(jnp.abs(x), 1), np.abs(x).argmax(1))


@covers("ReduceExtremeForward", "ReduceCalculationForward",
        by=("numpy.min", "numpy.argmin", "numpy.argmax", "numpy.nansum",
            "numpy.nanprod"))  # fmt: skip
def extremes_and_calculations():
    """Values and places of extremes; sums and products with NaNs, and without them."""
    x = draw(4, 6)
    for axis in (0, 1):
        for f, define in ((jnp.min, np.min), (jnp.max, np.max), (jnp.argmin, np.argmin),
                          (jnp.argmax, np.argmax)):  # fmt: skip
            np.testing.assert_array_equal(f(x, axis), define(x, axis))
        x[1, 2] = np.nan
        assert np.isnan(jnp.sum(x, axis)).sum() == 1 and np.isnan(jnp.prod(x, axis)).sum() == 1
        close(jnp.nansum(x, axis), np.nansum(wide(x), axis))
        close(jnp.nanprod(x, axis), np.nanprod(wide(x), axis))
        x[1, 2] = 0.5


@covers("CatForward", "GetitemBackward", "GetGetitemWorkspaceSize", "KthvalueForward",
        by=("numpy.concatenate", "indexing", "nn.kthvalue", "lax.top_k"))  # fmt: skip
def pieces():
    a, b, c = draw(2, 3, 4), draw(2, 1, 4), draw(2, 5, 4)
    check(lambda *xs: jnp.concatenate(xs, 1), lambda *xs: np.concatenate(xs, 1), a, b, c)
    rows, columns = np.array([1, 0, 1]), np.array([[2], [0]])
    check(lambda x: x[rows, columns], lambda x: x[rows, columns], c)
    check(lambda x: x[:, 1:4:2, None], lambda x: x[:, 1:4:2, None], c)
    repeated = amdjax.grad(lambda x: x[rows].sum())(jnp.asarray(a))
    np.testing.assert_array_equal(repeated, np.array([1, 2])[:, None, None] * np.ones_like(a))
    for axis, keepdims in ((1, True), (-1, False)):
        values, places = nn.kthvalue(c, 3, axis, keepdims=keepdims)
        order = np.argsort(c, axis)
        at = np.take(order, [2], axis)
        expected = np.take_along_axis(c, at, axis)
        at, expected = (x if keepdims else x.squeeze(axis) for x in (at, expected))
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(places, at)
        f = lambda x, a=axis, k=keepdims: nn.kthvalue(x, 3, a, keepdims=k)[0]
        check(f, lambda x, a=axis, k=keepdims: np.take(np.sort(x, a), [2] if k else 2, a), c)
    close(lax.top_k(jnp.asarray(c[0, 0]), 2)[0], np.sort(c[0, 0])[::-1][:2])


# Optimizers


def adam(w, grads, lr, b1, b2, eps, decay, decoupled, maximize):
    """Adam's steps as MIOpen's FusedAdam makes them."""
    m = v = np.zeros_like(w)
    for step, g in enumerate(grads, 1):
        g = -g if maximize else g
        if decoupled:
            w = w - lr * decay * w
        else:
            g = g + decay * w
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w - lr / (1 - b1**step) * m / (np.sqrt(v) / np.sqrt(1 - b2**step) + eps)
    return w


def stepped(optimizer, w, grads):
    """Parameters after updates under `jit`, and the state."""
    update, state, w = amdjax.jit(optimizer.update), optimizer.init(w), jnp.asarray(w)
    for g in grads:
        updates, state = update(g, state, w)
        w = optim.apply_updates(w, updates)
    return w, state


@covers("FusedAdam", "FusedAdamWithOutput",
        by=("optim.adam", "optim.adamw", "optim.add_decayed_weights", "optim.scale"))  # fmt: skip
def fused_adam():
    """Weights that decay in the gradient or apart from it, up and down."""
    w, grads = draw(7), [draw(7, seed=i) for i in range(4)]
    for decay, decoupled, maximize in itertools.product((0.0, 0.1), (False, True), (False, True)):
        head = [optim.scale(-1.0)] if maximize else []
        if decoupled:
            own = optim.adamw(0.05, b1=0.8, b2=0.95, eps=1e-3, weight_decay=decay)
        else:
            head += [optim.add_decayed_weights(decay)]
            own = optim.adam(0.05, b1=0.8, b2=0.95, eps=1e-3)
        found, _ = stepped(optim.chain(*head, own), w, grads)
        expected = adam(wide(w), grads, 0.05, 0.8, 0.95, 1e-3, decay, decoupled, maximize)
        close(found, expected)


@covers("FusedAdamWithOutput", "TransformersAdamWWithOutput",
        by=("optim.apply_if_finite", "optim.scale"))  # fmt: skip
def adam_of_scaled_gradients():
    """A factor of the gradients, and no step where one is not finite."""
    w, grads = draw(5), [draw(5, seed=i) for i in range(3)]
    scaled = [64 * g for g in grads]
    scaled.insert(1, np.full(5, np.inf, np.float32))
    inner = optim.chain(optim.scale(1 / 64), optim.adam(0.05))
    found, state = stepped(optim.apply_if_finite(inner, 9), w, scaled)
    close(found, adam(wide(w), grads, 0.05, 0.9, 0.999, 1e-8, 0.0, False, False))
    assert int(state.total_notfinite) == 1


@covers("TransformersAdamW", "TransformersAdamWWithOutput", by=("optim.adamw",))
def transformers_adamw():
    """Steps without decay; with it they differ by the product of rate, decay and step."""
    w, grads, rate = draw(5), [draw(5, seed=i) for i in range(3)], 0.05
    for decay, tolerance in ((0.0, 2e-5), (0.1, 3 * 0.1 * rate**2)):
        m = v = np.zeros(5)
        expected = wide(w)
        for step, g in enumerate(grads, 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            size = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            expected = expected - size * m / (np.sqrt(v) + 1e-10)
            expected = expected - rate * decay * expected
        found, _ = stepped(optim.adamw(rate, eps=1e-10, weight_decay=decay), w, grads)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


# Find


def conv(x, w):
    return nn.conv(x, w, padding=1)


DIRECTIONS = {
    "forward": conv,
    "data": lambda ct, w: amdjax.vjp(lambda x: conv(x, w), jnp.ones((1, 6, 6, 8)))[1](ct)[0],
    "weights": lambda ct, x: amdjax.vjp(lambda w: conv(x, w), jnp.ones((3, 3, 8, 8)))[1](ct)[0],
}
SEARCHES = ("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardWeights")
QUERIES = ("CompileSolution", "GetSolution", "GetSolutionCount", "GetSolutionWorkspaceSize",
           "GetWorkSpaceSize", "Immediate")  # fmt: skip


@pytest.fixture
def database(tmp_path):
    with State("db_path")(str(tmp_path / "find.db")):
        yield
    amdjax.clear_caches()


@covers(*(f"{name}{query}" for name in SEARCHES for query in QUERIES),
        "FindConvolutionForwardAlgorithm", "FindConvolutionBackwardDataAlgorithm",
        "FindConvolutionBackwardWeightsAlgorithm", "CreateConvProblem", "FindSolutions",
        "RunSolution", "GetSolutionTime", "GetSolutionSolverId", "GetSolutionWorkspaceSize",
        "GetSolverIdConvAlgorithm", "SaveSolution", "LoadSolution", "GetSolutionSize",
        "SetFindOptionResultsOrder", "SetFindOptionWorkspaceLimit", "SetFindOptionTuning",
        by=("find.problems", "find.find_solutions", "find.Solution", ".compile()", ".run(...)",
            ".workspace_bytes", "find.load_solution", "sort", "workspace_limit"))  # fmt: skip
def searched_convolutions(folder):
    """Each direction: all solutions compute it, are ordered, saved, and read back."""
    for name, f in DIRECTIONS.items():
        args = [draw(1, 6, 6, 8), draw(3, 3, 8, 8) if name != "weights" else draw(1, 6, 6, 8)]
        problems = [p for p in find.problems(f, *args) if p.kind == "convolution"]
        (problem,) = problems
        assert problem.name == f"convolution {name}"
        solutions = find.find_solutions(problem)
        assert solutions and [s.time for s in solutions] == sorted(s.time for s in solutions)
        given = [draw(*a.shape) for a in problem.closed.in_avals]
        expected = amdjax.core.eval_jaxpr(problem.closed.jaxpr, problem.closed.consts, *given)
        for s in solutions[:3]:
            assert s.solver and s.workspace_bytes >= 0
            close(s.run(*given)[0], wide(expected[0]))
            close(s.compile()(*given)[0], wide(expected[0]))
        by_space = find.find_solutions(problem, sort="workspace")
        least = by_space[0].workspace_bytes
        limited = find.find_solutions(problem, workspace_limit=least, limit=1)
        assert [s.workspace_bytes for s in limited] == [least]
        solutions[0].save(folder / f"{name}.json")
        again = find.load_solution(folder / f"{name}.json")
        assert (again.problem, again.decisions) == (problem, solutions[0].decisions)
        close(again.run(*given)[0], wide(expected[0]))


@covers("CreateMhaProblem", "CreateSoftmaxProblem", "CreateActivationProblem",
        "CreateBatchnormProblem", "CreateBiasProblem", "FuseProblems",
        by=("find.problems",))  # fmt: skip
def problems_of_every_kind(folder):
    """Each a step of a program, which is what is fused."""
    x, q, key = draw(4, 6), draw(1, 3, 2, 4), draw(6, 6)
    steps = {
        "attention": (lambda q: nn.dot_product_attention(q, q, q), q),
        "rows": (nn.softmax, x),
        "map": (nn.relu, x),
    }
    for kind, (f, argument) in steps.items():
        assert kind in [p.kind for p in find.problems(f, argument)]
    norm = lambda x: nn.batch_norm(x, None, None, x[0], x[1], train=True)[0]
    assert {p.kind for p in find.problems(norm, x)} <= {"rows", "map"}
    (fused,) = find.problems(lambda x, w, b: nn.relu(x @ w + b), x, key, x[0])
    assert fused.kind == "product" and "max" in fused.program and "add" in fused.program


# The library


@covers("GetVersion", "GetErrorString", "EnableProfiling", "GetKernelTime",
        by=("amdjax.__version__", "amdjax.errors", "amdjax.profiler.trace"))  # fmt: skip
def library(folder):
    assert [int(n) >= 0 for n in amdjax.__version__.split(".")]
    assert issubclass(amdjax.errors.TracerBoolConversionError, Exception)
    with amdjax.profiler.trace(str(folder / "trace")):
        jnp.sum(jnp.ones(300)).block_until_ready()
    assert any(p.is_file() and p.stat().st_size for p in (folder / "trace").rglob("*"))


@pytest.mark.turns(3)
@pytest.mark.parametrize("function", [c[0] for c in CASES], ids=lambda f: f.__name__)
def test_entries(function, database, tmp_path):
    function(*([tmp_path] if function.__code__.co_argcount else []))


def test_the_page_names_what_is_called():
    check_names(CASES)
    assert {e for _, entries, _ in CASES for e in entries} <= set(NAMES)
