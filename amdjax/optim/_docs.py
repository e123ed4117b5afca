"""What the docstrings of `amdjax.optim` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

PHRASES = Phrases(
    returns={
        "GradientTransformation": "A `GradientTransformation`: its `init` and `update`.",
        "Schedule": "A function from the number of updates made, an int or an array, to the value.",
    }
)

FAMILIES = (
    Family("apply_updates", "Tree of the form of `params`."),
    Family("global_norm", "Scalar array."),
    Family("chain", "", "ValueError: when updated with a state of another number of parts."),
    Family("masked", "", "TypeError: for a mask of other values than booleans."),
    Family("add_decayed_weights", "", "ValueError: when updated without `params`."),
    Family("scale_by_learning_rate", "", "ValueError: for a rate that is no number."),
    Family("scale_by_schedule", "", "TypeError: if `schedule` cannot be called."),
)
