"""Layers as networks use them: norms, attention, resampling, convolutions of unusual shapes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from . import conv
from .workload import Inputs, Workload, array_function

GRADIENT = "{} gradient"


def _drawn(
    *shapes: tuple[int, ...], quick: int = 4, keep: tuple[int, ...] = (), scale: float = 1.0
) -> Inputs:
    """Normal arrays; quick runs divide every extent by `quick`, but those in `keep`."""

    def make(rng: np.random.Generator, is_quick: bool) -> tuple:
        def one(n: int) -> int:
            return max(1, n // quick) if is_quick and n not in keep else n

        return tuple(
            np.float32(scale) * rng.standard_normal(tuple(map(one, shape)), dtype=np.float32)
            for shape in shapes
        )

    return make


def both(
    name: str, inputs: Inputs, fn: Any, fn_torch: Any, argnums: tuple[int, ...], **options: Any
) -> list[Workload]:
    """Forward and gradient rows."""
    forward = array_function(name, inputs, fn, fn_torch, tolerance=1e-4, **options)
    gradient = array_function(
        GRADIENT.format(name), inputs, fn, fn_torch, argnums=argnums, tolerance=1e-3, **options
    )
    return [forward, gradient]


# Group norm and upsampling


def _group_norm(groups: int, l: Any, x: Any, scale: Any, bias: Any) -> Any:
    *outer, features = x.shape
    grouped = x.reshape(outer[0], -1, groups, features // groups)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = l.np.square(grouped - mean).mean((1, 3), keepdims=True)
    y = (grouped - mean) * l.lax.rsqrt(variance + 1e-5)
    return y.reshape(x.shape) * scale + bias


def _group_norm_torch(groups: int, t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.group_norm(x, groups, scale, bias)


def _upsample(l: Any, x: Any) -> Any:
    return l.np.repeat(l.np.repeat(x, 2, axis=1), 2, axis=2)


def _upsample_torch(t: Any, x: Any) -> Any:
    return t.nn.functional.interpolate(x, scale_factor=2, mode="nearest")


def _images() -> list[Workload]:
    norm = _drawn((8, 56, 56, 64), (64,), (64,), keep=(64,))
    return [
        *both(
            "group norm by 8, 8×56²×64", norm, partial(_group_norm, 8),
            partial(_group_norm_torch, 8), (0, 1, 2), **conv.IMAGES,
        ),
        *both(
            "upsampling nearest ×2, 8×56²×64", _drawn((8, 56, 56, 64)), _upsample,
            _upsample_torch, (0,), **conv.IMAGES,
        ),
    ]  # fmt: skip


# Attention, batch × time × heads × features


def _attention(causal: bool, l: Any, q: Any, k: Any, v: Any) -> Any:
    return l.nn.dot_product_attention(q, k, v, is_causal=causal)


def _attention_torch(causal: bool, t: Any, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2)


def _attentions() -> list[Workload]:
    found = []
    for name, causal, q, s in [
        ("attention causal, 4×16×2048×64", True, (4, 2048, 16, 64), 2048),
        ("attention, 8×12×512×64", False, (8, 512, 12, 64), 512),
    ]:
        batch, _, heads, features = q
        inputs = _drawn(q, *[(batch, s, heads, features)] * 2, keep=(heads, features))
        fn, fn_torch = partial(_attention, causal), partial(_attention_torch, causal)
        found += both(name, inputs, fn, fn_torch, (0, 1, 2))
    decode = _drawn((32, 1, 16, 64), (32, 4096, 16, 64), (32, 4096, 16, 64), keep=(16, 64))
    found.append(
        array_function(
            "decode with cache, 32×16×1×64 over 4096 keys", decode, partial(_attention, False),
            partial(_attention_torch, False), tolerance=1e-4,
        )
    )  # fmt: skip
    return found


# Products of bytes


def _bytes(n: int) -> Inputs:
    def make(rng: np.random.Generator, quick: bool) -> tuple:
        m = n // 8 if quick else n
        return tuple(rng.integers(-127, 128, (m, m)).astype(np.int8) for _ in range(2))

    return make


def _byte_product(l: Any, a: Any, b: Any) -> Any:
    return l.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=l.np.int32)


def _byte_product_torch(t: Any, a: Any, b: Any) -> Any:
    return t._int_mm(a, b)


WORKLOADS = [
    *_images(),
    *conv.both("conv depthwise 7×7, 8×28²×128", (8, 28, 28, 128), (7, 7, 1, 128), groups=128),
    *conv.both("conv 5×5/2, 8×56²×64→128", (8, 56, 56, 64), (5, 5, 64, 128), stride=2),
    *conv.both("conv 3×3, 1×14²×256→256", (1, 14, 14, 256), (3, 3, 256, 256)),
    *conv.both("conv 3×3×3, 2×16³×32→64", (2, 16, 16, 16, 32), (3, 3, 3, 32, 64)),
    *_attentions(),
    array_function("product of bytes, 2048²", _bytes(2048), _byte_product, _byte_product_torch),
]
