"""What the docstrings of `amdjax.nn` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Irregular, Phrases

PHRASES = Phrases(
    {
        "x": "array.",
        "affine": "whether channels get a trained scale and bias.",
        "axis": "axis or axes to reduce; None means all.",
        "axis_name": "axes of `vmap` over which the batch goes on.",
        "bias_init": "how the bias starts, `(out_features,)`.",
        "ceil_mode": "whether there is a window for what is left over at the end of an axis.",
        "channels": "size of the channel axis.",
        "dilation": "distances between neighbors in the window.",
        "dtype": "dtype of the parameters; None means the default float.",
        "epsilon": "added to the variance.",
        "features": "size of the last axis, or a tuple of the sizes of the last axes.",
        "groups": "how many groups the channels are cut into.",
        "ignore_index": "a class number that does not count either.",
        "in_channels": "channels of the input.",
        "in_features": "size of the last axis of the input.",
        "keepdims": "keep the reduced axes with size one.",
        "kernel_init": "how the kernel starts, `(in_features, out_features)`.",
        "kernel_size": "sizes of the window; an integer means a square.",
        "key": "key of the parameters' random start.",
        "layout": '"channels_last" or "channels_first".',
        "model": "a module, or with `method` any pytree of modules.",
        "momentum": "how much of the running statistics remains after an update.",
        "out_channels": "channels of the result.",
        "out_features": "size of the last axis of the result.",
        "padding": '"SAME", "VALID", or integers.',
        "path": "the file.",
        "rate": "probability of an element to become zero.",
        "reduction": '"mean", "sum" or "none".',
        "return_indices": "whether it returns the pair of elements and their positions.",
        "return_statistics": "whether to return what it normalized by, too.",
        "size": "spatial size of the result, one for all axes or one for each.",
        "strides": "steps of the window; None means its size.",
        "tree": "a module, or a container of modules.",
        "use_bias": "whether there is a bias.",
        "use_scale": "whether features get a trained scale.",
        "where": "mask of the elements to include; None means all.",
        "window": "sizes of the window, one for all spatial axes or one for each.",
    },
    {"ArrayLike": "TypeError: for what is neither an array nor a number."},
)

_FLOAT = "Array of the shape of `x`; of its dtype, or the default float for integers."
_POOLED = "ValueError: if there is no such `layout`."
_SIZE = "ValueError: a size is no positive integer."
_LOSSES = 'A scalar, or the losses of the examples if `reduction` is "none".'
_DIFFER = "ValueError: the shapes differ, or there is no such `reduction`."
_MISFIT = "ValueError: the shapes do not fit, or there is no such `reduction`."
_FACTOR = "factor of each feature, of the shape of `x` on `axis`, or None."
_ADDED = "what is added to each feature, of that shape too, or None."
_SHAPED = "ValueError: a parameter does not have the shape of the features."

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
           x="batch of shape `(n, *space, channels)`; or as `layout` says."),
    Family("huber mae mse smooth_l1 soft_margin_loss",
           'A scalar, or an array of the shape of `predictions` if `reduction` is "none".', _DIFFER,
           predictions="array.", targets="array of the same shape."),
    Family("hinge_embedding_loss margin_ranking_loss",
           'A scalar, or the losses of the pairs if `reduction` is "none".', _DIFFER),
    Family("sigmoid_cross_entropy binary_cross_entropy focal_loss",
           'A scalar, or the losses of all decisions if `reduction` is "none".', _DIFFER,
           logits="log-odds, floating-point.",
           labels="0, 1, or probabilities in between, in the shape of `logits`."),
    Family("kl_divergence poisson_nll_loss gaussian_nll_loss triplet_margin_loss", "", _DIFFER),
    Family("nll_loss multilabel_margin_loss", _LOSSES, "TypeError: the labels are no integers.",
           _MISFIT, predictions="scores, `(..., classes)`."),
    Family("softmax_cross_entropy multi_margin_loss", _LOSSES,
           predictions="scores, `(..., classes)`."),
    Family("multilabel_soft_margin_loss", _LOSSES, _DIFFER),
    Family("dense scaled_matmul cached_attention", "", "ValueError: the shapes do not fit."),
    Family("conv conv_transpose", "", "TypeError: an argument that should be an integer is none.",
           "ValueError: the shapes do not fit, or `layout` or `padding` has no such name.",
           kernel="of shape `(*window, channels / groups, features)`; `(features, channels / "
           "groups,\n    *window)` if channels come first.",
           bias="of shape `(features,)`, or None."),
    Family("batch_norm layer_norm", "", "TypeError: `x` is not floating-point.", _SHAPED,
           scale=_FACTOR, bias=_ADDED),
    Family("add_layer_norm rms_norm", scale=_FACTOR, bias=_ADDED),
    Family("group_norm instance_norm", scale="factor of each channel, `(channels,)`, or None.",
           bias="what is added to each channel, `(channels,)`, or None."),
    Family("local_response_norm LocalResponseNorm", k="what is added to the mean square.",
           alpha="factor of the mean square.", beta="exponent."),
    Family("upsample avg_pool max_unpool adaptive_avg_pool",
           "A batch of as many channels in the same layout and dtype."),
    Family("KVCache PagedKVCache", "", _SIZE, batch="number of sequences.",
           heads="number of heads of keys and values."),
    Family("GLU Dense Embedding LayerNorm AddLayerNorm RMSNorm", "", _SIZE),
    Family("MaxPool AvgPool LpPool MaxUnpool AdaptiveAvgPool AdaptiveMaxPool", "",
           "ValueError: a size is no positive integer, or `layout` has no such name."),
    Family("PixelShuffle PixelUnshuffle", "", "ValueError: `factor` is no positive integer."),
    Family("Conv GroupNorm", "",
           "ValueError: a size is no positive integer, or `groups` does not divide the channels."),
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
