"""Control flow of old graphs: loops made of frames, branches between Switch and Merge."""

import numpy as np
import pytest

import amdjax
from amdjax import tf
from tests.support.tf_graphs import Builder


class Loop:
    """A loop made of frames, whose variables are changed by `step` while `test` is true.

    Both are functions of the graph, the variables and the constants, and give names of outputs.
    """

    def __init__(self, graph, frame, variables, constants, test, step):
        op = graph.op
        enter = lambda x, fixed: op("Enter", x, frame_name=frame, is_constant=fixed)
        enters = [enter(x, False) for x in variables]
        fixed = [enter(x, True) for x in constants]
        later = [f"{frame}/next_{i}" for i in range(len(variables))]
        merges = [op("Merge", e, n) for e, n in zip(enters, later)]
        go_on = op("LoopCond", test(graph, merges, fixed))
        switches = [op("Switch", m, go_on) for m in merges]
        inside = [op("Identity", f"{s}:1") for s in switches]
        for name, x in zip(later, step(graph, inside, fixed)):
            op("NextIteration", x, name=name)
        self.results = [op("Exit", s) for s in switches]


def counting(graph, x, w, limit):
    """`x = tanh(x @ w) + i` for i below a limit."""
    start = graph.const(np.int32(0))

    def step(g, v, c):
        there = g.op("Tanh", g.op("MatMul", v[1], c[0]))
        moved = g.op("AddV2", there, g.op("Cast", v[0], SrcT=np.int32, DstT=np.float32))
        return [g.op("AddV2", v[0], g.const(np.int32(1))), moved]

    loop = Loop(
        graph, "loop", [start, x], [w, limit], lambda g, v, c: g.op("Less", v[0], c[1]), step
    )
    return loop.results[1]


def counted(x, w, n):
    for i in range(n):
        x = np.tanh(x @ w) + i
    return x


def test_a_loop_that_counts():
    """Its number of steps is known, so it has derivatives in both modes."""
    draw = np.random.default_rng(0)
    w = draw.standard_normal((3, 3)).astype(np.float32)
    graph = Builder()
    y = counting(graph, graph.input("x", (None, 3)), graph.const(w), graph.const(np.int32(4)))
    graph.op("Identity", y, name="y")
    model = tf.load(graph.bytes())
    for n in (2, 5):
        x = draw.standard_normal((n, 3)).astype(np.float32)
        np.testing.assert_allclose(model(x)["y"], counted(x, w, 4), atol=1e-5)
    loss = lambda x: (model.function(model.params, x=x)["y"] ** 2).sum()
    amdjax.test_util.check_grads(loss, (amdjax.numpy.asarray(x),), 1, modes="rev")


def test_a_loop_whose_steps_depend_on_values():
    """Doubling until a bound that is an input is passed; one variable is not read afterwards."""
    graph = Builder()
    x, bound = graph.input("x", (3,)), graph.input("bound", ())
    loop = Loop(
        graph, "while", [x, graph.const(np.int32(0))], [bound],
        lambda g, v, c: g.op("Less", g.op("Sum", v[0], g.const(np.int32([0]))), c[0]),
        lambda g, v, c: [g.op("Add", v[0], v[0]), g.op("Add", v[1], g.const(np.int32(1)))],
    )  # fmt: skip
    graph.op("Identity", loop.results[0], name="y")
    graph.op("Identity", loop.results[1], name="steps")
    model = tf.load(graph.bytes(), outputs=["y", "steps"])
    for bound in (1.0, 50.0, 1000.0):
        want, steps = np.float32([1, 2, 4]), 0
        while want.sum() < bound:
            want, steps = want * 2, steps + 1
        made = amdjax.jit(model.function)({}, x=np.float32([1, 2, 4]), bound=np.float32(bound))
        np.testing.assert_array_equal(made["y"], want)
        assert int(made["steps"]) == steps


def test_loops_within_loops():
    """The inner one counts to the outer one's counter and reads its variable as a constant."""
    graph = Builder()
    x = graph.input("x", (2,))
    zero, one, limit = (graph.const(np.int32(n)) for n in (0, 1, 4))

    def inner(g, v, c):
        loop = Loop(
            g, "inner", [zero_in(g, v), v[1]], [v[0]],
            lambda g, v, c: g.op("Less", v[0], c[0]),
            lambda g, v, c: [
                g.op("AddV2", v[0], g.const(np.int32(1))),
                g.op("Mul", v[1], g.const(np.float32(1.5))),
            ],
        )  # fmt: skip
        return [g.op("AddV2", v[0], c[1]), g.op("AddV2", loop.results[1], v[1])]

    def zero_in(g, v):
        return g.op("Sub", v[0], v[0])

    outer = Loop(
        graph, "outer", [zero, x], [limit, one], lambda g, v, c: g.op("Less", v[0], c[0]), inner
    )
    graph.op("Identity", outer.results[1], name="y")
    x = np.float32([1, -2])
    want = x
    for i in range(4):
        want = want * 1.5**i + want
    np.testing.assert_allclose(tf.load(graph.bytes())(x)["y"], want, rtol=1e-6)


def test_arrays_of_loops():
    """As `tf.map_fn` wrote them: rows are scattered, read, written and gathered."""
    graph = Builder()
    op, x = graph.op, graph.input("x", (5, 3))
    count = graph.const(np.int32(5))
    rows = op("Range", graph.const(np.int32(0)), count, graph.const(np.int32(1)))
    given = op("TensorArrayV3", count, dtype=np.float32)
    flow = op("TensorArrayScatterV3", given, rows, x, f"{given}:1", T=np.float32)
    made = op("TensorArrayV3", count, dtype=np.float32)

    def step(g, v, c):
        row = g.op("TensorArrayReadV3", c[1], v[0], c[2], dtype=np.float32)
        total = g.op("Sum", g.op("Square", row), g.const(np.int32([0])))
        written = g.op("TensorArrayWriteV3", c[3], v[0], total, v[1])
        return [g.op("AddV2", v[0], g.const(np.int32(1))), written]

    loop = Loop(
        graph, "map", [graph.const(np.int32(0)), f"{made}:1"], [count, given, flow, made],
        lambda g, v, c: g.op("Less", v[0], c[0]), step,
    )  # fmt: skip
    size = op("TensorArraySizeV3", made, loop.results[1])
    order = op("Range", graph.const(np.int32(0)), size, graph.const(np.int32(1)))
    op("TensorArrayGatherV3", made, order, loop.results[1], name="y", dtype=np.float32)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(tf.load(graph.bytes())(x)["y"], (x**2).sum(1), rtol=1e-6)


def branching(graph, x, predicate, inner=None):
    """`-x` where the predicate is true, else `x * 3`, or a branch of its own."""
    op = graph.op
    switch = op("Switch", x, predicate)
    less = op("Neg", f"{switch}:1")
    if inner is None:
        more = op("Mul", switch, graph.const(np.float32(3)))
    else:
        condition = op("Switch", inner, predicate)
        more = branching(graph, switch, condition)
    return op("Merge", more, less)


@pytest.mark.parametrize("is_nested", [False, True])
def test_branches(is_nested):
    """Of predicates that are inputs, and within each other."""
    graph = Builder()
    x, p, q = graph.input("x", (3,)), graph.input("p", (), bool), graph.input("q", (), bool)
    y = branching(graph, x, p, q if is_nested else None)
    graph.op("Identity", y, name="y")
    graph.op("Identity", f"{y}:1", name="which")
    model = tf.load(graph.bytes(), outputs=["y", "which"])
    x = np.float32([1, -2, 5])
    for p in (False, True):
        for q in (False, True):
            given = {"x": x, "p": np.asarray(p)} | ({"q": np.asarray(q)} if is_nested else {})
            made = amdjax.jit(model.function)({}, **given)
            negative = p or (is_nested and q)
            np.testing.assert_array_equal(made["y"], -x if negative else 3 * x)
            assert int(made["which"]) == int(p)


def test_a_branch_that_is_a_constant():
    """It begins with no Switch but waits for one."""
    graph = Builder()
    op, x, p = graph.op, graph.input("x", (2,)), graph.input("p", (), bool)
    pivot = op("Switch", p, p)
    taken = op("Identity", f"{pivot}:1")
    other = op("Const", f"^{taken}", value=np.float32([7, 8]), dtype=np.float32)
    op("Merge", op("Switch", x, p), other, name="y")
    model = tf.load(graph.bytes(), outputs=["y"])
    x = np.float32([1, 2])
    np.testing.assert_array_equal(model(x=x, p=np.asarray(True))["y"], [7, 8])
    np.testing.assert_array_equal(model(x=x, p=np.asarray(False))["y"], x)


def test_a_loop_within_a_branch():
    graph = Builder()
    x, p = graph.input("x", (2, 2)), graph.input("p", (), bool)
    switch = graph.op("Switch", x, p)
    w = np.float32([[1, 2], [0, 1]]) / 2
    y = counting(graph, f"{switch}:1", graph.const(w), graph.const(np.int32(3)))
    graph.op("Merge", graph.op("Neg", switch), y, name="y")
    model = tf.load(graph.bytes())
    x = np.float32([[1, 2], [3, 4]])
    np.testing.assert_allclose(model(x=x, p=np.asarray(True))["y"], counted(x, w, 3), rtol=1e-6)
    np.testing.assert_array_equal(model(x=x, p=np.asarray(False))["y"], -x)


def test_what_is_no_loop_and_no_branch():
    graph = Builder()
    x, p = graph.input("x", (2,)), graph.input("p", (), bool)
    a, b = graph.op("Switch", x, p), graph.op("Switch", x, graph.op("LogicalNot", p))
    graph.op("Merge", a, f"{b}:1", name="y")
    with pytest.raises(tf.TensorFlowError, match=r"'y' \(Merge\).*two branches of one predicate"):
        tf.load(graph.bytes())
    graph = Builder()
    enter = graph.op("Enter", graph.input("x", (2,)), frame_name="f", name="enter")
    graph.op("Exit", graph.op("Switch", graph.op("Merge", enter, "x"), enter), name="y")
    with pytest.raises(tf.TensorFlowError, match=r"loop 'f': steps of .* expected one, found 0"):
        tf.load(graph.bytes())
