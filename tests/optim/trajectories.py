"""Optimizers that optax has as well, and how both are run by tests and `tools/record_optax.py`."""

import functools

import ml_dtypes
import numpy as np

STEPS = 20
KEPT = (0, 1, 2, 3, 5, 9, 10, 14, 19)
SHAPES = {"matrix": (5, 7), "scalar": (), "tensor": (3, 1, 4), "vector": (13,)}
DTYPES = ("float32", "bfloat16")

warm = lambda o: o.warmup_cosine_decay_schedule(0.0, 0.1, 5, 18)
matrices = lambda tree: lambda p: tree.map(lambda x: x.ndim > 1, p)

# name: how to make it from a library and its functions on trees
OPTIMIZERS = {
    "sgd": lambda o, t: o.sgd(0.1),
    "sgd momentum": lambda o, t: o.sgd(0.1, 0.9),
    "sgd nesterov": lambda o, t: o.sgd(0.1, 0.9, nesterov=True),
    "sgd float32 momentum": lambda o, t: o.sgd(0.1, 0.9, accumulator_dtype=np.float32),
    "sgd schedule": lambda o, t: o.sgd(warm(o), 0.9),
    "adam": lambda o, t: o.adam(0.1, 0.8, 0.95, 1e-6),
    "adam eps_root": lambda o, t: o.adam(0.1, eps_root=1e-4),
    "adam narrow mean": lambda o, t: o.adam(0.1, mu_dtype="bfloat16"),
    "nadam": lambda o, t: o.nadam(0.1),
    "adamw": lambda o, t: o.adamw(0.1, weight_decay=0.3),
    "adamw mask": lambda o, t: o.adamw(warm(o), weight_decay=0.3, mask=matrices(t)),
    "nadamw": lambda o, t: o.nadamw(0.1, weight_decay=0.3),
    "amsgrad": lambda o, t: o.amsgrad(0.1, b2=0.5),
    "amsgrad uncorrected": lambda o, t: o.amsgrad(
        0.1, bias_correction_mu=False, bias_correction_nu=False
    ),
    "adamax": lambda o, t: o.adamax(0.1, 0.8, 0.95),
    "radam": lambda o, t: o.radam(0.1),
    "radam nesterov": lambda o, t: o.radam(0.1, b2=0.9, nesterov=True),
    "rmsprop": lambda o, t: o.rmsprop(0.1, 0.8, 1e-6),
    "rmsprop eps outside": lambda o, t: o.rmsprop(0.1, 0.99, 1e-3, eps_in_sqrt=False),
    "rmsprop centered": lambda o, t: o.rmsprop(0.1, 0.8, 1e-6, centered=True),
    "rmsprop centered outside": lambda o, t: o.rmsprop(
        0.1, 0.8, 1e-3, centered=True, eps_in_sqrt=False, initial_scale=1.0
    ),
    "rmsprop momentum": lambda o, t: o.rmsprop(0.1, initial_scale=1.0, momentum=0.5),
    "rmsprop nesterov": lambda o, t: o.rmsprop(warm(o), momentum=0.5, nesterov=True),
    "rmsprop corrected": lambda o, t: o.rmsprop(0.1, bias_correction=True, eps=1e-3),
    "adagrad": lambda o, t: o.adagrad(0.1),
    "adagrad from zero": lambda o, t: o.adagrad(0.1, 0.0, 1e-10),
    "adadelta": lambda o, t: o.adadelta(1.0, weight_decay=0.1, weight_decay_mask=matrices(t)),
    "lion": lambda o, t: o.lion(0.1, 0.8, 0.9, weight_decay=0.02),
    "lamb": lambda o, t: o.lamb(0.1, weight_decay=0.1),
    "lars": lambda o, t: o.lars(1.0, weight_decay=0.1, trust_ratio_mask=matrices(t), nesterov=True),
    "adafactor": lambda o, t: o.adafactor(0.1, min_dim_size_to_factor=4),
    "adafactor full": lambda o, t: o.adafactor(factored=False, weight_decay_rate=0.1, momentum=0.9),
    "adafactor tall": lambda o, t: o.adafactor(
        0.1, min_dim_size_to_factor=3, clipping_threshold=None, multiply_by_parameter_scale=False
    ),
    "lbfgs": lambda o, t: o.lbfgs(0.1, memory_size=3, linesearch=None),
    "lbfgs unscaled": lambda o, t: o.lbfgs(1e-2, 1, scale_init_precond=False, linesearch=None),
    "ema": lambda o, t: o.chain(o.ema(0.9), o.scale(-0.1)),
    "ema biased": lambda o, t: o.ema(0.9, debias=False, accumulator_dtype=np.float32),
    "noise": lambda o, t: o.chain(o.add_noise(0.1, 0.55, 7), o.sgd(0.1)),
    "centralize": lambda o, t: o.chain(o.centralize(), o.adam(0.1)),
    "clip by block": lambda o, t: o.chain(o.clip_by_block_rms(0.5), o.sgd(0.1)),
    "clip by norm": lambda o, t: o.chain(o.clip_by_global_norm(0.5), o.sgd(0.1)),
    "decay schedule": lambda o, t: o.chain(o.add_decayed_weights(warm(o)), o.sgd(0.1)),
    "groups": lambda o, t: o.multi_transform(
        {"a": o.adam(0.1), "b": o.sgd(0.1, 0.9)}, dict.fromkeys(SHAPES, "b") | {"matrix": "a"}
    ),
    "every third": lambda o, t: o.MultiSteps(o.adam(0.1), 3).gradient_transformation(),
    "every other sum": lambda o, t: o.MultiSteps(
        o.adam(0.1), lambda step: 1 + step % 2, use_grad_mean=False
    ).gradient_transformation(),
    "skip large": lambda o, t: o.MultiSteps(
        o.adam(0.1), 2, should_skip_update_fn=functools.partial(
            o.skip_large_updates, max_squared_norm=50.0)
    ).gradient_transformation(),
    "injected": lambda o, t: o.inject_hyperparams(o.adamw)(warm(o), weight_decay=0.1),
    "zero nans": lambda o, t: o.chain(o.zero_nans(), o.adam(0.1)),
    "if finite": lambda o, t: o.apply_if_finite(o.adam(0.1), 2),
    "not finite": lambda o, t: o.MultiSteps(
        o.adam(0.1), 2, should_skip_update_fn=o.skip_not_finite
    ).gradient_transformation(),
}  # fmt: skip
#: By name and dtype: of random gradients in 8 bits the differences are all rounding.
ILL_CONDITIONED = {("lbfgs unscaled", "bfloat16")}
NOT_FINITE = ("zero nans", "if finite", "not finite")


def tree(seed, dtype):
    rng = np.random.default_rng(seed)
    as_type = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    return {k: np.asarray(rng.standard_normal(s), as_type) for k, s in SHAPES.items()}


def gradients(step, dtype, spoiled):
    grads = tree(1 + step, dtype)
    if spoiled and step in (2, 3, 9, 10, 11, 12):
        grads["vector"][step] = np.nan if step % 2 else np.inf
    return grads


def run(optimizer, library, tree_map, asarray, jit, dtype, spoiled=False):
    """The updates of some of the steps, stacked for each leaf, as float32."""

    @jit
    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return library.apply_updates(params, updates), state, updates

    params = tree_map(asarray, tree(0, dtype))
    state, made = optimizer.init(params), []
    for i in range(STEPS):
        grads = tree_map(asarray, gradients(i, dtype, spoiled))
        params, state, updates = step(params, state, grads)
        made.append(updates)
    return {k: np.stack([np.asarray(made[i][k], np.float32) for i in KEPT]) for k in SHAPES}
