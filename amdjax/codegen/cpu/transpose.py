"""Transposing matrices of numbers in vector registers, by shuffles."""

from __future__ import annotations

from amdjax.codegen import llvm
from amdjax.codegen.llvm import Function, Value


def transpose_rows(f: Function, rows: list[Value]) -> list[Value]:
    """Transpose a tile held as rows: R vectors of C lanes to C vectors of R lanes.

    Powers of two go through log2(R) rounds of interleaving, which are the shuffles vector units
    have; other shapes move single elements.
    """
    r, c = len(rows), rows[0].type.lanes
    if r == 1:
        one = rows[0].type.with_lanes(1)
        return [f.insert(llvm.undef(one), f.extract(rows[0], i), 0) for i in range(c)]
    if r & (r - 1) or r > c or c % r:
        out = []
        for j in range(c):
            column = llvm.undef(rows[0].type.with_lanes(r))
            for i in range(r):
                column = f.insert(column, f.extract(rows[i], j), i)
            out.append(column)
        return out
    if r < c:
        parts = []
        for start in range(0, c, r):
            part = [f.shuffle(row, None, range(start, start + r)) for row in rows]
            parts += transpose_rows(f, part)
        return parts
    width = 128 // rows[0].type.bits
    if 1 < width <= r:
        return _transpose_blocks(f, rows, width)
    # r == c: swap blocks of size 1, 2, 4, … between rows that far apart.
    distance = r // 2
    while distance:
        swapped = list(rows)
        for i in range(r):
            if i & distance:
                continue
            a, b = rows[i], rows[i + distance]
            low = [(j if not j & distance else c + j - distance) for j in range(c)]
            high = [(j + distance if not j & distance else c + j) for j in range(c)]
            swapped[i], swapped[i + distance] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        rows, distance = swapped, distance // 2
    return rows


def _transpose_blocks(f: Function, rows: list[Value], width: int) -> list[Value]:
    """Transpose a square tile, first within 128 bits (`width` lanes), then by such blocks.

    Vector units interleave within 128 bits, and pick whole such blocks, in one instruction each;
    the shuffles are written so, for LLVM takes long to find its way from others.
    """
    n = len(rows)
    blocks = [interleaved(f, rows[i : i + width], width) for i in range(0, n, width)]
    if rows[0].type.elem in ("float", "double"):
        # Costs nothing, and ends LLVM's search for one shuffle that does what two do.
        blocks = [[f.intrinsic("arithmetic.fence", x.type, x) for x in g] for g in blocks]
    columns = [_gathered(f, [g[j] for g in blocks], width) for j in range(width)]
    return [column[i] for i in range(n // width) for column in columns]


def interleaved(f: Function, rows: list[Value], width: int, run: int = 1) -> list[Value]:
    """Rows that hold, block by block of `width` lanes, one lane's elements of all given rows."""
    if len(rows) == 1:
        return rows
    lanes = rows[0].type.lanes

    def halves(a: Value, b: Value, half: int) -> Value:
        picked: list[int] = []
        for block in range(half, lanes, width):
            for start in range(block, block + width // 2, run):
                both = range(start, start + run), range(lanes + start, lanes + start + run)
                picked += [i for runs in both for i in runs]
        return f.shuffle(a, b, picked)

    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    low = [halves(a, b, 0) for a, b in pairs]
    high = [halves(a, b, width // 2) for a, b in pairs]
    return interleaved(f, low, width, 2 * run) + interleaved(f, high, width, 2 * run)


def _gathered(f: Function, rows: list[Value], width: int) -> list[Value]:
    """Transpose a square of blocks of `width` lanes: even blocks of pairs of rows, and odd ones."""
    if len(rows) == 1:
        return rows
    lanes = rows[0].type.lanes

    def every_other(a: Value, b: Value, first: int) -> Value:
        starts = range(first * width, 2 * lanes, 2 * width)
        return f.shuffle(a, b, [i for start in starts for i in range(start, start + width)])

    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    even, odd = (_gathered(f, [every_other(a, b, k) for a, b in pairs], width) for k in (0, 1))
    return [row for both in zip(even, odd, strict=True) for row in both]
