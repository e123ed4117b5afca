"""The command `perf`: runs under a clock, as a whole, by layers, by sizes of the batch."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax.core.pytree import tree_leaves
from amdjax.driver.building import FOREVER, tune_steps
from amdjax.driver.compiling import device_of
from amdjax.driver.errors import Failed
from amdjax.driver.inputs import arguments, shapes
from amdjax.driver.output import Answer, Table, in_bytes, in_time, progress
from amdjax.driver.precision import Runnable, batch_of, runnable, with_batch
from amdjax.driver.reading import Subject, read_model
from amdjax.driver.steps import Layer, layers, merged
from amdjax.jit.report import fusions

RUNS = 100
SECONDS = 10.0  # after which no more runs begin where no number is given
PARTS = 20  # runs of which layers are timed
ROWS = 20  # of the table of layers, unless all are asked for


def perf(options: argparse.Namespace) -> Answer:
    """How long a model takes."""
    subject = read_model(options)
    sizes = shapes(subject, options)
    with device_of(options) as device:
        model = runnable(subject, options)
        if options.best_batch:
            return _best_batch(subject, options, model, sizes, device)
        given = {n: jnp.asarray(x) for n, x in arguments(subject, options, sizes).items()}
        if options.exhaustive_tune:
            tune_steps(model, given, device, FOREVER, exhaustive=True, quiet=True)
        start = time.perf_counter()
        _wait(model.call(**given))
        first = time.perf_counter() - start
        count = options.iterations
        with progress("timing", count or RUNS) as step:
            times = timed(lambda: model.call(**given), count or RUNS, count is None, step)
        batch = batch_of(subject, given)
        data: dict[str, Any] = {
            "file": str(subject.path), "device": str(device), "precision": model.precision,
            "batch": batch, "first": first, **statistics_of(times, batch),
        }  # fmt: skip
        rows = [
            ["first call, compiling included", in_time(first)],
            *([name, in_time(data[name])] for name in ("mean", "median", "p99", "least")),
            ["examples a second", f"{data['throughput']:.4g}"],
        ]
        title = f"{subject.name} on {device}, batch {batch}, {len(times)} runs"
        shown: list[str | Table] = [Table(("", "time"), rows, title)]
        data, more = _by_layers(model, given, options, data)
    if options.trace:
        _write_trace(Path(options.trace), data, times)
        more.append(f"written to {options.trace}; ui.perfetto.dev opens it")
    return Answer(data, [*shown, "", *more])


def _wait(made: Any) -> None:
    for x in tree_leaves(made):
        amdjax.block_until_ready(x)


def timed(
    run: Callable[[], Any], count: int, is_limited: bool, step: Callable[[str], None]
) -> list[float]:
    """Seconds of runs."""
    times: list[float] = []
    last = time.perf_counter() + SECONDS
    while len(times) < count and not (is_limited and times and time.perf_counter() > last):
        start = time.perf_counter()
        _wait(run())
        times.append(time.perf_counter() - start)
        step(in_time(times[-1]))
    return times


def statistics_of(times: Sequence[float], batch: int) -> dict[str, Any]:
    """What is said of times."""
    mean, median = float(np.mean(times)), float(np.median(times))
    return {
        "runs": len(times), "mean": mean, "median": median, "least": min(times),
        "p99": float(np.percentile(times, 99)), "throughput": batch / median,
    }  # fmt: skip


# By layers


def _by_layers(
    model: Runnable, given: Mapping[str, Any], options: argparse.Namespace, data: dict[str, Any]
) -> tuple[dict[str, Any], list[str | Table]]:
    try:
        lowered, before = model.lower(**given)
    except ValueError as e:  # of sizes that depend on values: it runs node by node
        return data, [f"layers are not timed: {e}"]
    compiled = lowered.compile()
    if not hasattr(compiled.executable, "starts"):
        return _counted(compiled, before, given, data)
    # late: loads with what runs on the CPU
    from amdjax.jit.cpu.timing import timed as timed_parts

    arrays = compiled._arrays(before, dict(given))
    runs = min(options.iterations or PARTS, PARTS)
    with progress("timing layers", runs) as step:
        found = timed_parts(compiled.executable, arrays, runs, lambda: step(""))
    known = layers(fusions(compiled.stages)[0])
    total = sum(t.median for t in found) or 1.0
    rows: list[dict[str, Any]] = []
    for part in found:
        layer = merged([known[s] for s in part.steps])
        rows.append({
            "nodes": list(layer.nodes), "operations": list(layer.operations),
            "kernels": list(part.launches), "median": part.median,
            "least": min(part.seconds), "share": part.median / total,
        })  # fmt: skip
    ordered = sorted(rows, key=lambda r: -r["median"])
    shown = ordered if options.detailed else ordered[:ROWS]
    table = Table(
        ("layer", "operations", "kernels", "median", "share"),
        [
            [
                _cut(_shown_name(r), options.detailed),
                _cut(", ".join(r["operations"]), options.detailed),
                " ".join(dict.fromkeys(r["kernels"])), in_time(r["median"]), f"{r['share']:.1%}",
            ]
            for r in shown
        ],
        f"{len(rows)} layers, each timed alone: {in_time(total)} together",
    )  # fmt: skip
    rest = len(ordered) - len(shown)
    more = [f"{rest} more layers: --detailed"] if rest else []
    return {**data, "layers": rows}, [table, *more]


def _shown_name(row: Mapping[str, Any]) -> str:
    """The nodes of a layer; programs from files do not tell theirs."""
    return Layer(tuple(row["nodes"]), ()).name or ("-" if row["operations"] else "results")


def _cut(text: str, is_whole: bool) -> str:
    return text if is_whole or len(text) <= 48 else text[:47] + "…"


def _counted(
    compiled: Any, before: Any, given: Mapping[str, Any], data: dict[str, Any]
) -> tuple[dict[str, Any], list[str | Table]]:
    """What an emulated GPU counts; nothing on others, whose kernels are not timed apart."""
    target = compiled.executable.target
    if not target.is_amdgpu or not str(data["device"]).startswith("emulated"):
        return data, ["layers are timed on CPUs, and counted on emulated GPUs"]
    profile = compiled.profile(*before, **given)
    rows = [
        {
            "kernel": c.kernel, "instructions": c.instructions, "read": c.bytes_read,
            "written": c.bytes_written,
        }
        for c in profile
    ]  # fmt: skip
    cells = [
        [r["kernel"], str(r["instructions"]), in_bytes(r["read"]), in_bytes(r["written"])]
        for r in rows
    ]
    headings = ("kernel", "instructions", "read", "written")
    table = Table(headings, cells, "what the emulator counts")
    note = "times above are those of the emulator, not of such a GPU"
    return {**data, "launches": rows}, [table, note]


def _write_trace(path: Path, data: Mapping[str, Any], times: Sequence[float]) -> None:
    """Write runs, and the layers of one of them, as Chrome's and Perfetto's viewers read them."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}
        for tid, name in ((1, "runs"), (2, "layers of a run, each timed alone"))
    ]
    at = 0.0
    for n, seconds in enumerate(times):
        events.append(_event(f"run {n}", 1, at, seconds, {}))
        at += seconds
    at = 0.0
    for row in data.get("layers", []):
        name = ", ".join(row["nodes"] or row["operations"] or row["kernels"]) or "results"
        details = {k: " ".join(row[k]) for k in ("operations", "kernels")}
        events.append(_event(name, 2, at, row["median"], details))
        at += row["median"]
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": events})
    path.write_text(text, encoding="utf-8")


def _event(name: str, tid: int, at: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": at * 1e6, "dur": seconds * 1e6,
            "args": args}  # fmt: skip


# By sizes of the batch


def _best_batch(
    subject: Subject, options: argparse.Namespace, model: Runnable, sizes: Any, device: Any
) -> Answer:
    """The batch with the best throughput, of those whose latency is within a limit."""
    limit = options.max_latency
    rows: dict[int, dict[str, Any]] = {}
    runs = options.iterations or 15

    def measure(batch: int) -> dict[str, Any]:
        if batch not in rows:
            given = arguments(subject, options, with_batch(subject, sizes, batch))
            given = {n: jnp.asarray(x) for n, x in given.items()}
            _wait(model.call(**given))
            found = statistics_of(
                timed(lambda: model.call(**given), runs, True, lambda t: None), batch
            )
            rows[batch] = {"batch": batch, **found}
            step(f"batch {batch}: {in_time(found['median'])}")
        return rows[batch]

    with progress("batches", 16) as step:
        search(measure, limit)
    within = [r for r in rows.values() if limit is None or r["p99"] <= limit]
    if not within:
        fastest = min(r["p99"] for r in rows.values())
        raise Failed(f"no batch is within {in_time(limit)}: a batch of 1 takes {in_time(fastest)}")
    best = best_of(within)
    ordered = [rows[b] for b in sorted(rows)]
    cells = [
        [
            str(r["batch"]), in_time(r["median"]), in_time(r["p99"]), f"{r['throughput']:.4g}",
            "best" if r is best else "" if r in within else "too slow",
        ]
        for r in ordered
    ]  # fmt: skip
    headings = ("batch", "median", "p99", "examples a second", "")
    data = {
        "file": str(subject.path), "device": str(device), "precision": model.precision,
        "max_latency": limit, "best": best, "batches": ordered,
    }  # fmt: skip
    said = f"best batch: {best['batch']}, {best['throughput']:.4g} examples a second"
    return Answer(data, [Table(headings, cells), said])


def best_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The smallest batch of those that are within a hundredth of the best throughput."""
    most = max(r["throughput"] for r in rows)
    return min((r for r in rows if r["throughput"] >= 0.99 * most), key=lambda r: r["batch"])


GAIN = 1.02  # of throughput, by which a larger batch is worth a look at one larger still
LARGEST = 1 << 14


def search(measure: Callable[[int], Mapping[str, Any]], limit: float | None) -> None:
    """Measure batches: powers of two while they pay, then between the best one and its neighbors.

    Args:
      measure: of a batch its `throughput` and `p99`.
      limit: seconds that p99 must not exceed.
    """
    is_slow = lambda found: limit is not None and found["p99"] > limit
    seen: dict[int, Mapping[str, Any]] = {}
    batch, falls = 1, 0
    while batch <= LARGEST and falls < 2:
        best = max((s["throughput"] for s in seen.values()), default=0.0)
        seen[batch] = measure(batch)
        if is_slow(seen[batch]):
            break
        falls = falls + 1 if seen[batch]["throughput"] < GAIN * best else 0
        batch *= 2
    good = [b for b, s in seen.items() if not is_slow(s)]
    if not good:
        return
    low = max(good, key=lambda b: seen[b]["throughput"])
    high = min((b for b in seen if b > low), default=low)
    if low == max(good) and high > low:  # the limit is what stops it
        while high - low > max(1, low // 8):
            between = (low + high) // 2
            if is_slow(measure(between)):
                high = between
            else:
                low = between
        return
    for between in {low * 3 // 4, low * 3 // 2} - {0, low, *seen}:
        measure(between)
