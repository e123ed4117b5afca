"""Layers as pairs of functions, with JAX's names and initial values.

A layer is `(init_fun, apply_fun)`: `init_fun(rng, input_shape)` returns the shape of the output and
parameters, `apply_fun(params, inputs, **kwargs)` the output. `amdjax.nn` has more of them; these
are for programs that were written for `jax.example_libraries`.

    >>> from amdjax.example_libraries import stax
    >>> init, apply = stax.serial(stax.Dense(8), stax.Relu, stax.Dense(2))
    >>> shape, params = init(amdjax.random.key(0), (-1, 4))
    >>> shape, apply(params, jnp.ones((3, 4))).shape
    ((-1, 2), (3, 2))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax, random
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Family as _Family, Phrases as _Phrases, complete as _complete
from amdjax.nn.functions import (
    elu as elu,
    gelu as gelu,
    leaky_relu as leaky_relu,
    log_softmax as log_softmax,
    relu as relu,
    selu as selu,
    sigmoid as sigmoid,
    softmax as softmax,
    softplus as softplus,
    standardize as standardize,
)
from amdjax.nn.initializers import (
    glorot_normal as glorot_normal,
    normal as normal,
    ones as ones,
    zeros as zeros,
)

glorot = glorot_normal
randn = normal
logsoftmax = log_softmax

Layer = tuple[Callable[..., Any], Callable[..., Any]]
Shape = tuple[int, ...]


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:  # noqa: B008
    """A matrix product and a bias.

    Args:
      out_dim: outputs.
      W_init: makes the matrix.

        >>> init, apply = stax.Dense(3)
        >>> init(amdjax.random.key(0), (-1, 4))[0]
        (-1, 3)
    """

    def init(rng: Any, input_shape: Shape) -> Any:
        k1, k2 = random.split(rng)
        params = W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    def apply(params: Any, inputs: Array, **kwargs: Any) -> Array:
        w, b = params
        return jnp.dot(inputs, w) + b

    return init, apply


def _convolution(
    shape_rule: Callable[..., Shape], convolve: Callable[..., Array], dimension_numbers: Any,
    out_chan: int, filter_shape: Shape, strides: Any, padding: Any, w_init: Any, b_init: Any,
) -> Layer:  # fmt: skip
    lhs, rhs, out = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    w_init = w_init or glorot_normal(rhs.index("I"), rhs.index("O"))

    def init(rng: Any, input_shape: Shape) -> Any:
        sizes = iter(filter_shape)
        known = {"O": out_chan, "I": input_shape[lhs.index("C")]}
        kernel = [known[c] if c in known else next(sizes) for c in rhs]
        output = shape_rule(input_shape, kernel, strides, padding, dimension_numbers)
        k1, k2 = random.split(rng)
        bias = [out_chan if c == "C" else 1 for c in out]
        return output, (w_init(k1, kernel), b_init(k2, bias))

    def apply(params: Any, inputs: Array, **kwargs: Any) -> Array:
        w, b = params
        return convolve(inputs, w, strides, padding, dimension_numbers=dimension_numbers) + b

    return init, apply


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Shape,
    strides: Any = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),  # noqa: B008
) -> Layer:
    """A convolution and a bias.

    Args:
      dimension_numbers: the axes of inputs, kernels and outputs, as `lax.conv_general_dilated`
        takes them.

        >>> init, apply = stax.GeneralConv(("NHWC", "HWIO", "NHWC"), 8, (3, 3))
        >>> init(amdjax.random.key(0), (-1, 5, 5, 1))[0]
        (-1, 3, 3, 8)
    """
    return _convolution(
        lax.conv_general_shape_tuple, lax.conv_general_dilated, dimension_numbers, out_chan,
        filter_shape, strides, padding, W_init, b_init,
    )  # fmt: skip


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Shape,
    strides: Any = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),  # noqa: B008
) -> Layer:
    """A transposed convolution and a bias.

    Args:
      dimension_numbers: the axes of inputs, kernels and outputs, as `lax.conv_transpose` takes
        them.

        >>> init, apply = stax.GeneralConvTranspose(("NHWC", "HWIO", "NHWC"), 8, (3, 3))
        >>> init(amdjax.random.key(0), (-1, 3, 3, 1))[0]
        (-1, 5, 5, 8)
    """
    return _convolution(
        lax.conv_transpose_shape_tuple, lax.conv_transpose, dimension_numbers, out_chan,
        filter_shape, strides, padding, W_init, b_init,
    )  # fmt: skip


Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True,
    beta_init: Any = zeros, gamma_init: Any = ones,
) -> Layer:  # fmt: skip
    """Inputs of mean zero and variance one over some axes of the batch.

    Args:
      axis: over which.
      epsilon: added to the variance.
      center: add a parameter.
      scale: multiply by a parameter.
      beta_init: makes what is added.
      gamma_init: makes what is multiplied.

        >>> init, apply = stax.BatchNorm()
        >>> init(amdjax.random.key(0), (-1, 5, 5, 2))[0]
        (-1, 5, 5, 2)
    """
    axes = (axis,) if jnp.isscalar(axis) else tuple(axis)

    def init(rng: Any, input_shape: Shape) -> Any:
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        k1, k2 = random.split(rng)
        beta = beta_init(k1, shape) if center else ()
        return input_shape, (beta, gamma_init(k2, shape) if scale else ())

    def apply(params: Any, x: Array, **kwargs: Any) -> Array:
        beta, gamma = params
        spread = tuple(None if i in axes else slice(None) for i in range(jnp.ndim(x)))
        z = standardize(x, axes, epsilon=epsilon)
        z = gamma[spread] * z if scale else z
        return z + beta[spread] if center else z

    return init, apply


def elementwise(fun: Callable[..., Array], **fun_kwargs: Any) -> Layer:
    """A layer without parameters from a function of arrays.

    Args:
      fun: the function.
      fun_kwargs: what it is called with besides.

        >>> init, apply = stax.elementwise(jnp.sin)
        >>> init(amdjax.random.key(0), (-1, 3))[0]
        (-1, 3)
    """

    def apply(params: Any, inputs: Array, **kwargs: Any) -> Array:
        return fun(inputs, **fun_kwargs)

    return lambda rng, input_shape: (input_shape, ()), apply


Tanh = elementwise(jnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)


def _pooling(reducer: Any, initial: float, mean: bool = False) -> Callable[..., Layer]:
    def layer(
        window_shape: Shape, strides: Any = None, padding: Any = "VALID", spec: str | None = None
    ) -> Layer:
        """Combine the inputs of each window.

        Args:
          window_shape: without batch and channels.
          strides: ones by default.
          padding: "VALID", "SAME" or pairs.
          spec: the axes, such as "NHWC"; batch first and channels last by default.

        Returns:
          The layer.

        Example:
          >>> init, apply = stax.MaxPool((2, 2))
          >>> init(amdjax.random.key(0), (1, 5, 5, 2))[0]
          (1, 4, 4, 2)
        """
        steps = tuple(strides or (1,) * len(window_shape))
        window = tuple(window_shape)
        fixed = (0, len(window) + 1) if spec is None else (spec.index("N"), spec.index("C"))
        for i in sorted(fixed):
            window, steps = (*window[:i], 1, *window[i:]), (*steps[:i], 1, *steps[i:])

        def init(rng: Any, input_shape: Shape) -> Any:
            known = [1 if n < 0 else n for n in input_shape]
            pads = lax.padtype_to_pads(known, window, steps, padding)
            none = (1,) * len(window)
            shape = lax.reduce_window_shape_tuple(input_shape, window, steps, pads, none, none)
            return shape, ()

        def apply(params: Any, inputs: Array, **kwargs: Any) -> Array:
            pool = lambda x: lax.reduce_window(x, initial, reducer, window, steps, padding)
            if not mean:
                return pool(inputs)
            # Windows at the edge have fewer entries.
            sizes = [1 if i in fixed else n for i, n in enumerate(inputs.shape)]
            return pool(inputs) / pool(jnp.ones(sizes, inputs.dtype))

        return init, apply

    return layer


MaxPool = _pooling(lax.max, -math.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, mean=True)


def _flatten(params: Any, inputs: Array, **kwargs: Any) -> Array:
    return jnp.reshape(inputs, (inputs.shape[0], math.prod(inputs.shape[1:])))


Flatten: Layer = (lambda rng, shape: ((shape[0], math.prod(shape[1:])), ()), _flatten)
Identity: Layer = elementwise(lambda x: x)


def FanOut(num: int) -> Layer:
    """The input, `num` times.

    Args:
      num: how often.

        >>> init, apply = stax.FanOut(2)
        >>> init(amdjax.random.key(0), (-1, 3))[0]
        [(-1, 3), (-1, 3)]
    """

    def apply(params: Any, inputs: Any, **kwargs: Any) -> list[Any]:
        return [inputs] * num

    return lambda rng, input_shape: ([input_shape] * num, ()), apply


FanInSum: Layer = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: sum(inputs),
)


def FanInConcat(axis: int = -1) -> Layer:
    """Several inputs, joined along an axis.

    Args:
      axis: which.

        >>> init, apply = stax.FanInConcat()
        >>> init(amdjax.random.key(0), [(-1, 3), (-1, 2)])[0]
        (-1, 5)
    """

    def init(rng: Any, input_shape: Any) -> Any:
        first = list(input_shape[0])
        at = axis % len(first)
        first[at] = sum(shape[at] for shape in input_shape)
        return tuple(first), ()

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Array:
        return jnp.concatenate(inputs, axis)

    return init, apply


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Inputs of which a share `rate` is kept, and made larger for it, while training.

    Args:
      rate: the share that is kept.
      mode: "train", or anything else to keep all.

    Returns:
      The layer; its `apply_fun` needs `rng=`, a key.

    Raises:
      ValueError: when it is called without a key.

        >>> init, apply = stax.Dropout(0.9)
        >>> init(amdjax.random.key(0), (-1, 3))[0]
        (-1, 3)
    """

    def apply(params: Any, inputs: Array, **kwargs: Any) -> Array:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout layer requires apply_fun to be called with a PRNG key argument. That is,"
                " instead of `apply_fun(params, inputs)`, call it like `apply_fun(params, inputs,"
                " rng)` where `rng` is a PRNG key (e.g. from `random.key`)."
            )
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return lambda rng, input_shape: (input_shape, ()), apply


def _keys(rng: Any, count: int) -> Any:
    return (None,) * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Layers, one after the other.

    Returns:
      The layer, whose parameters are a list of theirs.

        >>> init, apply = stax.serial(stax.Dense(8), stax.Relu)
        >>> init(amdjax.random.key(0), (-1, 3))[0]
        (-1, 8)
    """

    def init(rng: Any, input_shape: Any) -> Any:
        params = []
        for layer_init, _ in layers:
            rng, key = random.split(rng)
            input_shape, param = layer_init(key, input_shape)
            params.append(param)
        return input_shape, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        for (_, layer), param, key in zip(layers, params, keys, strict=True):
            inputs = layer(param, inputs, rng=key, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Layers side by side: each takes one of a list of inputs.

    Returns:
      The layer, whose parameters and output are lists.

        >>> init, apply = stax.parallel(stax.Dense(8), stax.Relu)
        >>> init(amdjax.random.key(0), [(-1, 3), (-1, 2)])[0]
        ((-1, 8), (-1, 2))
    """

    def init(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        made = [f(k, s) for (f, _), k, s in zip(layers, keys, input_shape, strict=True)]
        return tuple(zip(*made, strict=True))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> list[Any]:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        rows = zip(layers, params, inputs, keys, strict=True)
        return [layer(p, x, rng=k, **kwargs) for (_, layer), p, x, k in rows]

    return init, apply


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that depends on the shape of its input.

    Args:
      make_layer: a function of the shape that returns a layer.

        >>> init, apply = stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1]))
        >>> init(amdjax.random.key(0), (-1, 3))[0]
        (-1, 6)
    """

    def apply(params: Any, inputs: Array, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return lambda rng, shape: make_layer(shape)[0](rng, shape), apply


_LAYERS = _Family(
    "Dense GeneralConv GeneralConvTranspose BatchNorm FanInConcat FanOut elementwise "
    "shape_dependent MaxPool SumPool AvgPool",
    "The layer.",
)
_PHRASES = _Phrases(
    {
        "b_init": "makes the bias.",
        "out_chan": "output channels.",
        "filter_shape": "of the kernel, without channels.",
        "strides": "ones by default.",
        "padding": '"VALID", "SAME" or pairs.',
        "W_init": "makes the kernel.",
        "layers": "pairs of functions.",
    }
)
_complete(globals(), [_LAYERS], _PHRASES)
_public_surface(globals())
