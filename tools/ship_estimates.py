"""Estimates that come with the package, for GPUs that are not here.

    python tools/ship_estimates.py [--targets gfx942 gfx1100] [--only TEXT] [--list] [--write]
    python tools/ship_estimates.py --again [--targets gfx942 gfx1100 gfx90a]

Products and convolutions of ResNet-50, MobileNet-v2, GPT-2 small and LSTMs, forward and backward,
are searched by `amdjax.find` with `model=True`: plans run on the emulator, long launches in a
sample of their workgroups, and what it counts is weighed by `find/model.py`. Each is searched
without what is fused behind it, so that it serves whatever that is. Results are kept in
`ship_estimates.db` of the current folder: a run that was interrupted goes on. `--write` puts what
is known by this version of the code generator into `amdjax/find/estimates`: of each problem for
which another plan than the usual one is faster by estimate, both. Raise `shipped.VERSION` then.
`--again` searches nothing: it runs what the package has, and what is usual by now, and keeps what
is still faster, which takes minutes where a search takes an hour.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import amdjax
from amdjax import rnn
from amdjax.core import dtypes
from amdjax.core.config import config
from amdjax.find.database import Database, Known
from amdjax.find.lines import line_of, read_lines
from amdjax.find.machines import machine_key, machine_named, version
from amdjax.find.problem import Problem, equation_of, is_independent, problem_of, steps
from amdjax.find.session import Session
from amdjax.find.shipped import VERSION
from amdjax.find.solutions import search
from amdjax.jit.finding import ESTIMATES, estimates_of
from amdjax.jit.refs import without_refs
from benchmarks import gpt, vision
from benchmarks.lib import JaxLike

KINDS = ("product", "convolution")
LARGEST = 1 << 25  # elements of an array: the CPU's results in float64 would take too long
GAIN = 0.97  # of the usual plan's time: what is nearer is no news
LIB = JaxLike("amdjax")
GPT2_SMALL = gpt.Config(layers=1, heads=12, width=768, vocabulary=50257, time=1024, batch=4)
LSTMS = ((128, 64, 512), (100, 32, 256))  # steps, batch, features in and out

Function = Callable[..., Any]


def resnet50(o: Any, x: Any) -> Any:
    """He et al., 2015, with the stride in the 3×3 convolutions."""
    x = o.max_pool(o.unit(x, 64, 7, 2), 3, 2, 1)
    for width, count, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            stride = first_stride if i == 0 else 1
            y = o.unit(o.unit(o.unit(x, width, 1), width, 3, stride), 4 * width, 1, act="none")
            x = o.add(y, x if i else o.unit(x, 4 * width, 1, stride, "none"))
    return o.head(x, 1000)


def networks() -> Iterator[tuple[str, Function, Any]]:
    """Names, functions, and arrays of the shapes and dtypes of their arguments."""
    rng = np.random.default_rng(0)
    for name, network in (("ResNet-50", resnet50), ("MobileNet-v2", vision.mobilenet_v2)):
        arguments = vision._model(network, 8, 224, 0, rng, False)
        step = LIB.value_and_grad(partial(vision._loss, network, LIB))
        yield f"{name} f32", step, arguments
        yield f"{name} bf16", step, _bfloat16(arguments)
    arguments = _gpt2(rng)
    step = LIB.value_and_grad(partial(gpt._loss, LIB))
    yield "GPT-2 f32", step, arguments
    yield "GPT-2 bf16", step, _bfloat16(arguments)
    for shape in LSTMS:
        step = amdjax.grad(lambda w, x: rnn.lstm(rnn.Weights(*w), x)[0].sum(), (0, 1))
        yield f"LSTM {shape} f32", step, _lstm(shape)


def _gpt2(rng: np.random.Generator) -> Any:
    full, gpt.FULL = gpt.FULL, GPT2_SMALL
    try:
        return gpt._model(rng, False)
    finally:
        gpt.FULL = full


def _lstm(shape: tuple[int, int, int]) -> Any:
    time, batch, n = shape
    zeros = partial(np.zeros, dtype=np.float32)
    return tuple(map(zeros, ((n, 4 * n), (n, 4 * n), 4 * n, 4 * n))), zeros((time, batch, n))


def _bfloat16(tree: Any) -> Any:
    def short(x: np.ndarray) -> np.ndarray:
        return x.astype(dtypes.bfloat16) if x.dtype == np.float32 else x

    return amdjax.tree.map(short, tree)


def problems(function: Function, arguments: Any, machine: Any) -> list[Problem]:
    """Products and convolutions of a function, without what is fused behind them."""
    described = amdjax.tree.map(lambda x: amdjax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
    traced = amdjax.jit(function).trace(*described)
    closed, _, _ = without_refs(traced.jaxpr, traced.donated)
    found = (equation_of(s) or problem_of(s) for s in steps(closed, machine) if is_independent(s))
    return [p for p in dict.fromkeys(found) if p.kind in KINDS and _largest(p) <= LARGEST]


def _largest(problem: Problem) -> int:
    return max(a.size for a in (*problem.closed.in_avals, *problem.closed.out_avals))


def search_all(targets: list[str], only: str, budget: float, listing: bool) -> None:
    """Search what is not known."""
    for name, function, arguments in networks():
        for target in targets:
            if only not in name:
                continue
            machine = machine_named(target)
            found = problems(function, arguments, machine)
            print(f"{name} on {target}: {len(found)} problems", flush=True)
            for problem in () if listing else found:
                start = time.monotonic()
                try:
                    usual, *others = search(
                        problem, machine, model=True, deadline=start + budget
                    )  # fmt: skip
                except ValueError as e:
                    print(f"  not searched: {e}")
                    continue
                seconds = [r.seconds for r in (usual, *others) if r.status == "right"]
                share = min(seconds, default=0.0) / (usual.seconds or 1)
                taken = f"{len(others) + 1} plans, {time.monotonic() - start:5.1f} s"
                print(f"  {share:4.0%} of the usual plan's time, {taken}: {problem}"[:150])


def write(targets: list[str]) -> None:
    """Put what is known of this version where the package has it."""
    ESTIMATES.mkdir(exist_ok=True)
    database = Database("ship_estimates.db")
    for target in targets:
        machine, lines = machine_named(target), list[str]()
        key = machine_key(machine)
        for problem in dict.fromkeys(p for p, m, v, _ in database.rows() if m == key):
            known = database.results(problem, key, version())
            usual = Session(problem, machine, True).usual
            right = [r for r in known if r.status == "right"]
            first = next((r for r in right if r.decisions == usual), None)
            if first is None or right[0].seconds >= GAIN * first.seconds:
                continue  # of another version, or what is taken anyway
            for r in (right[0], first):
                rounded = replace(r, seconds=float(f"{r.seconds:.3g}"))
                lines.append(line_of(Known(problem, key, VERSION, rounded)))
        estimates_of(target).write_text("".join(f"{x}\n" for x in lines), "utf-8")
        print(f"{target}: {len(lines)} lines")


def again(target: str) -> None:
    """Count what the package has of a target anew, and keep what is still faster than usual."""
    machine, path = machine_named(target), estimates_of(target)
    key, lines = machine_key(machine), list[str]()
    known = {k.problem: k.result for k in reversed(list(read_lines(path)))}  # the best is first
    for problem, best in known.items():
        session = Session(problem, machine, True)
        results = [session.measure(d) for d in (best.decisions, session.usual)]
        right = all(r.status == "right" for r in results)
        if right and results[0].seconds < GAIN * results[1].seconds:
            rounded = (replace(r, seconds=float(f"{r.seconds:.3g}")) for r in results)
            lines += [line_of(Known(problem, key, VERSION, r)) for r in rounded]
    path.write_text("".join(f"{x}\n" for x in lines), "utf-8")
    print(f"{target}: {len(lines) // 2} of {len(known)} problems", flush=True)


def main() -> None:
    """Search, and write what is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=["gfx942", "gfx1100"])
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds a problem")
    parser.add_argument("--list", action="store_true", help="count problems")
    parser.add_argument("--write", action="store_true", help="write the package's files, no search")
    parser.add_argument("--again", action="store_true", help="count what the package has anew")
    options = parser.parse_args()
    config.update("db_path", "ship_estimates.db")
    config.update("find_mode", "off")
    if options.again:
        for target in options.targets:
            again(target)
    elif options.write:
        write(options.targets)
    else:
        search_all(options.targets, options.only, options.budget, options.list)


if __name__ == "__main__":
    main()
