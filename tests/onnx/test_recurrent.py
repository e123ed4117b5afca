"""RNN, LSTM and GRU: all activations, both directions, lengths, against float64."""

import numpy as np
import pytest

from tests.support.onnx_nodes import run_node

T, B, N, M = 5, 3, 4, 6
SIGMOID = lambda x: 1 / (1 + np.exp(-x))
FUNCTIONS = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: SIGMOID(x),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
    "Softplus": lambda x, a, b: np.log1p(np.exp(x)),
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "Elu": lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    "Affine": lambda x, a, b: a * x + b,
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
}
WITH_ALPHA = ("LeakyRelu", "ThresholdedRelu", "Elu", "Affine", "ScaledTanh", "HardSigmoid")
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")
GATES = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}
USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def numbers(names):
    """Parameters that stand for those of these activations, as attributes and by activation."""
    alphas, betas, of = [], [], []
    for i, name in enumerate(names):
        a, b = 0.3 + 0.1 * i, 0.7 - 0.1 * i
        alphas += [a] if name in WITH_ALPHA else []
        betas += [b] if name in WITH_BETA else []
        of.append((FUNCTIONS[name], np.float32(a), np.float32(b)))
    return alphas, betas, of


def steps(op, x, w, r, b, h, c, p, of, clip, linear, coupled):
    """One direction of one sequence, step by step."""
    f = [lambda z, g=g: g[0](z, *g[1:]) for g in of]
    bound = lambda z: z if clip is None else np.clip(z, -clip, clip)
    wb, rb = np.split(b, 2)
    ys = []
    for row in x:
        z = row @ w.T + wb
        if op == "RNN":
            h = f[0](bound(z + h @ r.T + rb))
        elif op == "GRU":
            zz, zr, zh = np.split(z, 3)
            (rz, rr, rh), (bz, br, bh) = np.split(r, 3), np.split(rb, 3)
            update = f[0](bound(zz + h @ rz.T + bz))
            reset = f[0](bound(zr + h @ rr.T + br))
            inner = reset * (h @ rh.T + bh) if linear else (reset * h) @ rh.T + bh
            h = (1 - update) * f[1](bound(zh + inner)) + update * h
        else:
            i, o, g, new = np.split(z + h @ r.T + rb, 4)
            pi, po, pf = np.split(p, 3)
            i = f[0](bound(i + pi * c))
            g = 1 - i if coupled else f[0](bound(g + pf * c))
            c = g * c + i * f[1](bound(new))
            h = f[0](bound(o + po * c)) * f[2](c)
        ys.append(h)
    return np.array(ys), h, c


def reference(op, x, w, r, b, lengths, h, c, p, of, clip=None, linear=0, coupled=0, layout=0):
    directions = len(w)
    count = len(of) // directions
    y = np.zeros((T, directions, B, M))
    ends = np.zeros((2, directions, B, M))
    for d in range(directions):
        for i, n in enumerate(lengths):
            backward = directions == 2 and d == 1
            part = x[:n, i][::-1] if backward else x[:n, i]
            found, ends[0, d, i], ends[1, d, i] = steps(
                op, part, w[d], r[d], b[d], h[d, i], c[d, i], p[d],
                of[d * count : (d + 1) * count], clip, linear, coupled,
            )  # fmt: skip
            y[:n, d, i] = found[::-1] if backward else found
    return [y, *(ends if op == "LSTM" else ends[:1])]


def operands(op, directions, seed=0):
    r = np.random.default_rng(seed)
    gates = GATES[op][0]
    f = lambda *shape: (r.normal(size=shape) * 0.5).astype(np.float32)
    made = [f(T, B, N), f(directions, gates * M, N), f(directions, gates * M, M)]
    made += [f(directions, 2 * gates * M), np.array([5, 2, 3], np.int32), f(directions, B, M)]
    return made + ([f(directions, B, M), f(directions, 3 * M)] if op == "LSTM" else [])


def check(op, directions=1, names=None, **attributes):
    names = list(names or USUAL[op] * directions)
    alphas, betas, of = numbers(names)
    given = operands(op, directions)
    clip, layout = attributes.get("clip"), attributes.get("layout", 0)
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in given]
    if op != "LSTM":
        wide += [np.zeros((directions, B, M)), np.zeros((directions, 3 * M))]
    want = reference(
        op, *wide, of, clip, attributes.get("linear_before_reset", 0),
        attributes.get("input_forget", 0),
    )  # fmt: skip
    if layout:
        given = [g.swapaxes(0, 1) if i in (0, 5, 6) and g.ndim == 3 else g
                 for i, g in enumerate(given)]  # fmt: skip
        want = [want[0].transpose(2, 0, 1, 3), *(v.swapaxes(0, 1) for v in want[1:])]
    got = run_node(
        op, given, len(want), opset=22, hidden_size=M, activations=names,
        direction="bidirectional" if directions == 2 else "forward",
        **({"activation_alpha": alphas} if alphas else {}),
        **({"activation_beta": betas} if betas else {}), **attributes,
    )  # fmt: skip
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("op", GATES)
def test_usual_cells(op, directions):
    check(op, directions)


@pytest.mark.parametrize("form", [{"clip": 0.25}, {"layout": 1}])
@pytest.mark.parametrize("op", GATES)
def test_bounds_and_layout(op, form):
    check(op, 2 if "layout" in form else 1, **form)


@pytest.mark.parametrize("form", [
    ("GRU", {"linear_before_reset": 1}), ("GRU", {"linear_before_reset": 1, "clip": 0.25}),
    ("LSTM", {"input_forget": 1}),
])  # fmt: skip
def test_forms_of_cells(form):
    check(form[0], **form[1])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations(name):
    check("RNN", names=[name])


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_each_activation_takes_the_next_number(op):
    count = GATES[op][1]
    names = ["HardSigmoid", "ScaledTanh", "Elu"][:count] + ["Sigmoid", "LeakyRelu", "Softsign"][
        :count
    ]
    check(op, 2, names)
