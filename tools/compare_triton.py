"""AMD code of amdjax beside Triton's, counted in the emulator; writes docs/amd_code.md.

    python tools/compare_triton.py [--targets NAMES] [--only TEXT] [--triton FILE] [--write]

Triton's wheel compiles for AMD GPUs without one (`pip install triton`, for this tool only). Each of
its kernels is tried in a few block sizes; what counts is the one of fewest instructions that spills
no registers. Both sides' results are compared with NumPy's in double precision.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.integers import ceil_div
from amdjax.emulator import Checks, CodeObject, Counters, EmulatorError, Memory, launch
from amdjax.emulator.debug.counters import sampling, total
from amdjax.emulator.debug.replay import estimate
from amdjax.emulator.debug.timing import tracing
from amdjax.targets import GpuTarget, get

PAGE = Path(__file__).parent.parent / "docs" / "amd_code.md"
TARGETS = "gfx942", "gfx1100"
F16, BF16 = np.dtype(np.float16), np.dtype(jnp.bfloat16)
F32, I8, I32 = np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.int32)
_TRITON_NAMES = {F16: "fp16", BF16: "bf16", F32: "fp32", I8: "i8", I32: "i32"}
# Of the largest expected number.
_TOLERANCES = {F32: 2e-5, F16: 4e-3, BF16: 3e-2, I32: 0.0}

# Where a tile has fewer elements than there are threads, Triton's waves store the same in LDS.
CHECKS = Checks.ALL & ~Checks.RACES

# Instructions of a launch that are run to choose among ways.
_SAMPLE = 1_000_000

T = TypeVar("T")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Launch:
    """A launch of one of Triton's kernels.

    Attributes:
      kernel: its name in `triton_kernels.py`.
      grid: programs along x, y.
      constants: values of its `constexpr` parameters.
      warps: waves of a program.
      buffers: names of the arrays for parameters that are called otherwise.
    """

    kernel: str
    grid: tuple[int, ...]
    constants: Mapping[str, int]
    warps: int
    buffers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        blocks = [str(v) for k, v in self.constants.items() if k in _BLOCKS]
        return "×".join(blocks) + f" {self.warps} waves"


_BLOCKS = ("BLOCK", "ROWS", "BM", "BN", "BK")


@dataclass(frozen=True)
class Row:
    """A computation, as both sides do it.

    Attributes:
      name: in the table.
      inputs: arrays by the names of Triton's parameters, in the order of `ours`.
      ours: what amdjax compiles.
      expected: results by name in double precision, in the order of those of `ours`.
      outputs: their dtypes.
      scratch: shapes of Triton's intermediates in f32.
      triton: ways to do it, each a sequence of launches.
    """

    name: str
    inputs: Callable[[], Arrays]
    ours: Callable[..., Any]
    expected: Callable[..., Arrays]
    outputs: Mapping[str, np.dtype]
    triton: Sequence[tuple[Launch, ...]]
    scratch: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Best(NamedTuple):
    """Triton's figures in the way of fewest instructions, and the least of that and another.

    Attributes:
      figures: in the way of fewest instructions.
      busiest: in the way in which the busiest SIMD has the fewest.
      cycles: in the better one of both.
    """

    figures: Figures
    busiest: int
    cycles: float


@dataclass(frozen=True)
class Figures:
    """What one side's code does and takes.

    Attributes:
      instructions: of all waves.
      busiest: of the SIMD that has the most to do, where waves are spread evenly over the machine.
      cycles: that the launches are estimated to take, one after the other.
      vector, matrix: vector instructions that are none of the matrix unit, and those that are.
      nbytes: read and written in global memory.
      conflicts: cycles lost to bank conflicts of LDS.
      vgprs, sgprs: the most registers of a wave, matrix registers included.
      spills: registers kept elsewhere for want of room.
      occupancy: the fewest waves a SIMD holds.
      way: Triton's blocks and waves.
    """

    instructions: int
    busiest: int
    cycles: float
    vector: int
    matrix: int
    nbytes: int
    conflicts: int
    vgprs: int
    sgprs: int
    spills: int
    occupancy: int
    way: str = ""

    @property
    def matrix_share(self) -> float:
        """Part of the vector instructions that are of the matrix unit."""
        return self.matrix / max(self.vector + self.matrix, 1)


def figures(
    counters: Sequence[Counters], cycles: float, target: str, vgprs: int, sgprs: int, spills: int,
    way: str = "",
) -> Figures:  # fmt: skip
    """Of what the emulator counted and estimated, and what code objects say of registers."""
    whole = total(counters)
    waves = [c.occupancy.waves for c in counters if c.occupancy]
    return Figures(
        whole.instructions, sum(_busiest(c, get(target)) for c in counters), cycles,
        whole.by_class["valu"], whole.by_class["matrix"],
        whole.bytes_read + whole.bytes_written, whole.bank_conflicts, vgprs, sgprs, spills,
        min(waves, default=0), way,
    )  # fmt: skip


def _busiest(launch: Counters, target: GpuTarget) -> int:
    """Instructions of the SIMD that has the most waves of a launch."""
    of_group = launch.waves // launch.workgroups
    spread = ceil_div(launch.waves, target.lds_units * target.simds)
    waves = max(spread, ceil_div(of_group, target.simds))
    return launch.instructions * waves // launch.waves


def best(ways: Iterable[T], measure: Callable[[T], int], spills: Callable[[T], int]) -> T:
    """The least that spills nothing; of all where all spill."""
    return min(ways, key=lambda x: (spills(x) > 0, measure(x)))


# Rows


def _numbers(dtype: np.dtype, *shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == I8:
        return rng.integers(-8, 8, shape).astype(I8)
    return rng.standard_normal(shape).astype(dtype)


def _named(**arrays: tuple[Any, ...]) -> Callable[[], Arrays]:
    """Inputs by name, of a dtype and a shape each."""
    return lambda: {
        name: _numbers(dtype, *shape, seed=i)
        for i, (name, (dtype, *shape)) in enumerate(arrays.items())
    }


def _elementwise() -> Iterator[Row]:
    n = 1 << 20
    ways = [(block, warps) for block in (1024, 2048, 4096, 8192) for warps in (1, 2, 4, 8)]

    def triton(kernel: str, **constants: int) -> list[tuple[Launch, ...]]:
        return [(Launch(kernel, (n // b,), {"BLOCK": b, **constants}, w),) for b, w in ways]

    yield Row(
        "add, 1M f32", _named(x=(F32, n), y=(F32, n)), lambda x, y: x + y,
        lambda x, y: {"out": x + y}, {"out": F32}, triton("add"),
    )  # fmt: skip
    yield Row(
        "GELU (erf), 1M f32", _named(x=(F32, n)), partial(nn.gelu, approximate=False),
        lambda x: {"out": x / 2 * (1 + _erf(x / 2**0.5))}, {"out": F32}, triton("gelu", EXACT=1),
    )  # fmt: skip
    yield Row(
        "GELU (tanh), 1M bf16", _named(x=(BF16, n)), nn.gelu,
        lambda x: {"out": x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))},
        {"out": BF16}, triton("gelu", EXACT=0),
    )  # fmt: skip


@cache
def _vector_erf() -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(math.erf, otypes=[float])


def _erf(x: np.ndarray) -> np.ndarray:
    return _vector_erf()(x)


def _softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rows() -> Iterator[Row]:
    for m, n, dtype in ((64, 4096, F32), (1024, 256, F32), (256, 1024, BF16)):
        ways = [(r, w) for r in (1, 2, 4, 8) for w in (1, 2, 4, 8, 16) if r * n <= 16384]
        yield Row(
            f"softmax, {m}×{n} {_word(dtype)}", _named(x=(dtype, m, n)), nn.softmax,
            lambda x: {"out": _softmax_of(x)}, {"out": dtype},
            [(Launch("softmax", (m // r,), {"COLUMNS": n, "ROWS": r}, w),) for r, w in ways],
        )  # fmt: skip
    m, n = 256, 1024

    def norm(x: Any, w: Any, b: Any) -> Any:
        return nn.layer_norm(x, w, b, epsilon=1e-5)

    yield Row(
        f"layer norm, {m}×{n} f32", _named(x=(F32, m, n), w=(F32, n), b=(F32, n)), norm,
        lambda x, w, b: {"out": _normal(x)[0] * w + b}, {"out": F32},
        [
            (Launch("layer_norm", (m // r,), {"COLUMNS": n, "ROWS": r}, w),)
            for r in (1, 2, 4, 8) for w in (1, 2, 4, 8)
        ],
    )  # fmt: skip

    def gradient(x: Any, w: Any, dy: Any) -> Any:
        return amdjax.vjp(norm, x, w, jnp.zeros_like(w))[1](dy)

    def expected(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> Arrays:
        h, scale = _normal(x)
        wg = w * dy
        mean = partial(np.mean, axis=-1, keepdims=True)
        dx = (wg - mean(wg) - h * mean(wg * h)) * scale
        return {"dx": dx, "dw": (dy * h).sum(0), "db": dy.sum(0)}

    parts = [
        (
            Launch("layer_norm_gradient", (m // r,), {"COLUMNS": n, "ROWS": r}, w,
                   {"dw": "w_parts", "db": "b_parts"}),
            Launch("sum_of_parts", (n // 64,), {"COLUMNS": n, "PARTS": m // r, "BLOCK": 64}, 2,
                   {"a": "w_parts", "b": "b_parts", "to_a": "dw", "to_b": "db"}),
        )
        for r in (4, 8, 16, 32) for w in (1, 2, 4, 8)
    ]  # fmt: skip
    yield Row(
        f"layer norm gradient, {m}×{n} f32", _named(x=(F32, m, n), w=(F32, n), dy=(F32, m, n)),
        gradient, expected, {"dx": F32, "dw": F32, "db": F32}, parts,
        {"w_parts": (m // 4, n), "b_parts": (m // 4, n)},
    )  # fmt: skip


def _normal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    return d * scale, scale


def _word(dtype: np.dtype) -> str:
    return {F16: "f16", BF16: "bf16", F32: "f32", I8: "int8"}[dtype]


# Batch, lines, columns and depth.
_PRODUCTS = {
    "256³": (1, 256, 256, 256),
    "1024×1024×512": (1, 1024, 1024, 512),
    "few lines, 16×2048×2048": (1, 16, 2048, 2048),
    "deep, 256×256×4096": (1, 256, 256, 4096),
    "16 of 256×64×256": (16, 256, 64, 256),
}


def _products() -> Iterator[Row]:
    for (name, (batch, m, n, k)), dtype in product(_PRODUCTS.items(), (F32, F16, BF16, I8)):
        out = I32 if dtype == I8 else dtype
        shapes = {"a": (batch, m, k), "b": (batch, k, n)}
        if batch == 1:
            shapes = {key: shape[1:] for key, shape in shapes.items()}
        ways = [
            (Launch("matmul", (m // bm * (n // bn), batch),
                    {"M": m, "N": n, "K": k, "BM": bm, "BN": bn, "BK": bk,
                     "GROUP": min(4, m // bm)}, w),)
            for bm, bn, bk, w in _BLOCKS_OF_PRODUCTS
            if bm <= m and bn <= n and not (dtype == F32 and bm * bn > 128 * 128)
        ]  # fmt: skip
        yield Row(
            f"product {name} {_word(dtype)}",
            _named(**{key: (dtype, *shape) for key, shape in shapes.items()}),
            partial(jnp.matmul, preferred_element_type=out),
            lambda a, b: {"out": a @ b}, {"out": out}, ways,
        )  # fmt: skip


_BLOCKS_OF_PRODUCTS = (
    (16, 32, 64, 1), (16, 64, 32, 2), (16, 64, 64, 1), (16, 64, 64, 4), (16, 128, 64, 2),
    (16, 128, 128, 4), (32, 32, 64, 1), (32, 64, 64, 2), (64, 64, 32, 2), (64, 64, 32, 4),
    (64, 64, 64, 4), (128, 64, 32, 4), (128, 64, 64, 4), (128, 128, 32, 4), (128, 128, 64, 4),
    (128, 128, 64, 8), (256, 128, 32, 8), (256, 128, 64, 8), (256, 256, 32, 8),
)  # fmt: skip


def _attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    s = np.einsum("btnh,bsnh->bnts", q, k) / q.shape[-1] ** 0.5
    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
    p = _softmax_of(s)
    return p, np.einsum("bnts,bsnh->btnh", p, v)


def _attention_gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, d_out: np.ndarray, causal: bool
) -> Arrays:
    p, _ = _attended(q, k, v, causal)
    dp = np.einsum("btnh,bsnh->bnts", d_out, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / q.shape[-1] ** 0.5
    return {
        "dq": np.einsum("bnts,bsnh->btnh", ds, k), "dk": np.einsum("bnts,btnh->bsnh", ds, q),
        "dv": np.einsum("bnts,btnh->bsnh", p, d_out),
    }  # fmt: skip


def _attention() -> Iterator[Row]:
    batch, length, heads, d = 1, 512, 4, 64
    shape, rows = (F16, batch, length, heads, d), batch * heads
    sizes = {"LENGTH": length, "HEADS": heads, "D": d}
    scratch = {"lse": (rows, length), "delta": (rows, length)}
    tiles = (
        (64, 32, 4),
        (64, 64, 4),
        (128, 32, 4),
        (128, 64, 4),
        (128, 64, 8),
        (64, 64, 2),
        (32, 32, 1),
        (32, 64, 1),
        (32, 32, 2),
        (32, 32, 4),
        (32, 16, 1),
        (16, 32, 1),
    )

    def at(kernel: str, bm: int, bn: int, w: int, block: int, **more: int) -> Launch:
        return Launch(kernel, (length // block, rows), {**sizes, "BM": bm, "BN": bn, **more}, w)

    for causal in (False, True):
        ours = partial(nn.dot_product_attention, is_causal=causal)
        what = f"1×{length}×{heads}×{d} f16" + (", causal" if causal else "")
        forward = [at("attention", bm, bn, w, bm, CAUSAL=causal) for bm, bn, w in tiles]
        yield Row(
            f"attention, {what}", _named(q=shape, k=shape, v=shape), ours,
            lambda q, k, v, causal=causal: {"out": _attended(q, k, v, causal)[1]}, {"out": F16},
            [(x,) for x in forward], scratch,
        )  # fmt: skip
        delta = Launch("attention_delta", (length // 64, rows), {**sizes, "BM": 64}, 4)
        backward = [
            (first, delta, at("attention_dkdv", bn, bm, w, bm, CAUSAL=causal),
             at("attention_dq", bm, bn, w, bm, CAUSAL=causal))
            for (bm, bn, w), first in zip(tiles, forward)
        ]  # fmt: skip
        yield Row(
            f"attention and gradients, {what}", _named(q=shape, k=shape, v=shape, d_out=shape),
            lambda q, k, v, d_out, ours=ours: amdjax.vjp(ours, q, k, v)[1](d_out),
            partial(_attention_gradients, causal=causal), {"dq": F16, "dk": F16, "dv": F16},
            backward, {**scratch, "out": (batch * length * heads, d // 2)},
        )  # fmt: skip


def _convolutions() -> Iterator[Row]:
    for dtype, (n, h, c, f) in product((F16, F32), ((4, 16, 64, 64),)):

        def ours(x: Any, w: Any) -> Any:
            return lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )

        def expected(x: np.ndarray, w: np.ndarray) -> Arrays:
            wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            h = x.shape[1]
            taps = product(range(3), range(3))
            return {"out": sum(wide[:, i : i + h, j : j + h] @ w[i, j] for i, j in taps)}

        sizes = {"N": n, "H": h, "W": h, "C": c, "F": f}
        yield Row(
            f"convolution 3×3, {n}×{h}²×{c} → {f} {_word(dtype)}",
            _named(x=(dtype, n, h, h, c), w=(dtype, 3, 3, c, f)), ours, expected, {"out": dtype},
            [
                (Launch("convolution", (n * h * h // bm, f // bn),
                        {**sizes, "BM": bm, "BN": bn, "BK": bk}, w),)
                for bm, bn, bk, w in _BLOCKS_OF_PRODUCTS
                if bn <= f and bk <= c
            ],
        )  # fmt: skip


def rows() -> list[Row]:
    """The table's rows, in order."""
    families = _elementwise, _rows, _products, _attention, _convolutions
    return [row for family in families for row in family()]


# Running


def check(row: Row, got: Mapping[str, np.ndarray], inputs: Arrays) -> None:
    """Compare results with NumPy's.

    Raises:
      AssertionError: they differ.
    """
    wanted = row.expected(*(x.astype(np.float64) for x in inputs.values()))
    for name, x in wanted.items():
        error = np.abs(got[name].reshape(x.shape).astype(np.float64) - x).max()
        bound = _TOLERANCES[row.outputs[name]] * max(np.abs(x).max(), 1)
        if not error <= bound:
            raise AssertionError(f"{row.name}: {name} is wrong by {error}, more than {bound}")


def run_ours(row: Row, target: str) -> Figures:
    """Compile, run in the emulator, check."""
    inputs = row.inputs()
    compiled = amdjax.jit(row.ours).lower(*inputs.values()).compile(target)
    profile = compiled.profile(*inputs.values())
    check(row, dict(zip(row.outputs, map(np.asarray, profile.results))), inputs)
    kernels = compiled.kernels
    return figures(
        profile.launches, profile.cycles, target, max(k.vgprs + k.agprs for k in kernels),
        max(k.sgprs for k in kernels),
        sum(k.vgpr_spills + k.sgpr_spills for k in kernels),
    )  # fmt: skip


def run_triton(row: Row, target: str, way: Sequence[Launch], whole: bool = True) -> Figures:
    """Compile a way and run it in the emulator: the whole of it, checked, or a sample.

    Raises:
      EmulatorError: the code faults.
    """
    inputs = row.inputs()
    arrays = inputs | {name: np.zeros(shape, F32) for name, shape in row.scratch.items()}
    for name, x in row.expected(*(x.astype(np.float64) for x in inputs.values())).items():
        arrays[name] = np.zeros(x.shape, row.outputs[name])
    memory = Memory()
    addresses = {name: memory.add(x) for name, x in arrays.items()}
    counters, registers = [], []
    with contextlib.nullcontext() if whole else sampling(_SAMPLE), tracing() as traced:
        for step in way:
            one, code = _launch_triton(step, target, arrays, addresses, memory, whole)
            counters.append(one)
            registers.append(code)
    if whole:
        check(row, arrays, inputs)
    vgprs, sgprs, spills = zip(*registers)
    cycles = sum(estimate(x).cycles for x in traced if x and whole)
    return figures(counters, cycles, target, max(vgprs), max(sgprs), sum(spills), str(way[-1]))


def _launch_triton(
    step: Launch,
    target: str,
    arrays: Arrays,
    addresses: Mapping[str, int],
    memory: Memory,
    profile: bool,
) -> tuple[Counters, tuple[int, int, int]]:
    """Counters, and vector registers, scalar registers and spills."""
    import triton_kernels  # late: the wheel is optional
    from triton import compile as compile_triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(triton_kernels, step.kernel)
    names = [x for x in inspect.signature(function.fn).parameters if x not in step.constants]
    buffers = [step.buffers.get(x, x) for x in names]
    signature = {x: f"*{_kind(x, b, arrays, step)}" for x, b in zip(names, buffers)}
    signature |= dict.fromkeys(step.constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(names))}
    waves = get(target).wave_size
    made = compile_triton(
        ASTSource(function, signature, dict(step.constants), aligned),
        target=GPUTarget("hip", target, waves), options={"num_warps": step.warps},
    )  # fmt: skip
    kernel = CodeObject(made.asm["hsaco"]).kernels[made.metadata.name]
    kernarg = np.array([addresses[b] for b in buffers], np.uint64).tobytes()
    one = launch(
        kernel,
        step.grid,
        step.warps * waves,
        kernarg,
        memory,
        made.metadata.shared,
        CHECKS,
        profile,
    )
    return one, _registers(made.asm["amdgcn"])


def _kind(name: str, buffer: str, arrays: Arrays, step: Launch) -> str:
    # What attention computes first, of its own dtype, lies in scratch of f32.
    if step.kernel.startswith("attention") and name == "out":
        return _TRITON_NAMES[arrays["q"].dtype]
    return _TRITON_NAMES[arrays[buffer].dtype]


def _registers(assembly: str) -> tuple[int, int, int]:
    """Vector registers, scalar registers and spills that the metadata of a kernel names."""
    found = {
        name: int(value)
        for name, value in re.findall(r"^\s*-? *\.(\w+_count): +(\d+)", assembly, re.MULTILINE)
    }
    spills = found["vgpr_spill_count"] + found["sgpr_spill_count"]
    return found["vgpr_count"], found["sgpr_count"], spills


def best_of_triton(row: Row, target: str) -> Best:
    """Of all ways that run: the one of fewest instructions, and what others have least of.

    Raises:
      AssertionError: none runs, or one of these computes something else.
    """
    ways = []
    for way in row.triton:
        try:
            ways.append((run_triton(row, target, way, whole=False), way))
        except (EmulatorError, RuntimeError, ValueError) as error:
            print(f"  {row.name} on {target}, {way[-1]}: {error}", file=sys.stderr)
    assert ways, f"{row.name} on {target}: none of Triton's ways runs"

    chosen = [
        best(ways, lambda x, of=of: getattr(x[0], of), lambda x: x[0].spills)[1]
        for of in ("instructions", "busiest")
    ]
    found = {id(way): run_triton(row, target, way) for way in chosen}
    fewest, busiest = (found[id(way)] for way in chosen)
    return Best(fewest, busiest.busiest, min(fewest.cycles, busiest.cycles))


# The page


@dataclass(frozen=True)
class Compared:
    """A row of the table; each side at its best in what is compared."""

    name: str
    target: str
    ours: Figures
    triton: Best

    @property
    def ratio(self) -> float:
        """Our instructions for one of Triton's."""
        return self.ours.instructions / self.triton.figures.instructions

    @property
    def busiest_ratio(self) -> float:
        """The same of the busiest SIMD."""
        return self.ours.busiest / self.triton.busiest

    @property
    def cycles_ratio(self) -> float:
        """Our cycles for one of Triton's."""
        return self.ours.cycles / self.triton.cycles

    @property
    def ratios(self) -> tuple[float, float, float]:
        """All of these."""
        return self.ratio, self.busiest_ratio, self.cycles_ratio


_COLUMNS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("instructions", lambda f: f"{f.instructions:,}"),
    ("estimated cycles", lambda f: f"{f.cycles:,.0f}"),
    ("matrix share", lambda f: f"{f.matrix_share:.2f}" if f.matrix else "–"),
    ("KiB moved", lambda f: f"{f.nbytes / 1024:,.0f}"),
    ("LDS conflicts", lambda f: f"{f.conflicts:,}"),
    ("VGPR / SGPR", lambda f: f"{f.vgprs} / {f.sgprs}"),
    ("spills", lambda f: str(f.spills)),
    ("waves per SIMD", lambda f: str(f.occupancy)),
)


def table(compared: Sequence[Compared]) -> str:
    """A table of Markdown: in each cell our figure, then Triton's."""
    titles = ["", "ratio", "busiest SIMD", "cycles", *dict(_COLUMNS), "Triton's best"]
    lines = [titles, ["---"] + ["---:"] * (len(titles) - 2) + ["---"]]
    for x in compared:
        ratios = [f"**{r:.2f}**" if r > 1 else f"{r:.2f}" for r in x.ratios]
        cells = [_both(show(x.ours), show(x.triton.figures)) for _, show in _COLUMNS]
        lines.append([x.name, *ratios, *cells, x.triton.figures.way])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _both(ours: str, triton: str) -> str:
    return ours if ours == triton else f"{ours} · {triton}"


# Rows that need more instructions than Triton's, by a part of their name, and why.
CAUSES: dict[str, str] = {
    "layer norm gradient": "the last programs of some columns add what all others have summed of "
    "them, where a program of Triton's keeps sums of its rows and a second launch adds those",
    "product": "of plans the one of the fewest estimated cycles is taken, not that of the fewest "
    "instructions: shallower tiles or smaller ones of more waves, which wait for less",
}
_SPREAD = (
    "more and smaller programs, so that the busiest SIMD has less to do than with any of Triton's"
)


def _cause(x: Compared) -> str:
    if max(x.busiest_ratio, x.cycles_ratio) <= 1:
        return _SPREAD
    return next((why for part, why in CAUSES.items() if part in f"{x.name} {x.target}"), "")


def page(compared: Sequence[Compared]) -> str:
    """docs/amd_code.md."""
    parts = [_HEAD]
    for target in dict.fromkeys(x.target for x in compared):
        mine = [x for x in compared if x.target == target]
        counts = [_summary(ratios) for ratios in zip(*(x.ratios for x in mine))]
        parts.append(
            f"## {target}\n\nOf {len(mine)} rows {counts[0]} in all instructions, {counts[1]} in "
            f"those of the busiest SIMD, and {counts[2]} in estimated cycles.\n\n{table(mine)}\n"
        )
    parts.append("## Rows that are behind\n\n" + "\n".join(_behind(compared)) + "\n")
    there = {(x.name, x.target) for x in compared}
    absent = [f"{r.name} on {t}" for t in TARGETS for r in rows() if (r.name, t) not in there]
    if absent:
        parts.append(f"Not measured yet: {'; '.join(absent)}.")
    return "\n".join(parts) + "\n"


def _summary(ratios: Sequence[float]) -> str:
    ahead = sum(r <= 1 for r in ratios)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{ahead} are at Triton's best or ahead of it (geometric mean of the ratios {mean:.2f})"


def _behind(compared: Sequence[Compared]) -> Iterator[str]:
    """A line for each cause, with the rows that have it."""
    found: dict[str, list[str]] = {}
    for x in compared:
        if max(x.ratios) > 1:
            row = f"{x.name} on {x.target} ({', '.join(f'{r:.2f}' for r in x.ratios)})"
            found.setdefault(_cause(x), []).append(row)
    for cause, names in found.items():
        yield f"- {cause or 'no cause found yet'}: {'; '.join(names)}."


_HEAD = """# Code for AMD GPUs beside Triton's

Machine code of amdjax and of Triton for the same computations, run by the
[emulator](amd.md#the-emulator), which counts; results of both are compared with NumPy's. In each
cell stands our figure, then Triton's where it differs. *ratio*: our instructions of all waves for
one of Triton's. *busiest SIMD*: the same for the SIMD that has the most to do, where waves are
spread over the machine, beside the way of Triton's that is best in that. *cycles*: the same of the
cycles that [a model of the GPU](amd.md#estimated-time) estimates for the launches, beside the
better one of those two ways of Triton's; a third may take fewer. *matrix share*: MFMA or WMMA among
all vector instructions. *LDS conflicts*: cycles lost to bank conflicts.

Triton's kernels (`tools/triton_kernels.py`) know their sizes as constants, need no masks, and were
compiled in several block sizes and numbers of waves; what stands here is the one of fewest
instructions that spills no registers. That is often one of few large programs: counts are not
times. Programs of gradients include what the forward computation has to make for them. Made by
`python tools/compare_triton.py --write` with Triton 3.9.
"""


def _remembered(path: Path | None) -> dict[str, dict[str, Any]]:
    return json.loads(path.read_text()) if path and path.exists() else {}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; see the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    parser.add_argument(
        "--triton", type=Path, help="a file that keeps Triton's figures for other runs"
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    known = _remembered(options.triton)
    try:
        import triton
    except ImportError:
        parser.error("Triton is missing: pip install triton (it needs no GPU to compile)")
    compared = []
    for target, row in product(options.targets.split(","), rows()):
        if options.only not in row.name:
            continue
        key = f"{row.name} {target}"
        if key not in known:
            known[key] = best_of_triton(row, target)._asdict()
            known[key]["figures"] = asdict(known[key]["figures"])
            if options.triton:
                options.triton.write_text(json.dumps(known, indent=1))
        triton = Best(**known[key] | {"figures": Figures(**known[key]["figures"])})
        x = Compared(row.name, target, run_ours(row, target), triton)
        compared.append(x)
        print(*(f"{r:.2f}" for r in x.ratios), key, flush=True)
    print(page(compared))
    if options.write:
        PAGE.write_text(page(compared))


if __name__ == "__main__":
    main()
