"""What the docstrings of `amdjax.optim` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

_DECAYS = "ValueError: a share of what remains is not in [0, 1)."

PHRASES = Phrases(
    {
        "accumulator_dtype": "dtype of the sum; None means the parameters'.",
        "count": "number of updates, int32.",
        "decay_rate": "exponent of `1 - count**-decay_rate`, how much of a mean remains.",
        "end_value": "value after the transition.",
        "gradient_step": "number of updates; not used.",
        "init_value": "value at the start.",
        "inner": "the transformation.",
        "inner_state": "that of the inner transformation.",
        "mu": "mean of the gradients, a tree of the parameters' form.",
        "params": "the parameters; not used.",
        "peak_value": "value after `warmup_steps`.",
        "threshold": "below which degree of freedom the mean gradient is not divided.",
        "transition_begin": "when it begins.",
        "transition_steps": "length of the transition.",
        "updates": "the gradients.",
        "warmup_steps": "length of the rise.",
        "learning_rate": "a number, or a schedule.",
        "b1": "how much of the mean gradient remains.",
        "b2": "how much of the mean square remains.",
        "decay": "how much of the mean square remains.",
        "rho": "how much of the mean squares remains.",
        "eps": "added to the root of the mean square.",
        "eps_root": "added to the mean square under the root.",
        "mu_dtype": "dtype of the mean gradient; None means the parameters'.",
        "nesterov": "whether to look one step ahead (Dozat, 2016).",
        "weight_decay": "share of the weights, times the learning rate, lost in each update.",
        "mask": "which parameters decay, as for `masked`; None means all.",
        "weight_decay_mask": "which parameters decay, as for `masked`; None means all.",
    },
    {"b1": _DECAYS, "decay": _DECAYS, "rho": _DECAYS},
    returns={
        "GradientTransformation": "A `GradientTransformation`: its `init` and `update`.",
        "Schedule": "A function from the number of updates made, an int or an array, to the value.",
    },
)

FAMILIES = (
    Family("apply_updates", "Tree of the form of `params`."),
    Family("global_norm", "Scalar array."),
    Family("chain", "", "ValueError: when updated with a state of another number of parts."),
    Family("masked", "", "TypeError: `inner` is no transformation."),
    Family("scale_by_rms rmsprop", eps="added to it.",
           initial_scale="the mean square at the start.",
           eps_in_sqrt="whether `eps` is added before the root is taken, or after.",
           bias_correction="whether means are freed of their start at zero.",
           centered="whether to subtract the squared mean (Graves, 2013)."),
    Family("scale_by_rss adagrad", initial_accumulator_value="the sum of squares at the start.",
           eps="added to it.",
           eps_in_sqrt="whether `eps` is added before the root is taken, or after."),
    Family("scale_by_adadelta adadelta", eps="added to both mean squares."),
    Family("scale_by_factored_rms", "", "ValueError: when updated without `params`."),
    Family("scale_by_trust_ratio scale_by_param_block_rms scale_by_lbfgs", "",
           "ValueError: when updated without `params`."),
    Family("add_decayed_weights", "", "ValueError: when updated without `params`."),
    Family("scale_by_learning_rate", "", "ValueError: for a rate that is no number."),
    Family("scale_by_schedule", "", "TypeError: if `schedule` cannot be called."),
)  # fmt: skip
