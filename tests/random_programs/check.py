"""Runs one program in many ways and compares: eager, jitted, vmapped, differentiated, remade."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .libraries import Traced
from .program import Program, Type, run
from .reference import Reference, Unfit, epsilon, is_inexact, wide

#: Ways of running a program; see `modes`.
MODES = ("eager", "jit", "checkpoint", "vmap", "symbolic", "linearize", "derivative")


def some_modes(seed: int) -> list[str]:
    """Jitting, and two further ways by turns: each program is compiled for each of them."""
    others = [m for m in MODES if m != "jit"]
    return ["jit", others[seed % len(others)], others[(seed // len(others)) % len(others)]]


class Mismatch(AssertionError):
    """Results that differ by more than rounding."""


def reference_results(program: Program, inputs: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Results of NumPy: exact ones first, then perturbed ones, which say what rounding may do."""
    wides = [x.astype(wide(t.dtype)) for x, t in zip(inputs, program.inputs)]
    with np.errstate(all="ignore"):
        return [run(program, Reference(seed), wides) for seed in (None, 1, 2, 3)]


def compare(name: str, got: Any, t: Type, wanted: Sequence[np.ndarray]) -> None:
    """`got` against exact and perturbed results of the reference."""
    got = np.asarray(got)
    exact = wanted[0]
    if got.shape != t.shape or got.dtype != np.dtype(t.dtype):
        raise Mismatch(f"{name}: {got.dtype}{list(got.shape)} in place of {t}")
    if not is_inexact(t.dtype):
        if not np.array_equal(got, exact):
            raise Mismatch(f"{name}: {_first_difference(got, exact)}")
        return
    spread = max(np.abs(x - exact).max(initial=0.0) for x in wanted[1:])
    scale = np.abs(exact).max(initial=0.0) + 1.0
    bound = 20 * spread + 60 * epsilon(t.dtype) * scale
    error = np.abs(got.astype(exact.dtype) - exact)
    if not np.all(error <= bound):
        raise Mismatch(f"{name}: {_first_difference(got, exact, bound)}")


def _first_difference(got: np.ndarray, want: np.ndarray, bound: float = 0.0) -> str:
    wrong = ~(np.abs(got.astype(want.dtype) - want) <= bound) if bound else got != want
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (f"{int(np.sum(wrong))} of {got.size} differ, first at {where}: {got[where]} "
            f"in place of {want[where]}, allowed {bound:.2g}")  # fmt: skip


def modes(library: Traced, program: Program) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Ways to compute the program's results."""

    def f(*xs: Any) -> Any:
        return run(program, library, xs)

    m = library.module
    yield "eager", lambda *xs: f(*map(library.np.asarray, xs))
    yield "jit", m.jit(f)
    yield "checkpoint", m.jit(m.checkpoint(f))

    def batched(*xs: Any) -> Any:
        return [_outlier(np.asarray(x)) for x in m.jit(m.vmap(f))(*(np.stack([x] * 3) for x in xs))]

    yield "vmap", batched

    def of_many_sizes(*xs: Any) -> Any:
        symbolic = m.jit(m.vmap(f), symbolic="n, ...")
        batches = [symbolic(*(np.stack([x] * n) for x in xs)) for n in (3, 17, 1, 2)]
        return [_outlier(np.concatenate(members)) for members in zip(*batches)]

    if m.__name__ == "amdjax":
        yield "symbolic", of_many_sizes
    yield "linearize", lambda *xs: m.linearize(f, *map(library.np.asarray, xs))[0]


def _outlier(members: np.ndarray) -> np.ndarray:
    """Of members of a batch that should be equal up to rounding, the one farthest from the first.

    Scattered sums on GPUs are added in any order.
    """
    wide_members = members.astype(np.complex128)
    away = [np.abs(m - wide_members[0]).sum() for m in wide_members]
    return members[int(np.argmax(away))]


def check(
    program: Program,
    inputs: Sequence[np.ndarray],
    library: Traced,
    only: Sequence[str] | None = None,
) -> None:
    """All ways of computing a program, or `only` some, against the reference; its derivative too.

    Raises:
        Mismatch: results differ.
    """
    wanted = list(zip(*reference_results(program, inputs)))
    for name, compute in modes(library, program):
        if only is not None and name not in only:
            continue
        got = compute(*inputs)
        for i, (g, t, w) in enumerate(zip(got, program.output_types, wanted, strict=True)):
            compare(f"{name}, output {i}", g, t, w)
    if only is None or "derivative" in only:
        check_derivative(program, inputs, library)


def check_derivative(program: Program, inputs: Sequence[np.ndarray], library: Traced) -> None:
    """Forward and reverse mode along one direction, eager and jitted, against each other.

    Both are compared with the slope of the reference where it is smooth.
    """
    floats = [i for i, t in enumerate(program.inputs) if t.dtype == "float32" and t.size]
    outs = [i for i, t in zip(program.outputs, program.output_types) if t.dtype == "float32"]
    if not floats or not outs or "while_loop" in program.names():
        return
    numbers = np.random.default_rng(0)
    part = Program(program.inputs, program.steps, tuple(outs))
    m, jnp = library.module, library.np
    weights = [numbers.standard_normal(t.shape).astype("f") for t in part.output_types]
    directions = [numbers.standard_normal(program.inputs[i].shape).astype("f") for i in floats]
    points = [inputs[i] for i in floats]

    def f(*xs: Any) -> Any:
        given = list(map(jnp.asarray, inputs))
        for i, x in zip(floats, xs):
            given[i] = x
        return sum((w * y).sum() for w, y in zip(weights, run(part, library, given)))

    every = tuple(range(len(floats)))
    back = m.jit(m.grad(f, argnums=every))(*points)
    eager = m.grad(f, argnums=every)(*map(jnp.asarray, points))
    terms = [np.asarray(g, np.float64) * d for g, d in zip(back, directions)]
    others = [np.asarray(g, np.float64) * d for g, d in zip(eager, directions)]
    scale = 1 + sum(np.abs(t).sum() for t in terms)
    values = {"jit(grad)": sum(t.sum() for t in terms), "grad": sum(t.sum() for t in others)}
    if "custom_vjp" not in program.names():
        values["jvp"] = float(m.jvp(f, points, directions)[1])
    slopes = _slopes(part, inputs, floats, directions, weights)
    bound = 200 * max(map(epsilon, NARROW & program.dtypes() | {"float32"})) * scale
    if slopes is not None:
        values["differences"] = slopes[0]
        bound += 20 * max(abs(s - slopes[0]) for s in slopes)
    low, high = min(values.values()), max(values.values())
    if not high - low <= bound:
        raise Mismatch(f"derivative: {values}, allowed {bound:.2g}")


NARROW = {"float16", "bfloat16"}


def _slopes(
    program: Program, inputs: Any, floats: Any, directions: Any, weights: Any
) -> list[float] | None:
    """The reference's slope along the directions, exact and perturbed; None at a kink."""
    if NARROW & program.dtypes() or program.names() & {"grad", "jvp", "jacobian", "hessian"}:
        return None  # conversions to narrow floats are stairs; differences of differences, noise
    wides = [x.astype(wide(t.dtype)) for x, t in zip(inputs, program.inputs)]

    def at(h: float, seed: int | None) -> float:
        given = list(wides)
        for i, d in zip(floats, directions):
            given[i] = given[i] + h * d
        with np.errstate(all="ignore"):
            made = run(program, Reference(seed), given)
        return float(sum(np.sum(w * y) for w, y in zip(weights, made)))

    step, found = 1e-6, []
    try:
        for seed in (None, 1, 2):
            far, here, back = at(step, seed), at(0.0, seed), at(-step, seed)
            sides = (far - here) / step, (here - back) / step
            if not abs(sides[0] - sides[1]) <= 1e-3 * (1 + abs(sides[0])):
                return None
            found.append((far - back) / (2 * step))
    except Unfit:
        return None
    return found


def shrink(program: Program, fails: Callable[[Program], bool], tries: int = 300) -> Program:
    """The smallest program found that still fails, by steps that keep it failing."""
    from .program import smaller, without_dead_steps

    program = without_dead_steps(program) if fails(without_dead_steps(program)) else program
    progress = True
    while progress and tries > 0:
        progress = False
        for candidate in smaller(program):
            tries -= 1
            if tries <= 0:
                break
            if fails(candidate):
                program, progress = candidate, True
                break
    return program
