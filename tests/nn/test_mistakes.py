"""What no function can take is refused by all of them alike, and float32 stays what it is."""

import inspect

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, optim, random, rnn

pytestmark = pytest.mark.cpu_only("what functions say before they compute")

KEY = random.key(0)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


IMAGE, ROWS, QUERY = normal(2, 6, 6, 4), normal(2, 4), normal(2, 5, 4, 8)
SHARES, SIGNS, LABELS = np.abs(np.tanh(ROWS)), np.sign(ROWS), np.array([1, 2])
FOUR = {name: np.abs(normal(4)) for name in ("scale", "bias", "mean", "variance")}
AFFINE = {name: FOUR[name] for name in ("scale", "bias")}

#: Functions of floats, with arguments that they take.
CALLS = {
    nn.conv: {"x": IMAGE, "kernel": normal(3, 3, 2, 6), "bias": normal(6), "groups": 2},
    nn.conv_transpose: {"x": IMAGE, "kernel": normal(3, 3, 4, 6), "bias": normal(6), "strides": 2},
    nn.dense: {"x": IMAGE, "kernel": normal(4, 3), "bias": normal(3)},
    nn.max_pool: {"x": IMAGE, "window": 2},
    nn.avg_pool: {"x": IMAGE, "window": 2, "padding": 1, "count_include_pad": False},
    nn.lp_pool: {"x": IMAGE, "window": 2, "p": 2.0, "padding": 1},
    nn.max_unpool: {"x": IMAGE, "indices": np.zeros(IMAGE.shape, int), "window": 2, "size": 12},
    nn.adaptive_avg_pool: {"x": IMAGE, "size": 4},
    nn.adaptive_max_pool: {"x": IMAGE, "size": 4},
    nn.batch_norm: {"x": IMAGE, **FOUR, "train": True, "momentum": 0.9, "epsilon": 1e-5},
    nn.instance_norm: {"x": IMAGE, **FOUR, "train": True, "momentum": 0.9, "epsilon": 1e-5},
    nn.layer_norm: {"x": IMAGE, **AFFINE, "epsilon": 1e-5},
    nn.add_layer_norm: {"x": IMAGE, "residual": IMAGE, **AFFINE, "epsilon": 1e-5},
    nn.rms_norm: {"x": IMAGE, "scale": normal(4), "epsilon": 1e-5},
    nn.group_norm: {"x": IMAGE, **AFFINE, "groups": 2, "epsilon": 1e-5},
    nn.local_response_norm: {"x": IMAGE, "size": 3, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
    nn.dropout: {"key": KEY, "x": IMAGE, "rate": 0.5},
    nn.upsample: {"x": IMAGE, "size": 9, "method": "cubic"},
    nn.resize: {"x": IMAGE, "size": 9},
    nn.pixel_shuffle: {"x": IMAGE, "factor": 2},
    nn.grid_sample: {"x": IMAGE, "grid": normal(2, 3, 3, 2), "padding_mode": "reflection"},
    nn.affine_grid: {"theta": normal(2, 2, 3), "size": (3, 3)},
    nn.rope: {"x": QUERY, "base": 1e4, "scaling": 1.0},
    nn.dot_product_attention: {"query": QUERY, "key": QUERY, "value": QUERY, "scale": 0.3},
    nn.softmax_cross_entropy: {"logits": ROWS, "labels": LABELS, "weight": FOUR["scale"],
                               "label_smoothing": 0.1},
    nn.nll_loss: {"log_probabilities": ROWS, "labels": LABELS, "weight": FOUR["scale"]},
    nn.sigmoid_cross_entropy: {"logits": ROWS, "labels": SHARES, "weight": FOUR["scale"],
                               "pos_weight": FOUR["scale"]},
    nn.binary_cross_entropy: {"probabilities": SHARES, "labels": SHARES, "weight": FOUR["scale"]},
    nn.focal_loss: {"logits": ROWS, "labels": SHARES, "alpha": 0.3, "gamma": 2.0},
    nn.kl_divergence: {"log_predictions": ROWS, "targets": SHARES},
    nn.huber: {"predictions": ROWS, "targets": SHARES, "delta": 1.0},
    nn.smooth_l1: {"predictions": ROWS, "targets": SHARES, "beta": 1.0},
    nn.poisson_nll_loss: {"predictions": ROWS, "targets": SHARES, "full": True},
    nn.gaussian_nll_loss: {"predictions": ROWS, "targets": SHARES, "variance": SHARES,
                           "epsilon": 1e-6},
    nn.soft_margin_loss: {"predictions": ROWS, "targets": SIGNS},
    nn.multi_margin_loss: {"predictions": ROWS, "labels": LABELS, "weight": FOUR["scale"],
                           "margin": 1.0},
    nn.multilabel_soft_margin_loss: {"predictions": ROWS, "targets": SHARES},
    nn.hinge_embedding_loss: {"distances": ROWS, "targets": SIGNS, "margin": 1.0},
    nn.margin_ranking_loss: {"first": ROWS, "second": SHARES, "targets": SIGNS, "margin": 1.0},
    nn.cosine_embedding_loss: {"first": ROWS, "second": SHARES, "targets": np.array([1, -1]),
                               "margin": 0.1},
    nn.triplet_margin_loss: {"anchor": ROWS, "positive": SHARES, "negative": SIGNS, "margin": 1.0,
                             "epsilon": 1e-6},
    nn.ctc_loss: {"logits": normal(5, 2, 4), "lengths": np.array([5, 4]), "blank": 0,
                  "labels": np.array([[1, 2], [3, 1]]), "label_lengths": np.array([2, 1])},
    nn.gelu: {"x": IMAGE},
    nn.softmax: {"x": IMAGE},
    nn.elu: {"x": IMAGE, "alpha": 1.0},
    nn.leaky_relu: {"x": IMAGE, "negative_slope": 0.1},
    nn.celu: {"x": IMAGE, "alpha": 1.0},
    nn.prelu: {"x": IMAGE, "alpha": normal(4)},
    nn.clamp: {"x": IMAGE, "alpha": -1.0, "beta": 1.0},
    nn.power: {"x": SHARES, "alpha": 0.0, "beta": 1.0, "gamma": 2.0},
    nn.scaled_tanh: {"x": IMAGE, "alpha": 1.0, "beta": 1.0},
}  # fmt: skip


def run(f, arguments):
    return amdjax.eval_shape(lambda: f(**arguments))


def refused(f, arguments, wrong, value):
    """Whether a call with one wrong argument is an error that names function and argument."""
    try:
        run(f, {**arguments, wrong: value})
    except (TypeError, ValueError) as error:
        return f.__name__ in str(error) and wrong in str(error)
    return False


@pytest.mark.parametrize("f", CALLS, ids=lambda f: f.__name__)
def test_numbers_are_numbers(f):
    arguments = CALLS[f]
    for name, value in arguments.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            for wrong in ("abc", {}):
                assert refused(f, arguments, name, wrong), (name, wrong)
            # The constants of losses may be arrays that a run will tell.
            if name in ("rate", "label_smoothing", "window", "size", "factor") or (
                name == "epsilon" and not f.__name__.endswith("loss")
            ):
                for wrong in (-1.0, float("nan")):
                    assert refused(f, arguments, name, wrong), (name, wrong)


@pytest.mark.parametrize("f", CALLS, ids=lambda f: f.__name__)
def test_imaginary_parts_are_not_lost(f):
    """An array of complex numbers is refused, or the result is complex."""
    arguments = CALLS[f]
    for name, value in arguments.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float32 and name != "grid":
            given = {**arguments, name: value + np.complex64(1j)}
            try:
                found = amdjax.tree.leaves(run(f, given))[0]
            except (TypeError, ValueError):
                continue
            assert jnp.issubdtype(found.dtype, jnp.complexfloating), name


@pytest.mark.parametrize("f", CALLS, ids=lambda f: f.__name__)
def test_single_precision_stays_where_double_is_enabled(f):
    dtypes = lambda: [x.dtype for x in amdjax.tree.leaves(run(f, CALLS[f]))]
    expected = dtypes()
    with amdjax.enable_x64(True):
        assert dtypes() == expected


def test_running_statistics_are_floats():
    for name in ("mean", "variance"):
        for f in (nn.batch_norm, nn.instance_norm):
            with pytest.raises(TypeError, match=f"{f.__name__}: {name} must have a real float"):
                f(**{**CALLS[f], name: np.ones(4, int)})


def test_strings_are_no_flags():
    for f in (nn.batch_norm, nn.instance_norm):
        with pytest.raises(TypeError, match=f"{f.__name__}: train must be True or False"):
            f(**{**CALLS[f], "train": "no"})


def test_weights_of_recurrent_layers():
    x, h = normal(7, 2, 3), normal(2, 5)
    calls = {
        "lstm": lambda w: rnn.lstm(w, x), "gru": lambda w: rnn.gru(w, x),
        "rnn": lambda w: rnn.rnn(w, x), "lstm_cell": lambda w: rnn.lstm_cell(w, x[0], (h, h)),
        "gru_cell": lambda w: rnn.gru_cell(w, x[0], h),
        "rnn_cell": lambda w: rnn.rnn_cell(w, x[0], h),
    }  # fmt: skip
    for name, call in calls.items():
        for wrong in (None, "abc", (1, 2)):
            with pytest.raises(TypeError, match=f"{name}: weights must be rnn.Weights"):
                call(wrong)


def made_of_numbers():
    """What makes optimizers, their parts and schedules, with the numbers that it takes."""
    given = {
        "learning_rate": 0.1, "init_value": 1.0, "end_value": 0.5, "peak_value": 2.0, "power": 2.0,
        "transition_steps": 4, "decay_steps": 9, "warmup_steps": 3, "decay_rate": 0.5,
        "max_delta": 1.0, "max_norm": 1.0, "threshold": 1.0, "step_size": 0.1, "decay": 0.9,
        "eta": 0.1, "gamma": 0.5, "key": KEY,
    }  # fmt: skip
    for name in dir(optim):
        f = getattr(optim, name)
        if name[0].isupper() or name == "value_and_grad_from_state" or not inspect.isfunction(f):
            continue
        parameters = inspect.signature(f).parameters.values()
        needed = {p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_POSITIONAL}
        if needed <= given.keys() and name not in ("constant_schedule", "scale_by_schedule"):
            arguments = {n: given[n] for n in needed}
            numbers = [n for n in needed if n != "key"]
            numbers += [p.name for p in parameters if type(p.default) is float]
            yield f, arguments, numbers


MADE = list(made_of_numbers())


@pytest.mark.parametrize(("f", "arguments", "numbers"), MADE, ids=[f.__name__ for f, *_ in MADE])
def test_optimizers_are_made_of_numbers(f, arguments, numbers):
    """A string in place of a number is refused at once, not by the first update."""
    f(**arguments)
    for name in dict.fromkeys(numbers):
        for wrong in ("abc", {}):
            with pytest.raises(TypeError, match=name):
                f(**{**arguments, name: wrong})


@pytest.mark.parametrize("f", [optim.adam, optim.adamw, optim.amsgrad, optim.lamb, optim.rmsprop])
def test_optimizers_are_not_made_of_nan(f):
    for wrong in (-1.0, float("nan")):
        for name in ("learning_rate", "eps"):
            with pytest.raises(ValueError, match=f"{name} must not be negative"):
                f(**{"learning_rate": 0.1, name: wrong})


def test_a_loss_scale_is_made_of_numbers():
    for name, wrong in [("value", "a"), ("period", 1.5), ("factor", {}), ("minimum", None)]:
        with pytest.raises(TypeError, match=f"DynamicLossScale: {name} must be"):
            nn.DynamicLossScale(**{"value": 2.0, name: wrong})
