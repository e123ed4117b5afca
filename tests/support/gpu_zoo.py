"""Kernels that between them use every tile op, for tests that only compile."""

from __future__ import annotations

from collections.abc import Callable

from amdjax import tile

DTYPES = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "u32", "i64", "u64", "bool")

Write = Callable[[tile.Builder], None]


def _elementwise(dtype: str) -> Write:
    def write(k: tile.Builder) -> None:
        x, y, n = k.param("x", dtype), k.param("y", dtype, "out"), k.param("n", "index", "size")
        start = k.program_id() * 2048
        lanes = (2048,)
        inside = k.iota(2048) + k.broadcast(start, lanes) < k.broadcast(k.size(n), lanes)
        v = k.load(x, start, lanes, mask=inside)
        v = k.op("xor", v, v) if dtype == "bool" else v * v
        k.store(y, start, v, mask=inside, streaming=True)

    return write


def _reductions(dtype: str) -> Write:
    def write(k: tile.Builder) -> None:
        x, y, n = k.param("x", dtype), k.param("y", dtype, "out"), k.param("n", "index", "size")
        lanes = (1024,)
        combine = "or" if dtype == "bool" else "add"
        (total,) = k.for_(
            0, k.size(n), 1024,
            lambda i, v: k.op(combine, v, k.load(x, i, lanes)), [k.const(dtype, 0, lanes)],
        )  # fmt: skip
        k.store(y, 0, k.reduce(combine, total))
        k.store(y, 1, k.reduce("max", total))
        k.store(y, 2, k.cumulative(combine, total))
        k.store(y, 2, k.cumulative(combine, total, reverse=True))

    return write


def _moves(dtype: str) -> Write:
    def write(k: tile.Builder) -> None:
        x, y, n = k.param("x", dtype), k.param("y", dtype, "out"), k.param("n", "index", "size")
        square = k.load(x, 0, (16, 64), (k.size(n), 1))
        k.store(y, 0, k.transpose(square))
        k.store(y, 0, k.reduce("max", square, 1))
        row = k.reduce("max", square, 0)
        k.store(y, 0, k.broadcast(k.expand(row, 0), (16, 64)))
        k.store(y, 0, k.broadcast(k.expand(k.extract(square, 3), 1), (64, 8)))
        k.store(y, 0, k.shuffle(row, [0, 2, 1, 3] * 16))
        k.store(y, 0, k.interleave(row, k.shuffle(row, range(64))))
        k.store(y, 0, k.extract(row, 40))
        kept = row if dtype == "bool" else row < k.const(dtype, 1, (64,))
        k.store(y, 0, k.compress(row, kept))
        where = k.iota(64) * 3
        k.store_at(y, where, k.load_at(x, where))
        scratch = k.scratch("s", dtype, 64)
        k.store(scratch, 0, row)
        k.store(y, 9, k.load(scratch, 63, (64,), (-1,)))

    return write


def _products(k: tile.Builder) -> None:
    a, b, y = k.param("a", "f32"), k.param("b", "i32"), k.param("y", "f32", "out")
    z = k.param("z", "i32", "inout")
    x = k.load(a, 0, (16, 32))
    k.store(y, 0, k.dot(x, k.load(a, 512, (32, 16)), k.load(y, 0, (16, 16))))
    words = k.load(b, 0, (256,))
    k.store(z, 8, k.dot_words(("u8", "i8"), words, words, words))
    k.atomic("add", y, k.const("index", 0), k.load(a, 0))
    k.store(y, 1, k.atomic("max", z, k.const("index", 0), k.load(b, 0)))
    k.atomic("add", y, k.iota(256), k.load(a, 0, (256,)))


def _math(k: tile.Builder) -> None:
    for dtype in ("f32", "f64"):
        x, y = k.param(f"x_{dtype}", dtype), k.param(f"y_{dtype}", dtype, "out")
        v = k.load(x, 0, (64,))
        for name in ("exp", "log", "sin", "tanh", "sqrt", "erf", "round_even", "log1p", "cbrt"):
            v = k.op(name, v)
        k.store(y, 0, k.op("atan2", k.op("pow", v, v), k.op("rem", v, v)))


KERNELS: dict[str, Write] = {
    **{f"elementwise_{d}": _elementwise(d) for d in DTYPES},
    **{f"reductions_{d}": _reductions(d) for d in DTYPES},
    **{f"moves_{d}": _moves(d) for d in DTYPES},
    "products": _products,
    "math": _math,
}


def build(name: str, workgroup: int = 0, vector: int = 1) -> tile.Kernel:
    """A kernel of the zoo."""
    k = tile.Builder(name)
    k.schedule.workgroup, k.schedule.vector = workgroup, vector
    KERNELS[name](k)
    return k.finish(4)
