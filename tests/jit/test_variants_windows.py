"""Gradients of convolutions of symbolic sizes, read from padded copies of the input."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import amdjax
import amdjax.jit.variants
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.kernels.products.cpu.implicit_gradient import IMPLICIT_GRADIENT
from tests.support.convolutions import plain_conv, plain_kernel_gradient
from tests.support.jit_helpers import on_machine, small_integers
from tests.support.solvers import everywhere
from tests.support.turns import in_turn


def convolution(draw):
    """The shape of a kernel, options, and sizes of batches and spatial axes, drawn."""
    spatial = draw.randint(1, 2)
    few = lambda lo, hi: tuple(draw.randint(lo, hi) for _ in range(spatial))
    groups = draw.choice([1, 1, 2, 5])
    window, apart = few(1, 4), few(1, 2)
    inputs, outputs = draw.choice([1, 3, 16]), draw.choice([1, 5, 16, 19])
    reach = max((n - 1) * d for n, d in zip(window, apart, strict=True))
    options = dict(
        strides=few(1, 3), window_dilation=apart, groups=groups,
        padding=tuple((draw.randint(-1, 3), draw.randint(0, 3)) for _ in range(spatial)),
        dilation=draw.choice([(1, 1), (1, 1), (2, 1)])[:spatial],
    )  # fmt: skip
    longest = 60 if spatial == 1 else 24
    sizes = [(draw.choice([1, 2, 7, 9]), *(reach + n for n in few(2, longest))) for _ in range(4)]
    return (groups * outputs, inputs, *window), options, [*sizes, (0, *sizes[0][1:])]


def gradient(spec, strides, padding, window_dilation, dilation, groups):
    """By the kernel, of half the sum of squares, so that the cotangent is the result."""

    def f(x, w):
        y = lax.conv_general_dilated(
            x, w, strides, padding, lhs_dilation=dilation, rhs_dilation=window_dilation,
            dimension_numbers=spec, feature_group_count=groups,
        )  # fmt: skip
        return jnp.square(y).sum() / 2

    return amdjax.grad(f, argnums=1)


def check(kernel, options, sizes, number=0, **machine):
    """Gradients for all sizes, by as few variants as are right; returns the plans."""
    spatial = "HW"[: len(kernel) - 2]
    spec = f"N{spatial}C", f"{spatial}OI", f"N{spatial}C"
    channels = kernel[1] * options["groups"]
    f = gradient(spec, **options)
    with pytest.MonkeyPatch.context() as patch, everywhere(IMPLICIT_GRADIENT, number) as chosen:
        patch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
        on_machine(patch, **machine)
        symbols = ", ".join(("b", *"hw"[: len(spatial)]))
        least = [f"{name} >= {n}" for name, n in zip("bhw", map(min, zip(*sizes)))]
        run = amdjax.jit(f, symbolic=(f"{symbols}, {channels}", None), constraints=least)
        w = small_integers(kernel, seed=1) % 2
        for batch, *space in sizes:
            x = small_integers((batch, channels, *space), seed=2) % 3 - 1
            wide = x.astype(np.float64), w.astype(np.float64)
            order = [options[n] for n in ("strides", "padding", "dilation", "window_dilation")]
            groups = options["groups"], 1
            ct = plain_conv(*wide, *order, *groups)
            want = plain_kernel_gradient(*wide, ct, *order, *groups)
            assert np.abs(want).max(initial=0) < 1 << 24  # so that sums are exact
            found = run(np.moveaxis(x, 1, -1), np.moveaxis(w, (0, 1), (-2, -1)))
            np.testing.assert_array_equal(np.moveaxis(found, (-2, -1), (0, 1)), want)
    for made in run._programs.variants.values():
        assert made.reason is None
    return chosen


@pytest.mark.parametrize("seed", in_turn(range(30), 3))
def test_sizes_of_one_program(seed):
    draw = random.Random(seed)
    case, number = convolution(draw), draw.randint(0, 5)
    bits, threads = draw.choice([128, 256, 512]), draw.choice([1, 2, 3, 8])
    cache = 1 << draw.choice([14, 16, 19])
    check(*case, number, threads=threads, vector_bits=bits, l2_bytes=cache)


OPTIONS = dict(
    strides=(1, 1), padding=((1, 1),) * 2, window_dilation=(1, 1), dilation=(1, 1), groups=1
)


ORDERS = itertools.permutations([(9, 20, 20), (2, 4, 3), (3, 33, 40)])


@pytest.mark.parametrize("order, threads", in_turn(itertools.product(ORDERS, [1, 2, 8]), 3))
def test_fewer_blocks_of_positions_than_programs_that_share_them(order, threads):
    """Sums of parts that do not exist are added nowhere."""
    for number in range(3):
        chosen = check((16, 8, 3, 3), OPTIONS, order, number, threads=threads, l2_bytes=1 << 16)
        assert chosen
