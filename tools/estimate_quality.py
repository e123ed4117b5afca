"""How near the compiler's estimates come to the fastest plan that a search finds.

    python tools/estimate_quality.py [--budget SECONDS] [--only TEXT]

50 steps of ResNet, MobileNet, an LSTM, GPT and a U-Net, forward and backward, are searched on the
default device; printed is for each which share of the best speed the plan reaches that is chosen
without measuring. Results are kept in `estimate_quality.db` of the current folder, so that a run
that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import amdjax
import amdjax.numpy as jnp
from amdjax import find, lax, nn
from amdjax.core.config import config
from amdjax.find.machines import default_machine
from amdjax.find.solutions import Solution, search


class Step(NamedTuple):
    """A program of one step, and the shapes of its arguments."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolution(
    name: str, images: int, size: int, features: int, window: int, out: int,
    stride: int = 1, groups: int = 1, parts: str = "fdw",
) -> Iterator[Step]:  # fmt: skip
    """A convolution, and the gradients of its input (data) and of its kernel (weights)."""

    def forward(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=LAYOUT, feature_group_count=groups
        )

    x, w = (images, size, size, features), (window, window, features // groups, out)
    y = (images, -(-size // stride), -(-size // stride), out)

    def data(w: Any, ct: Any) -> Any:
        return amdjax.vjp(lambda x: forward(x, w), jnp.zeros(x))[1](ct)[0]

    def weights(x: Any, ct: Any) -> Any:
        return amdjax.vjp(lambda w: forward(x, w), jnp.zeros(w))[1](ct)[0]

    if "f" in parts:
        yield Step(f"{name} forward", forward, (x, w))
    if "d" in parts:
        yield Step(f"{name} data", data, (w, y))
    if "w" in parts:
        yield Step(f"{name} weights", weights, (x, y))


def product(name: str, rows: int, depth: int, columns: int, parts: str = "fdw") -> Iterator[Step]:
    """`x @ w`, and its gradients."""
    x, w, y = (rows, depth), (depth, columns), (rows, columns)
    if "f" in parts:
        yield Step(f"{name} forward", lambda x, w: x @ w, (x, w))
    if "d" in parts:
        yield Step(f"{name} data", lambda ct, w: ct @ w.T, (y, w))
    if "w" in parts:
        yield Step(f"{name} weights", lambda x, ct: x.T @ ct, (x, y))


def steps() -> Iterator[Step]:
    """All of them."""
    yield from convolution("ResNet 7×7 3→64 stride 2", 2, 112, 3, 7, 64, 2, parts="fw")
    yield from convolution("ResNet 3×3 64→64", 2, 28, 64, 3, 64)
    yield from convolution("ResNet 3×3 128→128", 2, 14, 128, 3, 128)
    yield from convolution("ResNet 3×3 128→256 stride 2", 2, 14, 128, 3, 256, 2)
    yield from convolution("ResNet 3×3 512→512", 2, 7, 512, 3, 512, parts="fw")
    yield from convolution("ResNet 1×1 64→128 stride 2", 2, 28, 64, 1, 128, 2, parts="f")
    yield from product("ResNet head", 8, 512, 1000)
    yield from convolution("MobileNet 3×3 depthwise 96", 2, 28, 96, 3, 96, 1, 96)
    yield from convolution("MobileNet 5×5 depthwise 240", 2, 14, 240, 5, 240, 1, 240, "fw")
    yield from convolution("MobileNet 1×1 96→24", 2, 28, 96, 1, 24)
    yield from convolution("MobileNet 1×1 40→240", 2, 14, 40, 1, 240, parts="f")
    yield from product("LSTM input 1600", 1600, 128, 512)
    yield from product("LSTM state 32", 32, 128, 512)
    yield from product("LSTM state 1", 1, 256, 1024, "fw")
    yield from product("GPT qkv", 256, 256, 768, "f")
    yield from product("GPT MLP", 256, 256, 1024)
    yield from product("GPT one token", 1, 768, 3072, "f")
    yield from product("GPT vocabulary", 64, 256, 8000, "f")
    heads = (8, 128, 64)
    yield Step("GPT scores", lambda q, k: jnp.einsum("htd,hsd->hts", q, k), (heads, heads))
    yield Step("GPT softmax", lambda x: nn.softmax(x), ((8, 128, 128),))
    yield Step("GPT layer norm", _layer_norm, ((256, 256),))
    yield Step("GPT argmax", lambda x: x.argmax(-1), ((8, 8000),))
    yield Step("GPT top 5", lambda x: lax.top_k(x, 5)[0], ((8, 8000),))
    yield from convolution("U-Net 3×3 32→32", 1, 64, 32, 3, 32)
    yield from convolution("U-Net 3×3 3→32", 1, 64, 3, 3, 32, parts="f")
    yield from convolution("U-Net 1×1 32→2", 1, 64, 32, 1, 2, parts="f")
    yield Step("sort 3000", lambda x: jnp.sort(x), ((3000,),))
    yield Step("long sum", lambda x, w: x @ w, ((100, 10_000), (10_000, 10)))


def _layer_norm(x: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)


def main() -> None:
    """Search all, and print shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds a step")
    parser.add_argument("--only", default="", help="steps whose names contain this")
    options = parser.parse_args()
    config.update("db_path", "estimate_quality.db")
    shares = {}
    for step in steps():
        if options.only not in step.name:
            continue
        arguments = [amdjax.ShapeDtypeStruct(shape, jnp.float32) for shape in step.shapes]
        *_, problem = find.problems(step.function, *arguments)
        machine, deadline = default_machine(), time.monotonic() + options.budget
        usual, *found = search(problem, machine, deadline=deadline)
        best = min((r for r in (usual, *found) if r.status == "right"), key=lambda r: r.seconds)
        shares[step.name] = best.seconds / usual.seconds
        way = Solution.of(problem, best, machine)
        print(
            f"{shares[step.name]:5.0%} {usual.seconds * 1e6:9.1f} µs  {step.name}"
            + (f": {way.solver}: {way.plan}" if best is not usual else ""),
            flush=True,
        )
    values = sorted(shares.values())
    print(f"{len(values)} steps: median {statistics.median(values):.0%}, worst {values[0]:.0%}")


if __name__ == "__main__":
    main()
