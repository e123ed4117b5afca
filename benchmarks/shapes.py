"""One compile for many shapes: each size against a program of its own, and a serving loop.

A row's time is that of one call at each of its sizes, all compiled before: amdjax by
``jit(symbolic=…)``, JAX by a program a size, PyTorch eager and with ``dynamic=True``. What only
amdjax has to tell is in its figures: how fast the calls are against amdjax's own programs of those
sizes (median and worst), the variants, the time to compile them against a program of one size, and
what a call at a known size costs more. In the serving loop compiling is part of the time.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from . import conv, reductions, resnet, rnn
from .lib import JaxLike, Lib, Torch, difference, leaves, to_host
from .workload import Prepared, Workload

Size = tuple[int, int]
SIZES: tuple[Size, ...] = (
    (2, 2), (64, 512), (3, 17), (1, 300), (8, 64), (33, 129), (5, 100), (16, 128), (7, 511),
    (48, 256),
)  # fmt: skip
IMAGES: tuple[Size, ...] = ((2, 32), (8, 64), (1, 56), (5, 33), (16, 48), (3, 112))
REQUESTS = 500
COMPILED = 5  # times that a program is compiled at a size
RECOMPILED = 25  # requests that are run where each size is compiled anew


@dataclass(frozen=True)
class Program:
    """A function of arrays of which some axes have the sizes `b` and `t`.

    Attributes:
      name: the row's.
      specs: shapes of the arguments; those that begin with "ids" are of integers below 100.
      jaxlike: `(lib, *arrays) -> result` written with JAX's names.
      torch: `(torch, *tensors) -> result`.
      argnums: with any, gradients of the sum of the sines of the result, by these arguments.
      sizes: those that are timed.
      tolerance: see `Workload`.
      constraints: what holds of `b` and `t`.
    """

    name: str
    specs: tuple[str, ...]
    jaxlike: Callable[..., Any]
    torch: Callable[..., Any]
    argnums: tuple[int, ...] = ()
    sizes: tuple[Size, ...] = SIZES
    tolerance: float = 1e-4
    constraints: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """What tells `jit` that sizes are symbolic."""
        return {"symbolic": self.shapes(), "constraints": self.constraints}

    def gradient(self, *argnums: int) -> Program:
        return replace(self, name=f"{self.name} gradient", argnums=argnums, tolerance=1e-3)

    def shapes(self) -> tuple[str, ...]:
        return tuple(spec.removeprefix("ids ") for spec in self.specs)

    def arguments(self, size: Size) -> tuple[np.ndarray, ...]:
        """Inputs of a size; weights (what has no variable) are scaled and the same for all."""
        rng, found = np.random.default_rng(0), []
        variables = dict(zip("bt", size))
        for spec, text in zip(self.specs, self.shapes()):
            named = text.split(", ")
            shape = [variables[n] if n in variables else int(n) for n in named]
            if spec.startswith("ids"):
                found.append(np.random.default_rng(1).integers(0, 100, shape, dtype=np.int32))
                continue
            weights = len(shape) > 1 and not set(named) & set(variables)
            scale = np.prod(shape[:-1]) ** -0.5 if weights else 1.0
            drawn = rng if weights else np.random.default_rng(len(found))
            found.append(np.float32(scale) * drawn.standard_normal(shape, dtype=np.float32))
        return tuple(found)

    def function(self, lib: JaxLike) -> Callable[..., Any]:
        run = partial(self.jaxlike, lib)
        if not self.argnums:
            return lambda *args: run(*args)
        return lambda *args: lib.grad(
            lambda *inner: lib.np.sum(lib.np.sin(run(*inner))), argnums=self.argnums
        )(*args)

    def torch_function(self, lib: Torch) -> Callable[..., Any]:
        if not self.argnums:
            compiled = lib.compile(partial(self.torch, lib.torch), dynamic=True)

            def run(*args: Any) -> Any:
                with lib.torch.no_grad():
                    return compiled(*args)

            return run

        def loss(*args: Any) -> Any:
            return lib.torch.sum(lib.torch.sin(self.torch(lib.torch, *args)))

        gradients, one = (
            lib.grad(loss, self.argnums, dynamic=True),
            lib.arrays(np.ones((), np.float32)),
        )
        return lambda *args: gradients(*args, one)

    def chosen(self, lib: Lib) -> tuple[Size, ...]:
        return tuple((b, min(t, 128)) for b, t in self.sizes[2:5]) if lib.quick else self.sizes


# Every size once


def _prepare(program: Program, lib: JaxLike) -> Prepared:
    sizes, function = program.chosen(lib), program.function(lib)
    calls = [lib.arrays(program.arguments(size)) for size in sizes]
    if lib.name != "amdjax":
        compiled = lib.jit(function)
        return Prepared(lambda: [compiled(*args) for args in calls])
    symbolic = lib.jit(function, **program.options())
    figures = partial(_figures, lib, program, symbolic, calls)
    return Prepared(lambda: [symbolic(*args) for args in calls], figures=figures)


def _prepare_torch(program: Program, lib: Torch) -> Prepared:
    function = program.torch_function(lib)
    calls = [lib.arrays(program.arguments(size)) for size in program.chosen(lib)]
    return Prepared(lambda: [function(*args) for args in calls])


def _figures(lib: JaxLike, program: Program, symbolic: Any, calls: Sequence[Any]) -> dict[str, str]:
    """What amdjax has to tell of a program, calls in turns with programs of single sizes."""
    static = lib.jit(lambda *args: program.function(lib)(*args))
    ratios, extra, sizes = [], [], program.chosen(lib)
    for size, args in zip(sizes, calls, strict=True):
        _compare(program, size, symbolic(*args), static(*args))
        ours, theirs = _in_turns(lib, (symbolic, static), args)
        ratios.append(theirs / ours)
        if theirs < 2e-5:  # where a call is mostly dispatch
            extra.append(ours - theirs)
    variants = list(symbolic._programs.variants.values())
    compiles = _compile_seconds(lib, program, calls)
    reason = next((v.reason for v in variants if v.reason), None)
    return {
        "median": f"{statistics.median(ratios):.2f}×",
        "worst": f"{min(ratios):.2f}×, {'×'.join(map(str, sizes[ratios.index(min(ratios))]))}",
        "each": " ".join(f"{ratio:.2f}" for ratio in ratios),
        "variants": f"{sum(len(v.known) for v in variants)} of {len(calls)}"
        + (f" (compiled for each size: {reason})"[:120] if reason else ""),
        "compile": f"{compiles[0] / compiles[1]:.2f}×",
        **({"dispatch": f"{1e6 * statistics.median(extra):+.1f} µs"} if extra else {}),
    }


def _compare(program: Program, size: Size, symbolic: Any, static: Any) -> None:
    """Raise ArithmeticError where the results of both programs differ."""
    one, other = ([to_host(x) for x in leaves(result)] for result in (symbolic, static))
    off = difference(one, other)
    if off > program.tolerance:
        raise ArithmeticError(f"{size}: results differ by {off:.1e} of a static program's")


def _in_turns(lib: JaxLike, functions: Sequence[Any], args: Any) -> list[float]:
    """Seconds a call, the best of some rounds in turns."""
    best, repeats = [float("inf")] * len(functions), [1] * len(functions)
    for turn in range(2 + (3 if lib.quick else 9)):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(repeats[i]):
                result = function(*args)
            lib.block(result)
            took = (time.perf_counter() - start) / repeats[i]
            if turn > 1:
                best[i] = min(best[i], took)
            elif turn == 1:
                repeats[i] = max(1, min(1000, int(2e-3 / took)))
    return best


@contextlib.contextmanager
def _without_disk(lib: JaxLike) -> Iterator[None]:
    """No kernels of amdjax on disk while in here; those in memory go by `_forget`."""
    if lib.name != "amdjax":
        yield
        return
    kept = lib.config.enable_compilation_cache
    lib.config.update("enable_compilation_cache", False)
    try:
        yield
    finally:
        lib.config.update("enable_compilation_cache", kept)


def _forget(lib: JaxLike) -> None:
    """Empty what is kept in memory; called where there is no cache on disk."""
    lib.clear_caches()
    if lib.name == "amdjax":
        store = importlib.import_module("amdjax.runtime.cache").object_cache()
        assert store.directory is None, "the cache on disk stays as it is"
        store.clear()


def _compile_seconds(lib: JaxLike, program: Program, calls: Sequence[Any]) -> tuple[float, float]:
    """A first call with symbolic sizes, and one with numbers: medians over sizes, no caches.

    What takes milliseconds is done several times and the least of them counts.
    """
    found: tuple[list[float], list[float]] = ([], [])
    with _without_disk(lib):
        for args in calls[:5]:
            taken: tuple[list[float], list[float]] = ([], [])
            while len(taken[1]) < COMPILED and sum(taken[1]) < 0.2:
                for options, seconds in zip((program.options(), {}), taken, strict=True):
                    _forget(lib)
                    compiled = lib.jit(program.function(lib), **options)
                    start = time.perf_counter()
                    lib.block(compiled(*args))
                    seconds.append(time.perf_counter() - start)
            for seconds, least in zip(found, map(min, taken), strict=True):
                seconds.append(least)
    return statistics.median(found[0]), statistics.median(found[1])


# Serving


def _requests(quick: bool) -> list[Size]:
    rng = np.random.default_rng(7)
    count, longest = (20, 64) if quick else (REQUESTS, 512)
    return list(
        zip(rng.integers(1, 65, count).tolist(), rng.integers(1, longest + 1, count).tolist())
    )


def _serve(program: Program, lib: Lib) -> Prepared:
    """Seconds for all requests, compiling included."""
    requests = _requests(lib.quick)
    taken = requests[:RECOMPILED] if lib.name == "jax" else requests
    calls = [lib.arrays(program.arguments(size)) for size in taken]

    def loop(function: Callable[..., Any]) -> float:
        start = time.perf_counter()
        for args in calls:
            lib.block(function(*args))
        return (time.perf_counter() - start) * len(requests) / len(calls)

    def sample() -> float:
        if isinstance(lib, Torch):
            if lib.compiled:
                lib.torch._dynamo.reset()
            return loop(program.torch_function(lib))
        options = program.options() if lib.name == "amdjax" else {}
        with _without_disk(lib):
            _forget(lib)
            return loop(lib.jit(program.function(lib), **options))

    # What compiles for long is waited for once.
    once = sample() if lib.name in ("jax", "torch.compile") else None
    note = {"requests": f"the time of {len(calls)} times {len(requests) / len(calls):g}"}
    return Prepared(
        lambda: None,
        sample=sample if once is None else lambda: once,
        figures=(lambda: note) if len(calls) < len(requests) else None,
    )


# The programs


def _block(l: Any, x: Any, qkv: Any, out: Any, up: Any, down: Any, scale: Any, bias: Any) -> Any:
    """A transformer block: attention of 4 heads and a layer of 4 times the width."""
    norm = reductions._layernorm
    q, k, v = l.np.split(norm(l, x, scale, bias) @ qkv, 3, axis=-1)
    heads = lambda y: y.reshape(*y.shape[:2], 4, y.shape[2] // 4)
    attend = l.nn.dot_product_attention
    x = x + attend(heads(q), heads(k), heads(v), is_causal=True).reshape(x.shape) @ out
    return x + l.nn.gelu(norm(l, x, scale, bias) @ up) @ down


def _block_torch(
    t: Any, x: Any, qkv: Any, out: Any, up: Any, down: Any, scale: Any, bias: Any
) -> Any:
    norm, f = reductions._layernorm_torch, t.nn.functional
    heads = lambda y: y.reshape(*y.shape[:2], 4, y.shape[2] // 4).transpose(1, 2)
    q, k, v = map(heads, (norm(t, x, scale, bias) @ qkv).chunk(3, -1))
    mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(x.shape) @ out
    return x + f.gelu(norm(t, x, scale, bias) @ up, approximate="tanh") @ down


def _attention(causal: bool, l: Any, q: Any, k: Any, v: Any) -> Any:
    return l.nn.dot_product_attention(q, k, v, is_causal=causal)


def _attention_torch(causal: bool, t: Any, q: Any, k: Any, v: Any) -> Any:
    turned = (x.transpose(1, 2) for x in (q, k, v))
    attend = t.nn.functional.scaled_dot_product_attention
    return attend(*turned, is_causal=causal).transpose(1, 2)


def _convolved(t: Any, x: Any, w: Any) -> Any:
    y = t.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1)
    return y.permute(0, 2, 3, 1)


def _pooled(t: Any, x: Any) -> Any:
    return t.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2, 2).permute(0, 2, 3, 1)


def _pool(l: Any, x: Any) -> Any:
    window = (1, 2, 2, 1)
    return l.lax.reduce_window(x, -l.np.inf, l.lax.max, window, window, "VALID")


def _gelu_torch(t: Any, x: Any) -> Any:
    return t.nn.functional.gelu(x, approximate="tanh") * 2 + x


def _product(l: Any, x: Any, y: Any) -> Any:
    return x @ y


def _lstm_torch(t: Any, x: Any, wx: Any, wh: Any, b: Any) -> Any:
    return rnn._lstm_torch(t, x, wx.T.contiguous(), wh.T.contiguous(), b)


def _scan(l: Any, x: Any) -> Any:
    zeros = l.np.zeros(x.shape[1], l.np.float32)
    return l.lax.scan(lambda c, row: (0.9 * c + row,) * 2, zeros, x)[1]


def _scan_torch(t: Any, x: Any) -> Any:
    c, found = t.zeros_like(x[0]), []
    for row in x:
        c = 0.9 * c + row
        found.append(c)
    return t.stack(found)


def _resnet_shapes() -> Iterator[tuple[int, ...]]:
    """Of the parameters of ResNet-18, in the order in which `_resnet_params` takes them."""
    units, channels = [(7, 3, 64)], 64
    for width, first_stride in resnet.STAGES:
        for stride in (first_stride, 1):
            units += [(3, channels, width), (3, width, width)]
            if stride != 1 or channels != width:
                units.append((1, channels, width))
            channels = width
    for size, n, m in units:
        yield from ((size, size, n, m), (m,), (m,))
    yield from ((channels, 1000), (1000,))


def _resnet_params(arrays: Sequence[Any], turned: Callable[[Any], Any] = lambda w: w) -> Any:
    left = list(arrays)
    take = lambda: left.pop(0)
    unit = lambda: {"kernel": turned(take()), "scale": take(), "bias": take()}
    stem, blocks, channels = unit(), [], 64
    for width, first_stride in resnet.STAGES:
        for stride in (first_stride, 1):
            block = {"conv1": unit(), "conv2": unit()}
            if stride != 1 or channels != width:
                block["shortcut"] = unit()
            blocks.append(block)
            channels = width
    return {"stem": stem, "blocks": blocks, "head": {"w": take(), "b": take()}}


def _resnet(train: bool, l: Any, x: Any, *params: Any) -> Any:
    return resnet._forward(l, _resnet_params(params), x, train)


def _resnet_torch(train: bool, t: Any, x: Any, *params: Any) -> Any:
    turned = _resnet_params(params, lambda w: w.permute(3, 2, 0, 1))
    statistics = None if train else (x.new_zeros(512), x.new_ones(512))
    return resnet._forward_torch(t, turned, x.permute(0, 3, 1, 2), train, statistics)


ROWS = ("b, t, 256", "256", "256")
HEADS = ("b, t, 4, 32",) * 3
SMALL = tuple((b, min(t, 128)) for b, t in SIZES)
LSTM = ("t, b, 64", "64, 512", "128, 512", "512")
WEIGHTS = tuple(", ".join(map(str, shape)) for shape in _resnet_shapes())
BLOCK = ("b, t, 128", "128, 384", "128, 128", "128, 512", "512, 128", "128", "128")

_softmax = Program(
    "softmax, b×t", ("b, t",), lambda l, x: l.nn.softmax(x, -1), lambda t, x: t.softmax(x, -1)
)
_norm = Program("layernorm, b×t×256", ROWS, reductions._layernorm, reductions._layernorm_torch)
_attend = Program(
    "causal attention, b×t×4×32", HEADS, partial(_attention, True), partial(_attention_torch, True),
    sizes=tuple((min(b, 16), t) for b, t in SIZES),
)  # fmt: skip
_attend_all = replace(
    _attend, name="attention, b×t×4×32", jaxlike=partial(_attention, False),
    torch=partial(_attention_torch, False),
)  # fmt: skip
_convolution = Program(
    "convolution 3×3, b×t×t×32", ("b, t, t, 32", "3, 3, 32, 32"),
    partial(conv._conv, 1, 1), _convolved, sizes=IMAGES,
)  # fmt: skip
_embedding = Program(
    "embedding, b×t of 100×128",
    ("ids b, t", "100, 128"),
    lambda l, ids, w: w[ids],
    lambda t, ids, w: t.nn.functional.embedding(ids, w),
)
_transformer = Program(
    "transformer block, b×t×128", BLOCK, _block, _block_torch, sizes=SMALL, tolerance=1e-3
)
_inference = Program(
    "ResNet-18 inference, b×t×t×3", ("b, t, t, 3", *WEIGHTS), partial(_resnet, False),
    partial(_resnet_torch, False), sizes=((2, 64), (8, 64), (5, 96), (1, 128), (16, 48)),
    tolerance=1e-3,
)  # fmt: skip
# As of its training step, a rounding that flips one maximum moves a whole gradient.
_training = Program(
    "ResNet-18 in training, b×64×64×3", ("b, 64, 64, 3", *WEIGHTS), partial(_resnet, True),
    partial(_resnet_torch, True), sizes=((4, 64), (16, 64), (5, 64)),
)  # fmt: skip
_training = replace(_training.gradient(*range(1, len(WEIGHTS) + 1)), tolerance=0.1)

PROGRAMS = [
    # Its figures tell what a call of a size that was met before costs beside one of its program.
    Program(
        "x + 1, b×t",
        ("b, t",),
        lambda l, x: x + 1,
        lambda t, x: x + 1,
        sizes=((2, 2), (3, 17), (5, 7), (16, 9), (8, 64)),
    ),
    Program("gelu, b×t×64", ("b, t, 64",), lambda l, x: l.nn.gelu(x) * 2 + x, _gelu_torch),
    Program("sum axis 1, b×t×64", ("b, t, 64",), lambda l, x: x.sum(1), lambda t, x: x.sum(1)),
    Program("sum axis 1, b×t", ("b, t",), lambda l, x: x.sum(1), lambda t, x: x.sum(1)),
    _softmax,
    _softmax.gradient(0),
    _norm,
    _norm.gradient(0, 1, 2),
    Program("product, M = b·t", ("b, t, 128", "128, 96"), _product, _product),
    Program("product, N = t", ("64, 128", "128, t"), _product, _product),
    Program("product, K = t", ("64, t", "t, 96"), _product, _product),
    Program("products, b of t×32×t", ("b, t, 32", "b, 32, t"), _product, _product),
    _attend,
    _attend.gradient(0, 1, 2),
    _attend_all,
    _attend_all.gradient(0, 1, 2),
    _convolution,
    _convolution.gradient(0, 1),
    Program(
        "max pooling 2×2, b×t×t×32",
        ("b, t, t, 32",),
        _pool,
        _pooled,
        constraints=("t >= 2",),
        sizes=IMAGES,
    ),
    _embedding,
    _embedding.gradient(1),
    Program("sort, b×t", ("b, t",), lambda l, x: l.np.sort(x, -1), lambda t, x: t.sort(x, -1)[0]),
    Program(
        "cumsum, b×t", ("b, t",), lambda l, x: l.np.cumsum(x, -1), lambda t, x: t.cumsum(x, -1)
    ),
    Program("scan, t×b", ("t, b",), _scan, _scan_torch, sizes=SMALL),
    Program("LSTM of 128, t×b×64", LSTM, rnn._lstm, _lstm_torch, sizes=SMALL),
    _transformer,
    _transformer.gradient(0, 1, 2, 3, 4, 5, 6),
    _inference,
    _training,
]


def _row(program: Program) -> Workload:
    prepare, prepare_torch = partial(_prepare, program), partial(_prepare_torch, program)
    return Workload(program.name, prepare, prepare_torch, program.tolerance)


def _serving(program: Program) -> Workload:
    prepare = partial(_serve, program)
    return Workload(f"{REQUESTS} requests of {program.name}", prepare, prepare, None)


WORKLOADS = [*map(_row, PROGRAMS), _serving(_norm), _serving(_transformer)]
