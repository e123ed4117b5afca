"""If, Loop, Scan and sequences: compiled where they can be, run step by step where not."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import amdjax
import amdjax.numpy as jnp
from amdjax.onnx import NotTraceable, OnnxError
from tests.support.onnx_nodes import graph_model, run_node, untyped

NODE = helper.make_node


def scalar(name, value):
    return helper.make_tensor(name, *{
        bool: (TensorProto.BOOL, [], [value]), int: (TensorProto.INT64, [], [value]),
        float: (TensorProto.FLOAT, [], [value]),
    }[type(value)])  # fmt: skip


def body(nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, "body", untyped(*inputs), untyped(*outputs), list(constants))


def primitives(f, *args):
    return {e.primitive.name for e in amdjax.make_jaxpr(f)(*args).jaxpr.eqns}


X = np.arange(4, dtype=np.float32)


def branches(then_op="Neg", else_op="Abs"):
    graphs = [body([NODE(op, ["x"], ["r"])], [], ["r"]) for op in (then_op, else_op)]
    return NODE("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_condition_that_is_traced_compiles_both_branches(chosen):
    model = graph_model([branches()], {"c": np.array(chosen), "x": X}, ["y"])
    f = lambda c, x: model.function(model.params, c, x)["y"]
    assert "cond" in primitives(f, jnp.asarray(chosen), X)
    assert np.array_equal(amdjax.jit(f)(chosen, X), -X if chosen else abs(X))
    grad = amdjax.grad(lambda x: f(jnp.asarray(chosen), x).sum())(jnp.asarray(X + 1))
    assert np.array_equal(grad, np.full(4, -1 if chosen else 1))


def test_a_condition_that_is_known_leaves_one_branch_which_sees_traced_values():
    nodes = [NODE("Size", ["x"], ["n"]), NODE("Equal", ["n", "four"], ["c"]), branches()]
    model = graph_model(nodes, {"x": X}, ["y"], constants=[scalar("four", 4)])
    f = lambda x: model.function(model.params, x)["y"]
    assert primitives(f, X) == {"neg"}
    assert np.array_equal(amdjax.jit(f)(X), -X)


def test_branches_of_other_shapes_are_chosen_outside_of_jit():
    model = graph_model([branches("Neg", "Size")], {"c": np.array(True), "x": X}, ["y"])
    assert np.asarray(model(np.array(True), X)["y"]).shape == (4,)
    assert np.asarray(model(np.array(False), X)["y"]).shape == ()
    with pytest.raises(NotTraceable, match=r"'If_0'.*cond depends on inputs"):
        amdjax.jit(lambda c: model.function(model.params, c, X))(True)


def doubling(limit=None, collects=True):
    """A loop that doubles, and goes on while the first element is below a limit."""
    nodes = [NODE("Add", ["v", "v"], ["w"]), NODE("Identity", ["v"], ["s"])]
    if limit is None:
        nodes.append(NODE("Identity", ["cond"], ["on"]))
    else:
        nodes += [
            NODE("ReduceMax", ["w"], ["top"], keepdims=0),
            NODE("Less", ["top", "limit"], ["on"]),
        ]
    outs = ["on", "w", "s"] if collects else ["on", "w"]
    graph = body(nodes, ["i", "cond", "v"], outs)
    return NODE("Loop", ["m", "", "x"], ["y", "all"][: len(outs) - 1], body=graph)


def looped(trips, **how):
    limit = how.get("limit")
    constants = [scalar("m", trips)] + ([] if limit is None else [scalar("limit", limit)])
    outs = ["y", "all"] if how.get("collects", True) else ["y"]
    return graph_model([doubling(**how)], {"x": X}, outs, constants=constants)


def test_counted_loops_are_scans():
    model = looped(3)
    f = lambda x: model.function(model.params, x)
    assert "scan" in primitives(f, X)
    found = model(X)
    assert np.array_equal(found["y"], X * 8)
    assert np.array_equal(found["all"], [X, X * 2, X * 4])
    assert np.array_equal(amdjax.grad(lambda x: f(x)["y"].sum())(jnp.asarray(X)), np.full(4, 8))


def test_a_loop_of_no_step_collects_nothing():
    found = looped(0)(X)
    assert np.array_equal(found["y"], X) and np.asarray(found["all"]).shape == (0, 4)


def test_loops_with_a_condition_compile_where_they_collect_nothing():
    model = looped(2**63 - 1, limit=20.0, collects=False)
    f = lambda x: model.function(model.params, x)["y"]
    assert "while" in primitives(f, X)
    assert np.array_equal(model(X)["y"], X * 8)


def test_what_a_loop_collects_may_depend_on_values_outside_of_jit():
    model = looped(100, limit=20.0)
    found = model(X)
    assert np.array_equal(found["all"], [X, X * 2, X * 4])
    with pytest.raises(NotTraceable, match="'Loop_0'"):
        amdjax.jit(lambda x: model.function(model.params, x))(X)


def test_a_loop_may_carry_what_grows():
    graph = body(
        [NODE("Identity", ["cond"], ["on"]), NODE("Concat", ["v", "x"], ["w"], axis=0),
         NODE("SequenceInsert", ["s", "v"], ["t"])],
        ["i", "cond", "v", "s"], ["on", "w", "t"],
    )  # fmt: skip
    nodes = [
        NODE("SequenceEmpty", [], ["e"]),
        NODE("Loop", ["m", "", "x", "e"], ["y", "z"], body=graph),
    ]
    model = graph_model(nodes, {"x": X}, ["y", "z"], constants=[scalar("m", 2)])
    for run in (model, lambda x: amdjax.jit(model.function)(model.params, x)):
        found = run(X)
        assert np.array_equal(found["y"], np.tile(X, 3))
        assert [np.asarray(v).shape for v in found["z"]] == [(4,), (8,)]


def test_what_is_known_is_computed_as_a_model_is_traced():
    graph = body(
        [NODE("Identity", ["cond"], ["on"]), NODE("Mul", ["v", "two"], ["w"])],
        ["i", "cond", "v"], ["on", "w"],
    )  # fmt: skip
    nodes = [NODE("Loop", ["m", "", "one"], ["n"], body=graph), NODE("Expand", ["x", "n"], ["y"])]
    constants = [scalar("m", 3), helper.make_tensor("one", TensorProto.INT64, [1], [1]),
                 scalar("two", 2)]  # fmt: skip
    model = graph_model(nodes, {"x": X[:1]}, ["y"], constants=constants)
    f = lambda x: model.function(model.params, x)["y"]
    assert "scan" not in primitives(f, X[:1])
    assert amdjax.jit(f)(X[:1]).shape == (8,)


def test_a_loop_that_nothing_ends_is_an_error():
    node = doubling()
    node.input[0] = ""
    model = graph_model([node], {"x": X}, ["y", "all"])
    with pytest.raises(OnnxError, match=r"'Loop_0'.*nothing ends the loop"):
        model(X)


def test_scans_go_along_axes_in_directions():
    graph = body(
        [NODE("Add", ["c", "row"], ["d"]), NODE("Identity", ["d"], ["s"])], ["c", "row"], ["d", "s"]
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = NODE(
        "Scan", ["c", "x"], ["y", "all"], body=graph, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    model = graph_model([node], {"c": x[:, 0], "x": x}, ["y", "all"])
    found = model(np.zeros(2, np.float32), x)
    sums = np.cumsum(x[:, ::-1], 1)[:, ::-1]
    assert np.array_equal(found["all"], sums) and np.array_equal(found["y"], sums[:, 0])
    f = lambda c, x: model.function(model.params, c, x)["all"]
    assert "scan" in primitives(f, x[:, 0], x)


def test_scans_of_batches_have_lengths_of_their_own():
    graph = body(
        [NODE("Add", ["c", "row"], ["d"]), NODE("Identity", ["d"], ["s"])], ["c", "row"], ["d", "s"]
    )
    node = NODE("Scan", ["n", "c", "x"], ["y", "all"], body=graph, num_scan_inputs=1)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = {"n": np.array([3, 2]), "c": np.zeros(2, np.float32), "x": x}
    found = graph_model([node], given, ["y", "all"], opset=8)(**given)
    assert np.array_equal(found["y"], [3, 7])
    assert np.array_equal(found["all"], [[0, 1, 3], [3, 7, 0]])


@pytest.mark.parametrize("position, place", [(0, 0), (-1, 2), (2, 2)])
def test_items_of_sequences(position, place):
    nodes = [NODE("SplitToSequence", ["x", "one"], ["s"]), NODE("SequenceAt", ["s", "i"], ["y"]),
             NODE("SequenceErase", ["s", "i"], ["t"]),
             NODE("ConcatFromSequence", ["t"], ["z"], axis=0)]  # fmt: skip
    given = {"x": X[:3], "i": np.array(position)}
    model = graph_model(nodes, given, ["y", "z"], constants=[scalar("one", 1)])
    found = model(**given)
    assert np.array_equal(found["y"], X[place : place + 1])
    assert np.array_equal(found["z"], np.delete(X[:3], place))


def test_errors_of_sequences_name_the_position():
    nodes = [NODE("SequenceConstruct", ["x", "x"], ["s"]), NODE("SequenceAt", ["s", "i"], ["y"])]
    model = graph_model(nodes, {"x": X, "i": np.array(2)}, ["y"])
    with pytest.raises(OnnxError, match=r"'SequenceAt_1'.*position must be in \[-2, 2\), got 2"):
        model.function(model.params, X, np.array(2))


def test_sizes_that_do_not_add_up():
    with pytest.raises(OnnxError, match="split must add up to 4"):
        run_node("SplitToSequence", [X, np.array([1, 2])])


def test_outputs_come_in_the_order_of_the_model():
    nodes = [NODE("Neg", ["x"], ["z"]), NODE("Abs", ["x"], ["a"])]
    assert list(graph_model(nodes, {"x": X}, ["z", "a"])(X)) == ["z", "a"]
