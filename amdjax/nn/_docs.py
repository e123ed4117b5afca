"""What the docstrings of `amdjax.nn` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Irregular, Phrases

PHRASES = Phrases(
    {
        "x": "array.",
        "axis": "axis or axes to reduce; None means all.",
        "where": "mask of the elements to include; None means all.",
        "keepdims": "keep the reduced axes with size one.",
    },
    {"ArrayLike": "TypeError: for what is neither an array nor a number."},
)

_FLOAT = "Array of the shape of `x`; of its dtype, or the default float for integers."
_LAYOUT = '"channels_last" or "channels_first".'
_POOLED = "ValueError: if there is no such `layout`."

FAMILIES = (
    Family("relu hard_tanh identity", "Array of the shape and dtype of `x`."),
    Family("sigmoid silu", "Array of the shape and dtype of `x`.", "TypeError: for integers."),
    Family("relu6 hard_sigmoid hard_silu log1mexp log_sigmoid mish selu soft_sign", _FLOAT),
    Family("gelu softplus sparse_plus sparse_sigmoid", _FLOAT),
    Family("celu elu", _FLOAT, alpha="minus the limit for large negative `x`."),
    Family("leaky_relu", _FLOAT, negative_slope="slope below zero."),
    Family("squareplus", _FLOAT, b="how round the corner is; 0 gives `relu`."),
    Family("glu", "Array half as long along `axis`.", "TypeError: for integers.",
           "ValueError: for an odd extent.", axis="the axis to cut in two."),
    Family("clamp clipped_relu", "Array of the shape of `x`."),
    Family("power scaled_tanh prelu", _FLOAT),
    Family("reglu geglu swiglu", "Array half as long along `axis`.",
           "ValueError: for an odd extent, an axis out of range.", axis="the axis to cut in two."),
    Family("softmax log_softmax", _FLOAT, "ValueError: for an axis out of range.",
           axis="axis or axes that are normalized together; None means all."),
    Family("standardize", _FLOAT, "ValueError: for an unknown `algorithm`, an axis out of range."),
    Irregular("one_hot", "Array with one more axis.",
              "TypeError: for a `num_classes` or an axis that is no integer.",
              "ValueError: for a negative `num_classes`, an axis out of range."),
    Family("logmeanexp", "Array without the axes `axis`, of floating dtype.",
           "ValueError: for an axis out of range."),
    Family("logsumexp", "", "ValueError: for an axis out of range."),
    Family("dot_product_attention", "",
           "ValueError: for shapes that do not fit, and an unknown `implementation`."),
    Family("global_avg_pool global_max_pool", "Array of shape `(n, channels)`.", _POOLED,
           x="batch of shape `(n, *space, channels)`; or as `layout` says.", layout=_LAYOUT),
    Family("huber mae mse smooth_l1 soft_margin_loss",
           'A scalar, or an array of the shape of `predictions` if `reduction` is "none".',
           "ValueError: the shapes differ, or there is no such `reduction`.",
           predictions="array.", targets="array of the same shape.",
           reduction='"mean", "sum" or "none".'),
    Family("hinge_embedding_loss margin_ranking_loss",
           'A scalar, or the losses of the pairs if `reduction` is "none".',
           "ValueError: the shapes differ, or there is no such `reduction`.",
           reduction='"mean", "sum" or "none".'),
    Family("combine", "A tree of their form."),
    Family("count_parameters", "An int."),
    Family("is_training", "A bool."),
    Family("state static", "A field, to be assigned in the body of a module."),
)  # fmt: skip

_AXES = {
    "in_axis": "axis or axes of inputs.",
    "out_axis": "axis or axes of outputs.",
    "batch_axis": "axis or axes that are neither.",
}

INITIALIZER_PHRASES = Phrases(
    {
        "dtype": "dtype of what it makes; None means the default float.",
        "scale": "factor of the values.",
        "column_axis": "the axis of columns; the others are flattened into rows.",
    },
    returns={"Initializer": "A function `init(key, shape, dtype) -> array`."},
)

INITIALIZERS = (
    Family("zeros ones", "Array of the given shape and dtype.", key="ignored.",
           shape="shape of the result.", out_sharding="sharding of the result."),
    Family("constant", value="the value, or an array that broadcasts to the shape."),
    Family("uniform", scale="end of the interval."),
    Family("normal", stddev="standard deviation."),
    Family("glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform",
           "", "ValueError: when called for less than two axes.", **_AXES),
    Family("orthogonal", "", "ValueError: when called for less than two axes."),
    Family("delta_orthogonal", "",
           "ValueError: when called for less than three axes or more than five, or for fewer "
           "outputs than inputs."),
)  # fmt: skip
