"""Functions in few bits against a simulation of the same arithmetic in float64."""

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.quantize import FORMATS, MinMax, Product, Recipe, quantize, sqnr


def normal(*shape):
    """Normal numbers, which are the same whichever tests run."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


X, IMAGES = normal(6, 16), normal(2, 7, 6, 3)
PARAMS = {"a": {"w": normal(16, 12), "b": normal(12)}, "out": normal(12, 5)}
KERNEL = {"k": normal(3, 3, 3, 4)}


def mlp(params, x):
    return jnp.maximum(x @ params["a"]["w"] + params["a"]["b"], 0) @ params["out"]


def conv(params, x):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, params["k"], (2, 1), "SAME", dimension_numbers=numbers)


def scale_of(x, axis, symmetric, name="int8"):
    """The scale and zero point of an array, in float32 as they are defined."""
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    highest = np.float32(FORMATS[name].highest)
    if symmetric or not FORMATS[name].is_integer:
        return np.maximum(-low, high) / highest, np.float32(0)
    lowest = np.float32(FORMATS[name].lowest)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scale = high / (highest - lowest) - low / (highest - lowest)
    return scale, np.clip(np.round(lowest - low / scale), lowest, highest)


def rounded(x, scale, zero, symmetric, name="int8"):
    """What an array stands for once it is in few bits, in float64."""
    form = FORMATS[name]
    if not form.is_integer:
        dtype = getattr(ml_dtypes, name)
        numbers = np.clip(x / scale, -form.highest, form.highest).astype(dtype)
        return numbers.astype(np.float64) * scale
    lowest = -form.highest if symmetric and form.lowest < 0 else form.lowest
    numbers = np.clip(np.round(x / scale) + zero, lowest, form.highest)
    return (numbers.astype(np.float64) - zero) * scale.astype(np.float64)


def by_itself(x, axis, symmetric, name="int8"):
    return rounded(x, *scale_of(x, axis, symmetric, name), symmetric, name)


def close(got, wanted):
    """Sums of integers are exact: what is left are a few roundings of float32."""
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-6 * np.abs(wanted).max())


SETTINGS = [
    ("int8", None, False, True),
    ("int8", True, True, True),
    ("int8", False, False, False),
    ("uint8", None, False, False),
    ("float8_e4m3fn", None, True, True),
    ("float8_e5m2", None, True, True),
]


@pytest.mark.devices
@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("name", "symmetric", "of_x", "of_w"), SETTINGS)
def test_matrix_product(mode, per_channel, name, symmetric, of_x, of_w):
    f = lambda w, x: x @ w
    w = PARAMS["a"]["w"]
    q = quantize(
        f, w, [X], mode=mode, dtype=name, per_channel=per_channel, symmetric=symmetric,
        bias_correction=False,
    )  # fmt: skip
    x = by_itself(X, -1 if mode == "dynamic" else None, of_x, name)
    close(q(q.params, X), x @ by_itself(w, 0 if per_channel else None, of_w, name))


@pytest.mark.devices
@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("name", "symmetric", "of_x", "of_w"), SETTINGS)
def test_convolution(mode, per_channel, name, symmetric, of_x, of_w):
    q = quantize(
        conv, KERNEL, [IMAGES], mode=mode, dtype=name, per_channel=per_channel,
        symmetric=symmetric, bias_correction=False,
    )  # fmt: skip
    x = by_itself(IMAGES, None, of_x, name)
    k = by_itself(KERNEL["k"], (0, 1, 2) if per_channel else None, of_w, name)
    rows = sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2))
    close(q(q.params, IMAGES), np.einsum("nhwcij,ijco->nhwo", rows[:, ::2], k))


def test_grouped_convolution_has_scales_of_its_results():
    f = lambda k, x: nn.conv(x, k, groups=3)
    k = normal(3, 3, 1, 6) * np.arange(1, 7, dtype=np.float32) ** 3
    q = quantize(f, k, [IMAGES])
    assert q.params["products"]["params"]["weight"].scale.shape == (1, 1, 1, 6)
    assert sqnr(f(k, IMAGES), q(q.params, IMAGES)) > 38


@pytest.mark.parametrize("side", [0, 1])
def test_batched_product_whose_weight_stands_on_either_side(side):
    w, x = normal(4, 3, 8), normal(4, 8, 5)
    numbers = (((2,), (1,)), ((0,), (0,)))
    f = lambda w, x: lax.dot_general(w, x, numbers)
    if side:
        w, x = x, w
        f = lambda w, x: lax.dot_general(x, w, numbers)
    q = quantize(f, w, [x], bias_correction=False)
    rows = (by_itself(w, 1 if side else 2, True), by_itself(x, None, False))
    wanted = (
        np.einsum("bik,bkj->bij", *rows) if not side else np.einsum("bik,bkj->bij", *rows[::-1])
    )
    close(q(q.params, x), wanted)


PLAIN = np.broadcast_to(normal(5, 1, 1, 6), (5, 9, 9, 6))
BATCHED = lax.dot_general, (((2,), (1,)), ((0,), (0,)))
MEANS = {
    "rows": (lambda w, x: x @ w, normal(16, 12), X),
    "weight first": (lambda w, x: w @ x.T, normal(12, 16), X),
    "batched": (lambda w, x: BATCHED[0](x, w, BATCHED[1]), normal(4, 8, 5), normal(4, 7, 8)),
    "batched, weight first": (
        lambda w, x: BATCHED[0](w, x, BATCHED[1]), normal(4, 5, 8), normal(4, 8, 7),
    ),
    "channels": (lambda k, x: nn.conv(x, k), normal(1, 1, 3, 4), IMAGES),
    "groups": (
        lambda k, x: nn.conv(x, k, padding="VALID", groups=3, strides=2), normal(3, 3, 2, 6), PLAIN,
    ),
    "apart": (
        lambda k, x: nn.conv(x, k, padding="VALID", dilation=2), normal(3, 3, 6, 4), PLAIN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["int8", "uint8", "float8_e4m3fn"])
@pytest.mark.parametrize("name", MEANS)
def test_means_over_calibration_data_stay(name, form):
    """To half a step of integer sums, whatever rounding does; and with weights of another time."""
    f, w, x = MEANS[name]
    halves = [x[: len(x) // 2], x[len(x) // 2 :]] if "batched" not in name else [x]
    one, other = np.asarray(f(w, x)), normal(*w.shape, 1)[..., 0]
    mean = lambda y: y.mean(own_axes(f, w, x))
    q = quantize(f, w, halves, dtype=form)
    plain = quantize(f, w, halves, dtype=form, bias_correction=False)
    for weight in (w, other):
        want = mean(np.asarray(f(weight, x)))
        params, without = q.prepare(weight), plain.prepare(weight)
        off = [np.abs(mean(np.asarray(g(p, x))) - want) for g, p in ((q, params), (plain, without))]
        scale = np.asarray(params["products"]["params"]["weight"].scale)
        step = float(q.params["inputs"]["params"]["scale"]) * scale.max()
        bound = step / 2 if form != "float8_e4m3fn" else 0
        assert off[0].max() <= bound * 1.01 + 1e-5 * np.abs(one).max() < off[1].max()


def own_axes(f, w, x):
    """The axes of a result that are not the weight's."""
    (eqn,) = (e for e in amdjax.make_jaxpr(f)(w, x).eqns if "dimension_numbers" in e.params
              and e.primitive.name in ("dot_general", "conv_general_dilated"))  # fmt: skip
    if eqn.primitive.name == "dot_general":
        first = eqn.invars[0].aval.shape == w.shape
        return (-1,) if first else (-2,)
    return 0, 1, 2


def test_iterators_are_looked_at_twice():
    q = quantize(mlp, PARAMS, iter([X[:3], X[3:]]))
    again = quantize(mlp, PARAMS, [X[:3], X[3:]])
    for a, b in zip(amdjax.tree.leaves(q.params), amdjax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(a, b)


WEIGHTS = [("int8", None), ("int8", 4), ("uint8", None), ("int16", None), ("int4", 8),
           ("uint4", 4), ("mxfp4", 8), ("float8_e4m3fn", None), ("float8_e4m3fnuz", 2)]  # fmt: skip


@pytest.mark.devices
@pytest.mark.parametrize(("name", "group"), WEIGHTS)
def test_weights_alone(name, group):
    w = PARAMS["a"]["w"]
    f = lambda w, x: x @ w
    q = quantize(f, w, mode="weights", dtype=name, group=group, inputs=X)
    stored = q.params["products"]["params"]["weight"]
    close(q(q.params, X), X.astype(np.float64) @ np.asarray(stored.dequantize(), np.float64))
    bits = FORMATS[name].bits
    assert stored.values.nbytes == w.size * bits // 8


@pytest.mark.devices
@pytest.mark.parametrize("name", ["int8", "mxfp4", "float8_e4m3fn"])
def test_sums_before_scaling_may_be_more_than_float16_holds(device, name):
    w, x = np.full((32, 8), 0.01, np.float16), np.full((2, 32), 400, np.float16)
    q = quantize(lambda w, x: x @ w, w, mode="weights", dtype=name, inputs=x)
    stored = q.params["products"]["params"]["weight"]
    wanted = x.astype(np.float64) @ np.asarray(stored.dequantize(), np.float64)
    got = np.asarray(amdjax.jit(q)(q.params, x))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2.0**-11)


@pytest.mark.parametrize("name", ["int8", "int4", "mxfp4"])
@pytest.mark.parametrize("rows", [(), (1,), (3, 2), (40,)])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("group", [16, 12])  # of 11, 11 and 10
def test_groups_of_weights_for_few_rows_and_many(name, rows, side, group):
    w, x = normal(32, 3, 6) if side else normal(3, 32, 6), normal(*rows, 32)
    if side:
        f = lambda w, x: lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())))
    else:
        f = lambda w, x: lax.dot_general(w, x, (((1,), (x.ndim - 1,)), ((), ())))
    q = quantize(f, w, mode="weights", dtype=name, group=group, inputs=x)
    back = np.asarray(q.params["products"]["params"]["weight"].dequantize(), np.float64)
    wanted = np.tensordot(x, back, (-1, 0)) if side else np.tensordot(back, x, (1, -1))
    close(q(q.params, x), wanted)
    has_matrix = "f32[32,3,6]" in str(amdjax.make_jaxpr(q)(q.params, x))
    assert not (rows != (40,) and side and has_matrix)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_computed_narrow(dtype):
    q = quantize(mlp, PARAMS, dtype=dtype, inputs=X)
    narrow = lambda x: np.asarray(x, np.float32).astype(dtype).astype(np.float64)
    h = narrow(X) @ narrow(PARAMS["a"]["w"])
    h = np.maximum(h.astype(np.float32) + PARAMS["a"]["b"], 0)
    got = q(q.params, X)
    assert q.params["products"]["out"]["weight"].dtype == np.dtype(dtype)
    # Roundings of sums may move what the second product reads by a step of the narrow dtype.
    assert sqnr(narrow(h) @ narrow(PARAMS["out"]), got) > 70


def test_static_scales_are_those_of_calibration():
    q = quantize(mlp, PARAMS, [X[:3], X[3:]], bias_correction=False)
    w, b, out = PARAMS["a"]["w"], PARAMS["a"]["b"], PARAMS["out"]
    scale, zero = scale_of(X, None, False)
    assert float(q.params["inputs"]["a/w"]["scale"]) == scale.item()
    h = rounded(X, scale, zero, False) @ by_itself(w, 0, True)
    scale, zero = scale_of(np.maximum(X @ w + b, 0), None, False)
    np.testing.assert_allclose(q.params["inputs"]["out"]["scale"], scale.item(), rtol=1e-6)
    h = np.maximum(h.astype(np.float32) + b, 0)
    wanted = rounded(h, scale, zero, False) @ by_itself(out, 0, True)
    # Here and there an activation is rounded to the next step.
    assert sqnr(wanted, q(q.params, X)) > 50
    assert set(q.params["params"]) == {"a/b"}


def test_rows_of_a_batch_and_other_sizes():
    q = quantize(mlp, PARAMS, [X])
    want = np.asarray(q(q.params, X))
    for n in (1, 2, 3, 5):  # from some call on one program serves all sizes
        np.testing.assert_array_equal(np.asarray(q(q.params, X[:n])), want[:n])
    np.testing.assert_allclose(amdjax.vmap(q, (None, 0))(q.params, X), want, rtol=1e-6)
    np.testing.assert_allclose(amdjax.jit(q)(q.params, X), want, rtol=1e-6)
    dynamic = quantize(mlp, PARAMS, mode="dynamic", inputs=X)
    want = np.asarray(dynamic(dynamic.params, X))
    each = amdjax.vmap(dynamic, (None, 0))(dynamic.params, X)
    np.testing.assert_allclose(each, want, rtol=1e-5, atol=1e-5)


def test_convolution_under_vmap():
    q = quantize(conv, KERNEL, [IMAGES])
    want = q(q.params, IMAGES)
    each = amdjax.vmap(q, (None, 0))(q.params, IMAGES[:, None])
    np.testing.assert_allclose(each[:, 0], want, rtol=1e-5, atol=1e-5)
    one = quantize(conv, KERNEL, mode="dynamic", inputs=IMAGES[:1])
    each = amdjax.vmap(one, (None, 0))(one.params, IMAGES[:, None])
    np.testing.assert_allclose(each[1], one(one.params, IMAGES[1:]), rtol=1e-5, atol=1e-5)


def test_is_a_product_of_integers():
    q = quantize(mlp, PARAMS, [X])
    text = str(amdjax.make_jaxpr(q)(q.params, X))
    assert text.count("preferred_element_type=int32") == 2
    assert "f32[16,12]" not in text


# What is quantized


def test_weights_follow_from_parameters_by_any_operations():
    def f(params, x):
        w = params["v"] / jnp.linalg.norm(params["v"], axis=0) * params["g"]
        return x @ w.T.reshape(4, 16).T

    params = {"v": normal(16, 4), "g": normal(4)}
    q = quantize(f, params, [X])
    (name,) = q.decisions
    assert name == "dot_general"
    assert q.params["params"] == {}
    assert sqnr(f(params, X), q(q.params, X)) > 38


def test_constants_are_weights_too():
    q = quantize(lambda params, x: x @ PARAMS["a"]["w"], {}, [X])
    assert q.params["products"]["constant0"]["weight"].values.dtype == np.int8


def test_a_parameter_that_is_read_otherwise_is_kept():
    q = quantize(lambda w, x: x @ w + w[0, 0], PARAMS["a"]["w"], [X])
    assert q.params["params"].keys() == {"params"}


def test_products_of_activations_only_if_told():
    f = lambda params, x: (x @ params["a"]["w"]) @ (x @ params["a"]["w"]).T
    names = {n for n, d in quantize(f, PARAMS, [X]).decisions.items() if d.recipe is None}
    assert names == {"dot_general"}
    q = quantize(f, PARAMS, [X], rules={"dot_general": True})
    assert q.decisions["dot_general"].recipe is not None
    assert str(amdjax.make_jaxpr(q)(q.params, X)).count("preferred_element_type=int32") == 3
    assert sqnr(f(PARAMS, X), q(q.params, X)) > 30


def test_excluded_products_are_exact():
    q = quantize(mlp, PARAMS, [X], exclude=["a/w", "out"])
    np.testing.assert_array_equal(q(q.params, X), amdjax.jit(mlp)(PARAMS, X))
    assert set(q.params["params"]) == {"a/w", "a/b", "out"}
    q = quantize(mlp, PARAMS, [X], exclude="a/*")
    assert [n for n, d in q.decisions.items() if d.recipe] == ["out"]


@pytest.mark.parametrize(
    "rules",
    [
        {"a/*": False, "out": "float8_e4m3fn"},
        {"a/w": False, "dot_general": "fp8"},
        lambda product: "fp8" if product.shapes[2][-1] == 5 else False,
        {"out": Recipe("static", "float8_e4m3fn"), "*": False},
    ],
)
def test_rules(rules):
    q = quantize(mlp, PARAMS, [X], rules=rules)
    recipes = {n: d.recipe for n, d in q.decisions.items()}
    assert recipes["a/w"] is None
    assert recipes["out"] == Recipe("static", "float8_e4m3fn")


def test_rules_see_products():
    seen = []
    with amdjax.named_scope("net"):
        quantize(lambda p, x: mlp(p, x), PARAMS, [X], rules=seen.append)
    assert all(isinstance(p, Product) for p in seen)
    assert [(p.name, p.weight, p.depth) for p in seen] == [("a/w", 1, 16), ("out", 1, 12)]


def test_prepare_takes_other_parameters():
    q = quantize(mlp, PARAMS, [X])
    other = amdjax.tree.map(lambda x: x * 0.5, PARAMS)
    assert sqnr(mlp(other, X), q(q.prepare(other), X)) > 30
    with pytest.raises(TypeError, match="params"):
        q.prepare({"a": PARAMS["a"]})


def test_inputs_with_names_and_several():
    f = lambda params, x, *, shift: x @ params["out"] + shift
    q = quantize(f, PARAMS, [{"x": X[:, :12], "shift": 1.0}])
    assert sqnr(f(PARAMS, X[:, :12], shift=2.0), q(q.params, x=X[:, :12], shift=2.0)) > 38
    g = lambda params, x, y: (x + y) @ params["out"]
    q = quantize(g, PARAMS, [(X[:, :12], X[:, 4:])])
    assert sqnr(g(PARAMS, X[:, :12], X[:, 4:]), q(q.params, X[:, :12], X[:, 4:])) > 38


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize(("form", "least"), [("int8", 28), ("fp8", 19)])
def test_products_of_attention_if_a_rule_says_so(mode, form, least):
    """Queries with keys, and weights with values, of which neither follows from parameters."""

    def f(params, x):
        split = lambda w: (x @ w).reshape(2, 16, 4, 8).transpose(0, 2, 1, 3)
        q, k, v = map(split, params)
        return nn.softmax(q @ k.swapaxes(-1, -2) / 8**0.5) @ v

    params, x = list(normal(3, 32, 32) / 6), normal(2, 16, 32)
    usual = quantize(f, params, [x], mode=mode, dtype=form)
    assert sum(d.recipe is not None for d in usual.decisions.values()) == 3
    q = quantize(f, params, [x], mode=mode, dtype=form, rules={"dot_general": True})
    assert sum(d.recipe is not None for d in q.decisions.values()) == 5
    text = str(amdjax.make_jaxpr(q)(q.params, x))
    assert text.count("preferred_element_type=int32") == (5 if form == "int8" else 0)
    assert least < sqnr(f(params, x), q(q.params, x)) < sqnr(f(params, x), usual(usual.params, x))


# Loops and branches


def stacked(params, x):
    def layer(h, w):
        return jnp.tanh(h @ w @ params["shared"]), jnp.sum(h)

    return lax.scan(layer, x, params["layers"])


STACK = {"layers": normal(3, 16, 16) / 4, "shared": normal(16, 16) / 4}


@pytest.mark.parametrize("mode", ["static", "dynamic", "weights"])
def test_scan_over_layers(mode):
    q = quantize(stacked, STACK, [X], mode=mode)
    weights = {n: p["weight"] for n, p in q.params["products"].items()}
    assert weights["layers"].scale.shape == (3, 1, 16)
    assert weights["shared"].scale.shape == (1, 16)
    assert {d.recipe.mode for d in q.decisions.values()} == {mode}
    for want, got in zip(stacked(STACK, X), q(q.params, X)):
        assert sqnr(want, got) > 33
    assert q.params["params"] == {}


def test_scales_in_scans_are_those_of_all_steps_or_of_each_layer():
    q = quantize(stacked, STACK, [X[:2], X[2:]])
    h, of_layers, of_shared = X.astype(np.float64), [], []
    for w in STACK["layers"]:
        of_layers.append(scale_of(np.float32(h), None, False))
        of_shared.append(h @ w)
        h = np.tanh(of_shared[-1] @ STACK["shared"])
    got = q.params["inputs"]
    want = scale_of(np.float32(of_shared), None, False)
    np.testing.assert_allclose(got["shared"]["scale"], want[0].item(), rtol=1e-5)
    assert got["shared"]["zero_point"] == want[1].item()
    np.testing.assert_allclose(
        got["layers"]["scale"], np.ravel([s for s, _ in of_layers]), rtol=1e-5
    )
    text = str(amdjax.make_jaxpr(q)(q.params, X))
    assert "reduce_max" not in text and text.count("preferred_element_type=int32") == 2


def test_lstm_with_static_scales():
    def lstm(params, xs):
        def step(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x @ params["x"] + h @ params["h"] + params["b"], 4, -1)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
            h = nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (jnp.zeros((6, 8)), jnp.zeros((6, 8))), xs)[1]

    params = {"x": normal(16, 32) / 4, "h": normal(8, 32) / 3, "b": normal(32)}
    xs = normal(20, 6, 16)
    q = quantize(lstm, params, [xs])
    assert {d.recipe.mode for d in q.decisions.values()} == {"static"}
    low, high = (f(np.asarray(lstm(params, xs))[:-1]) for f in (np.min, np.max))
    np.testing.assert_allclose(q.params["inputs"]["h"]["scale"], (high - low) / 255, rtol=1e-5)
    assert sqnr(lstm(params, xs), q(q.params, xs)) > 38


def test_products_in_branches_are_dynamic():
    def f(params, x):
        g = lambda x: lax.scan(lambda h, _: (jnp.tanh(h @ params), None), x, None, length=2)[0]
        return lax.cond(x[0, 0] > 0, g, lambda x: x, x)

    q = quantize(f, normal(16, 16) / 4, [X, -X])
    assert {d.recipe.mode for d in q.decisions.values()} == {"dynamic"}
    for x in (X, -X):
        assert sqnr(f(normal(16, 16) / 4, x), q(q.params, x)) > 33


def test_scan_in_a_scan():
    def f(params, x):
        def outer(h, ws):
            inner = lambda h, w: (jnp.tanh(h @ w @ ws["once"]), None)
            return lax.scan(inner, h, ws["each"])[0], None

        return lax.scan(outer, x, params)[0]

    params = {"each": normal(2, 3, 16, 16) / 4, "once": normal(2, 16, 16) / 4}
    q = quantize(f, params, mode="weights", inputs=X)
    assert q.params["products"]["each"]["weight"].scale.shape == (2, 3, 1, 16)
    assert q.params["products"]["once"]["weight"].scale.shape == (2, 1, 16)
    assert sqnr(f(params, X), q(q.params, X)) > 33
    static = quantize(f, params, [X])
    assert static.params["inputs"]["each"]["scale"].shape == (2, 3)
    assert static.params["inputs"]["once"]["scale"].shape == (2,)
    assert sqnr(f(params, X), static(static.params, X)) > 30


def test_branches_and_while_loops():
    def f(params, x):
        h = lax.cond(x[0, 0] > 0, lambda x: x @ params["w"], lambda x: x @ params["w"].T, x)
        step = lambda c: (c[0] + 1, jnp.tanh(c[1] @ params["w"]))
        return lax.while_loop(lambda c: c[0] < 3, step, (0, h))[1]

    params = {"w": normal(16, 16) / 4}
    for mode in ("dynamic", "weights"):
        q = quantize(f, params, mode=mode, inputs=X)
        assert len(q.params["products"]) == 3
        for x in (X, -X):
            assert sqnr(f(params, x), q(q.params, x)) > 30


# Errors


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mode": "statical"}, "mode"),
        ({"dtype": "int7"}, "dtype"),
        ({"dtype": "int4"}, "dtype int4 is for mode='weights'"),
        ({"dtype": "uint8", "symmetric": True}, "symmetric"),
        ({"group": 4}, "group"),
        ({"mode": "weights", "group": -5}, "group must be positive"),
        ({"calibration": "median"}, "calibration"),
        ({"exclude": ["b/w"]}, "exclude names 'b/w'.*a/w, out"),
        ({"rules": {"c*": False}}, "rules names"),
        ({"rules": lambda product: 3.5}, "rules must say"),
        ({"calibration_data": []}, "calibration_data must not be empty"),
        ({"calibration_data": None}, "calibration_data must be given"),
        ({"calibration_data": None, "inputs": X}, "calibration_data must be given"),
        ({"calibration_data": [X, X * np.nan]}, "calibration_data must be finite: item 1"),
    ],
)
def test_errors_name_the_argument(arguments, named):
    with pytest.raises(ValueError, match=named):
        quantize(mlp, PARAMS, **{"calibration_data": [X], **arguments})


def test_other_errors():
    with pytest.raises(TypeError, match="calibration_data must be an iterable"):
        quantize(mlp, PARAMS, X)
    broken = {**PARAMS, "out": np.full((12, 5), np.nan, np.float32)}
    with pytest.raises(ValueError, match="the weight of 'out' must be finite"):
        quantize(mlp, broken, mode="weights", inputs=X)
    q = quantize(mlp, PARAMS, [X])
    with pytest.raises(TypeError, match="params must be those of the quantized function"):
        q(PARAMS, X)


def test_any_observer_calibrates():
    class Doubled(MinMax):
        def range(self):
            return tuple(2 * x for x in super().range())

    wide = quantize(mlp, PARAMS, [X], calibration=Doubled)
    plain = quantize(mlp, PARAMS, [X])
    ratio = wide.params["inputs"]["a/w"]["scale"] / plain.params["inputs"]["a/w"]["scale"]
    np.testing.assert_allclose(ratio, 2, rtol=1e-6)
