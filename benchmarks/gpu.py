"""``python -m benchmarks.gpu``: the generator's code on a GPU beside JAX's and PyTorch's.

Everything runs in this process, in turns, on one device. Calls are timed back to back and only the
last is waited for. Memory-bound work is also compared with a copy: the share of a copy's bandwidth
that it reaches. The table becomes the last part of ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import report

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
NAMES = ("amdjax", "jax", "torch")


@dataclass
class GpuWorkload:
    """One row.

    Args:
      name: of the row.
      shapes: of the arguments, standard normal numbers.
      jaxlike: `fn(lib, *arrays)`, jitted.
      torch: `fn(torch, *tensors)`.
      dtype: of the arguments.
      moved: bytes that have to move at least; 0 where memory is not the limit.
      flops: of products; 0 where they are not the limit.
      tolerance: greatest difference, as a fraction of the greatest magnitude.
      precision: of products of float32; PyTorch has full precision and TF32.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    jaxlike: Callable[..., Any]
    torch: Callable[..., Any]
    dtype: str = "float32"
    moved: int = 0
    flops: int = 0
    tolerance: float = 1e-4
    precision: str = "highest"


class JaxLike:
    """amdjax or JAX on its GPU."""

    def __init__(self, name: str):
        import importlib

        self.name = name
        self.module = importlib.import_module(name)
        for part in ("numpy", "lax", "nn"):
            importlib.import_module(f"{name}.{part}")
        platform = "gpu" if name == "jax" else "cuda"
        self.device = self.module.devices(platform)[0]

    def prepare(self, work: GpuWorkload, arrays: list[np.ndarray]) -> Callable[[], Any]:
        module = self.module
        dtype = module.numpy.dtype(work.dtype)
        args = [module.device_put(module.numpy.asarray(x, dtype), self.device) for x in arrays]

        def run(*xs: Any) -> Any:
            with module.default_matmul_precision(work.precision):
                return work.jaxlike(module, *xs)

        function = module.jit(run)
        return lambda: function(*args)

    def wait(self, result: Any) -> None:
        self.module.block_until_ready(result)

    def host(self, result: Any) -> np.ndarray:
        parts = self.module.tree_util.tree_leaves(result)
        return _joined([np.asarray(x).astype(np.float32) for x in parts])


class Torch:
    """PyTorch, eager."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("torch.cuda.is_available() is False")
        self.torch = torch

    def prepare(self, work: GpuWorkload, arrays: list[np.ndarray]) -> Callable[[], Any]:
        dtype = getattr(self.torch, work.dtype)
        args = [self.torch.from_numpy(x).to("cuda", dtype) for x in arrays]
        backends = self.torch.backends

        def run() -> Any:
            narrow = work.precision == "tensorfloat32"
            backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = narrow
            return work.torch(self.torch, *args)

        return run

    def wait(self, result: Any) -> None:
        self.torch.cuda.synchronize()

    def host(self, result: Any) -> np.ndarray:
        parts = result if isinstance(result, tuple) else (result,)
        return _joined([x.float().cpu().numpy() for x in parts])

    def copy_bandwidth(self, nbytes: int = 1 << 30) -> float:
        """Bytes read and written by a copy, in a second."""
        x = self.torch.empty(nbytes, dtype=self.torch.uint8, device="cuda")
        y = self.torch.empty_like(x)
        return 2 * nbytes / min(sample(self, lambda: y.copy_(x), 20) for _ in range(5))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Results to be compared: one array, or the numbers of several."""
    return parts[0] if len(parts) == 1 else np.concatenate([x.ravel() for x in parts])


def sample(lib: Any, run: Callable[[], Any], calls: int) -> float:
    """Seconds of a call, many issued back to back."""
    lib.wait(run())
    start = time.perf_counter()
    for _ in range(calls):
        result = run()
    lib.wait(result)
    return (time.perf_counter() - start) / calls


def _layernorm(l: Any, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * l.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of `sum(function(x) * g)` with respect to x."""
    return lambda l, x, g: l.grad(lambda x: (function(l, x) * g).sum())(x)


def _torch_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(t: Any, x: Any, g: Any) -> Any:
        x = x.detach().requires_grad_()
        (dx,) = t.autograd.grad(function(t, x), x, g)
        return dx

    return gradient


@dataclass(frozen=True)
class Conv:
    """A convolution of images whose features lie side by side.

    Args:
      stride: along both axes.
      padding: on all sides.
      groups: of features.
    """

    stride: int = 1
    padding: int = 1
    groups: int = 1

    def jaxlike(self, l: Any, x: Any, w: Any) -> Any:
        return l.lax.conv_general_dilated(
            x, w, (self.stride,) * 2, [(self.padding,) * 2] * 2, feature_group_count=self.groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    def torch(self, t: Any, x: Any, w: Any) -> Any:
        """Of views: channels stay last in memory."""
        images, kernel = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)
        options = {"stride": self.stride, "padding": self.padding, "groups": self.groups}
        return t.nn.functional.conv2d(images, kernel, **options).permute(0, 2, 3, 1)

    def jaxlike_gradient(self, l: Any, x: Any, w: Any, g: Any) -> Any:
        """With respect to the kernel."""
        return l.vjp(lambda w: self.jaxlike(l, x, w), w)[1](g)[0]

    def torch_gradient(self, t: Any, x: Any, w: Any, g: Any) -> Any:
        views = [y.permute(0, 3, 1, 2) for y in (g, x)]
        kernel, pair = w.permute(3, 2, 0, 1), lambda n: (n, n)
        _, gradient, _ = t.ops.aten.convolution_backward(
            *views, kernel, None, pair(self.stride), pair(self.padding), (1, 1), False, (0, 0),
            self.groups, (False, True, False),
        )  # fmt: skip
        return gradient.permute(2, 3, 1, 0)


def _transposed(l: Any, x: Any, w: Any) -> Any:
    return l.lax.conv_transpose(x, w, (2, 2), "SAME")


def _torch_transposed(t: Any, x: Any, w: Any) -> Any:
    images, kernel = x.permute(0, 3, 1, 2), w.flip(0, 1).permute(2, 3, 0, 1)
    return t.nn.functional.conv_transpose2d(images, kernel, stride=2, padding=1).permute(0, 2, 3, 1)


def _cross_entropy(l: Any, x: Any) -> Any:
    labels = l.numpy.arange(x.shape[0]) * 7919 % x.shape[1]
    return -l.numpy.take_along_axis(l.nn.log_softmax(x), labels[:, None], 1).mean()


def _torch_cross_entropy_gradient(t: Any, x: Any) -> Any:
    labels = t.arange(x.shape[0], device="cuda") * 7919 % x.shape[1]
    x = x.detach().requires_grad_()
    (dx,) = t.autograd.grad(t.nn.functional.cross_entropy(x, labels), x)
    return dx


def _embedding_gradient(l: Any, table: Any, g: Any) -> Any:
    rows = l.numpy.arange(g.shape[0]) * 7919 % table.shape[0]
    return l.numpy.zeros_like(table).at[rows].add(g)


def _torch_embedding_gradient(t: Any, table: Any, g: Any) -> Any:
    rows = t.arange(g.shape[0], device="cuda") * 7919 % table.shape[0]
    return t.zeros_like(table).index_add(0, rows, g)


def _attention(causal: bool) -> Callable[..., Any]:
    """Of queries, keys and values [batch, time, heads, features]; in JAX by cuDNN's kernel."""

    def attention(l: Any, q: Any, k: Any, v: Any) -> Any:
        kernel = {"implementation": "cudnn"} if l.__name__ == "jax" else {}
        return l.nn.dot_product_attention(q, k, v, is_causal=causal, **kernel)

    return attention


def _torch_attention(causal: bool) -> Callable[..., Any]:
    def attention(t: Any, *qkv: Any) -> Any:
        views = [x.transpose(1, 2) for x in qkv]
        attend = t.nn.functional.scaled_dot_product_attention
        return attend(*views, is_causal=causal).transpose(1, 2)

    return attention


def _attention_gradient(l: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
    """With respect to queries, keys and values."""
    return l.vjp(lambda *qkv: _attention(True)(l, *qkv), q, k, v)[1](g)


def _torch_attention_gradient(t: Any, *arrays: Any) -> Any:
    qkv = [x.detach().requires_grad_() for x in arrays[:3]]
    return t.autograd.grad(_torch_attention(True)(t, *qkv), qkv, arrays[3])


def _attention_workloads() -> list[GpuWorkload]:
    """Causal attention with its gradient, and one query a sequence over many keys."""
    rows = []
    for features in (64, 128):
        b, t, h = 4, 2048, 1024 // features
        shape, flops = (b, t, h, features), 2 * b * h * t * t * features
        name = f"causal attention in bfloat16, {b}×{t}×{h}×{features}"
        rows += [
            GpuWorkload(
                name, (shape,) * 3, _attention(True), _torch_attention(True), dtype="bfloat16",
                flops=flops, tolerance=1e-2,
            ),
            GpuWorkload(
                f"{name}, gradient", (shape,) * 4, _attention_gradient, _torch_attention_gradient,
                dtype="bfloat16", flops=flops * 7 // 2, tolerance=2e-2,
            ),
        ]  # fmt: skip
    keys = (32, 4096, 16, 64)
    return rows + [
        GpuWorkload(
            "attention in bfloat16, 32×1×16×64 over 4,096 keys", ((32, 1, 16, 64), keys, keys),
            _attention(False), _torch_attention(False), dtype="bfloat16",
            moved=2 * 2 * 32 * 4096 * 16 * 64, tolerance=1e-2,
        ),
    ]  # fmt: skip


def workloads() -> list[GpuWorkload]:
    """What is timed."""
    wide, big, words = (16384, 4096), (8192, 8192), (2048, 50257)
    n = 4 * wide[0] * wide[1]  # bytes of one array
    m = 4096
    product = 2 * m**3
    memory = [
        GpuWorkload("x + 1, 64M", (wide,), lambda l, x: x + 1, lambda t, x: x + 1, moved=2 * n),
        GpuWorkload(
            "gelu, 64M", (wide,), lambda l, x: l.nn.gelu(x),
            lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), moved=2 * n,
        ),
        GpuWorkload(
            "gelu in bfloat16, 64M", (wide,), lambda l, x: l.nn.gelu(x),
            lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
            dtype="bfloat16", moved=n, tolerance=2e-2,
        ),
        GpuWorkload(
            "silu in bfloat16, 64M", (wide,), lambda l, x: l.nn.silu(x),
            lambda t, x: t.nn.functional.silu(x), dtype="bfloat16", moved=n, tolerance=2e-2,
        ),
        GpuWorkload(
            "x * y + z, 64M", (wide,) * 3, lambda l, x, y, z: x * y + z,
            lambda t, x, y, z: t.addcmul(z, x, y), moved=4 * n,
        ),
        GpuWorkload(
            "x + y.T, 8192²", (big, big), lambda l, x, y: x + y.T, lambda t, x, y: x + y.T,
            moved=3 * n,
        ),
        GpuWorkload(
            "softmax, 16384×4096", (wide,), lambda l, x: l.nn.softmax(x),
            lambda t, x: t.softmax(x, -1), moved=2 * n,
        ),
        GpuWorkload(
            "softmax in bfloat16, 16384×4096", (wide,), lambda l, x: l.nn.softmax(x),
            lambda t, x: t.softmax(x, -1), dtype="bfloat16", moved=n, tolerance=2e-2,
        ),
        GpuWorkload(
            "softmax gradient, 16384×4096", (wide, wide),
            _gradient(lambda l, x: l.nn.softmax(x)), _torch_gradient(lambda t, x: t.softmax(x, -1)),
            moved=3 * n,
        ),
        GpuWorkload(
            "layernorm, 16384×4096", (wide,), _layernorm,
            lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:]), moved=2 * n,
        ),
        GpuWorkload(
            "layernorm gradient, 16384×4096", (wide, wide), _gradient(_layernorm),
            _torch_gradient(lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:])), moved=3 * n,
        ),
        GpuWorkload(
            "cross entropy gradient, 2048×50257", (words,),
            lambda l, x: l.grad(lambda x: _cross_entropy(l, x))(x), _torch_cross_entropy_gradient,
            moved=8 * words[0] * words[1],
        ),
        GpuWorkload("sum all, 64M", (wide,), lambda l, x: x.sum(), lambda t, x: x.sum(), moved=n),
        GpuWorkload(
            "sum axis 0, 8192²", (big,), lambda l, x: x.sum(0), lambda t, x: x.sum(0), moved=n
        ),
        GpuWorkload(
            "max axis 1, 8192²", (big,), lambda l, x: x.max(1), lambda t, x: x.amax(1), moved=n
        ),
    ]  # fmt: skip
    products = [
        GpuWorkload(
            f"matmul in {dtype}, 4096²", ((m, m), (m, m)), lambda l, x, y: x @ y,
            lambda t, x, y: x @ y, dtype=dtype, flops=product, tolerance=tolerance,
        )
        for dtype, tolerance in (("float16", 2e-3), ("bfloat16", 1e-2), ("float32", 1e-4))
    ] + [
        GpuWorkload(
            "relu(x @ y + b) in bfloat16, 4096²", ((m, m), (m, m), (m,)),
            lambda l, x, y, b: l.nn.relu(x @ y + b),
            lambda t, x, y, b: t.relu(t.addmm(b, x, y)),
            dtype="bfloat16", flops=product, tolerance=1e-2,
        ),
    ]  # fmt: skip
    precise = [
        GpuWorkload(
            f"{name} of float32, 4096²", ((m, m), (m, m)), lambda l, x, y: x @ y,
            lambda t, x, y: x @ y, flops=product, tolerance=tolerance, precision=precision,
        )
        for name, precision, tolerance in (
            ("TF32 matmul", "tensorfloat32", 2e-3), ("bfloat16 matmul", "BF16_BF16_F32", 1e-2),
            ("3× bfloat16 matmul", "BF16_BF16_F32_X3", 1e-4),
            ("6× bfloat16 matmul", "BF16_BF16_F32_X6", 1e-5),
        )
    ]  # fmt: skip
    images, kernel = (64, 56, 56, 64), (3, 3, 64, 64)
    deep, deep_kernel = (64, 56, 56, 128), (3, 3, 1, 128)
    plain, depthwise, stem = Conv(), Conv(groups=128), Conv(stride=2, padding=3)
    others = [
        GpuWorkload(
            "cumsum axis 1, 8192²", (big,), lambda l, x: l.numpy.cumsum(x, 1),
            lambda t, x: x.cumsum(1), moved=8 * big[0] * big[1], tolerance=1e-3,
        ),
        GpuWorkload(
            "sort, 4M", ((1 << 22,),), lambda l, x: l.numpy.sort(x), lambda t, x: x.sort()[0],
            moved=8 << 22,
        ),
        GpuWorkload(
            "embedding gradient, 16k of 50k×256", ((50_000, 256), (16_384, 256)),
            _embedding_gradient, _torch_embedding_gradient, moved=4 * 256 * (50_000 + 16_384),
        ),
        GpuWorkload(
            "conv 3×3 in float16, 64×56²×64", (images, kernel), plain.jaxlike, plain.torch,
            dtype="float16", flops=2 * 64 * 56 * 56 * 64 * 64 * 9, tolerance=2e-3,
        ),
        GpuWorkload(
            "TF32 conv 3×3 of float32, 64×56²×64", (images, kernel), plain.jaxlike, plain.torch,
            flops=2 * 64 * 56 * 56 * 64 * 64 * 9, tolerance=2e-3, precision="tensorfloat32",
        ),
        GpuWorkload(
            "conv 7×7 stride 2 in float16, 64×224²×3", ((64, 224, 224, 3), (7, 7, 3, 64)),
            stem.jaxlike, stem.torch, dtype="float16", flops=2 * 64 * 112 * 112 * 64 * 3 * 49,
            tolerance=2e-3,
        ),
        GpuWorkload(
            "depthwise 3×3 in float16, 64×56²×128", (deep, deep_kernel), depthwise.jaxlike,
            depthwise.torch, dtype="float16", moved=2 * 2 * 64 * 56 * 56 * 128, tolerance=2e-3,
        ),
        GpuWorkload(
            "depthwise 3×3 in float16, gradient of kernel", (deep, deep_kernel, deep),
            depthwise.jaxlike_gradient, depthwise.torch_gradient, dtype="float16",
            moved=2 * 2 * 64 * 56 * 56 * 128, tolerance=5e-3,
        ),
        GpuWorkload(
            "transposed conv 4×4 stride 2 in float16, 32×32²×256",
            ((32, 32, 32, 256), (4, 4, 256, 128)), _transposed, _torch_transposed,
            dtype="float16", flops=2 * 32 * 32 * 32 * 256 * 128 * 16, tolerance=2e-3,
        ),
    ]  # fmt: skip
    return memory + products + precise + _attention_workloads() + others


def measure(work: GpuWorkload, libs: list[Any], rounds: int) -> report.Row:
    """Samples of every library in turn, after their results were compared."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in work.shapes]
    errors: dict[str, str] = {}
    runs: dict[str, tuple[Any, Callable[[], Any], int]] = {}
    reference: np.ndarray | None = None
    for lib in reversed(libs):  # PyTorch is the reference
        try:
            run = lib.prepare(work, arrays)
            host = lib.host(run())
            reference = host if reference is None else reference
            off = float(np.abs(host - reference).max() / np.abs(reference).max())
            if not off <= work.tolerance:
                errors[lib.name] = f"results differ by {off:.1e} of the greatest magnitude"
                continue
            calls = max(3, min(200, int(0.05 / sample(lib, run, 3))))
            runs[lib.name] = lib, run, calls
        except Exception as error:
            errors[lib.name] = f"{type(error).__name__}: {error}"[:300]
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (lib, run, calls) in runs.items():
            samples[name].append(sample(lib, run, calls))
    seconds = {name: statistics.median(times) for name, times in samples.items()}
    return {"name": work.name, "seconds": seconds, "samples": samples, "errors": errors}


def achieved(work: GpuWorkload, row: report.Row, copy: float) -> str:
    """The share of a copy's bandwidth, or of PyTorch's rate, that amdjax reaches."""
    ours = row["seconds"].get("amdjax")
    if ours is None:
        return "–"
    if work.moved:
        return f"{work.moved / ours / copy:.0%} of a copy"
    return f"{work.flops / ours / 1e12:.0f} TFLOP/s"


def section(rows: list[tuple[GpuWorkload, report.Row]], copy: float, device: str) -> str:
    """The part of the page about GPUs."""
    lines = [
        "## GPU code, as PTX",
        "",
        "The generator that writes AMD machine code also writes PTX, to be timed on hardware that",
        "can be had. One run, libraries in turns; medians. Compilation is not included.",
        "",
        f"- device: {device}; a copy moves {copy / 1e12:.2f} TB/s, read and written",
        "",
        "| workload | amdjax | JAX | PyTorch | vs JAX | vs PyTorch | reached |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for work, row in rows:
        cells = " | ".join(report.cell(row, lib) for lib in NAMES)
        ratios = " | ".join(report.ratio_text(report.speedup(row, x)) for x in ("jax", "torch"))
        lines.append(f"| {row['name']} | {cells} | {ratios} | {achieved(work, row, copy)} |")
    return "\n".join(lines) + "\n"


def libraries(names: list[str]) -> tuple[list[Any], Torch]:
    """The libraries to compare, and PyTorch, whose copy is the measure of bandwidth.

    Raises:
      SystemExit: one is not there, or sees no GPU.
    """
    libs: list[Any] = []
    for name in (*(x for x in NAMES if x in names and x != "torch"), "torch"):
        try:
            libs.append(Torch() if name == "torch" else JaxLike(name))
        except (ImportError, RuntimeError) as error:
            raise SystemExit(
                f"benchmarks.gpu needs an NVIDIA GPU that {name} can use: {error}\n"
                "Leave out libraries other than amdjax and torch with --libs; benchmarks for CPUs "
                "are `python -m benchmarks`."
            ) from None
    torch = libs[-1]
    return libs if "torch" in names else libs[:-1], torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="run the rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--libs", default=",".join(NAMES))
    parser.add_argument("--json", type=Path, help="write all samples there")
    parser.add_argument("--markdown", type=Path, default=PAGE, help="the page to write into")
    args = parser.parse_args()
    os.environ.setdefault("AMDJAX_PLATFORMS", "cuda,cpu")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    names = args.libs.split(",")
    libs, torch = libraries(names)
    copy, device = torch.copy_bandwidth(), torch.torch.cuda.get_device_name()
    rows = []
    for work in workloads():
        if args.only and args.only not in work.name:
            continue
        row = measure(work, libs, args.rounds)
        rows.append((work, row))
        cells = "".join(f"{report.cell(row, lib):>12}" for lib in NAMES)
        print(f"{work.name:<38}{cells}   {achieved(work, row, copy)}", flush=True)
        for name, text in row["errors"].items():
            print(f"    error: {name}: {text}", flush=True)
    if args.json:
        args.json.write_text(json.dumps([row for _, row in rows], indent=1))
    if not args.only:
        page, text = args.markdown, section(rows, copy, device)
        page.write_text(report.with_section(page, report.GPU_MARK, text), encoding="utf-8")
        print(f"wrote {args.markdown}")


if __name__ == "__main__":
    main()
