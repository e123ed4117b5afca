"""``python -m benchmarks.gpu_models``: whole networks on a GPU beside JAX and PyTorch.

Training steps and inference, products in bfloat16, parameters of training in float32. Each row has
a process of its own, in which all libraries take turns; calls are issued back to back and the last
is waited for. Losses of the first steps are compared before anything is timed. Noted besides are
the seconds of the first call and the memory that each library took. The table becomes a part of
``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import gpu_networks, report
from .gpu_networks import Drawing, Network
from .lib import JaxLike, Lib, Torch, leaves, load, map_leaves

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
MODES = ("training step", "inference")
#: Losses of so many steps are compared.
STEPS = 3

Run = Callable[[], Any]


def _adam(l: Any, step: Any, p: Any, g: Any, m: Any, v: Any) -> tuple:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    first, second = m / (1 - 0.9**step), v / (1 - 0.999**step)
    return p - 1e-3 * (first / (l.np.sqrt(second) + 1e-8) + 1e-2 * p), m, v


def _momentum(l: Any, step: Any, p: Any, g: Any, m: Any) -> tuple:
    m = 0.9 * m + g
    return p - 1e-2 * m, m


def _training(lib: JaxLike, network: Network) -> Run:
    ops = gpu_networks.Jax(lib)
    update, moments = (_adam, 2) if network.optimizer == "adam" else (_momentum, 1)
    params = network.params(Drawing())
    zeros = [map_leaves(np.zeros_like, params) for _ in range(moments)]
    state = lib.arrays([np.float32(1), params, *zeros])
    batch = lib.arrays(network.batch(np.random.default_rng(1)))

    def loss(params: Any, inputs: Any, targets: Any) -> Any:
        return network.loss(ops, network.forward(ops, params, inputs, True), targets)

    def step(state: list, inputs: Any, targets: Any) -> tuple:
        count, params, *moments = state
        value, grads = lib.value_and_grad(loss)(params, inputs, targets)
        flat, tree = lib.tree.flatten(params)
        parts = zip(flat, lib.tree.leaves(grads), *map(lib.tree.leaves, moments), strict=True)
        new = zip(*(update(lib, count, *part) for part in parts), strict=True)
        return value, [count + 1, *(lib.tree.unflatten(tree, list(part)) for part in new)]

    jitted = lib.jit(step, donate_argnums=0)

    def run() -> Any:
        nonlocal state
        value, state = jitted(state, *batch)
        return value

    return run


def _inference(lib: JaxLike, network: Network) -> Run:
    ops = gpu_networks.Jax(lib)
    params = map_leaves(ops.half, lib.arrays(network.params(Drawing())))
    inputs, _ = lib.arrays(network.batch(np.random.default_rng(1)))
    forward = lib.jit(lambda params, x: network.forward(ops, params, x, False))
    return lambda: forward(params, inputs)


def _kernel(t: Any, x: Any) -> Any:
    """HWIO to OIHW with channels last."""
    if x.ndim != 4:
        return x
    return x.permute(3, 2, 0, 1).contiguous(memory_format=t.channels_last)


def _torch_parts(lib: Torch, network: Network) -> tuple[Any, Any]:
    t = lib.torch
    params = map_leaves(lambda x: _kernel(t, x), lib.arrays(network.params(Drawing())))
    batch = [
        x.permute(0, 3, 1, 2) if x.ndim == 4 else x.long() if x.dtype == t.int32 else x
        for x in lib.arrays(network.batch(np.random.default_rng(1)))
    ]
    return params, batch


def _torch_training(lib: Torch, network: Network) -> Run:
    t, ops = lib.torch, gpu_networks.Torch(lib.torch)
    params, (inputs, targets) = _torch_parts(lib, network)
    flat = [p.requires_grad_() for p in leaves(params)]
    optimizer = (
        t.optim.AdamW(flat, 1e-3, (0.9, 0.999), 1e-8, 1e-2, fused=True)
        if network.optimizer == "adam"
        else t.optim.SGD(flat, 1e-2, 0.9, fused=True)
    )

    def loss(params: Any, inputs: Any, targets: Any) -> Any:
        with t.autocast(lib.device, t.bfloat16):
            return network.loss(ops, network.forward(ops, params, inputs, True), targets)

    compiled = lib.compile(loss)

    def run() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = compiled(params, inputs, targets)
        value.backward()
        optimizer.step()
        return value.detach()

    return run


def _torch_inference(lib: Torch, network: Network) -> Run:
    t, ops = lib.torch, gpu_networks.Torch(lib.torch)
    params, (inputs, _) = _torch_parts(lib, network)
    params = map_leaves(ops.half, params)

    def forward(params: Any, x: Any) -> Any:
        with t.autocast(lib.device, t.bfloat16):
            return network.forward(ops, params, x, False)

    compiled = lib.compile(forward)

    def run() -> Any:
        with t.no_grad():
            return compiled(params, inputs)

    return run


def prepare(lib: Lib, network: Network, mode: str) -> Run:
    """What is called in a loop: a training step that returns its loss, or inference."""
    if isinstance(lib, Torch):
        return (_torch_training if mode == MODES[0] else _torch_inference)(lib, network)
    return (_training if mode == MODES[0] else _inference)(lib, network)


def greatest_memory(lib: Lib) -> int:
    """Bytes in use at most; of amdjax what it took from the driver, which is no less."""
    if isinstance(lib, Torch):
        return int(lib.torch.cuda.max_memory_allocated()) if lib.device != "cpu" else 0
    stats = lib.module.devices(lib.device)[0].memory_stats() or {}
    return int(stats.get("peak_bytes_in_use", stats.get("bytes_reserved", 0)))


def _host(lib: Lib, result: Any) -> np.ndarray:
    if isinstance(lib, Torch):
        result = result.permute(0, 2, 3, 1) if result.ndim == 4 else result
        return result.detach().float().cpu().numpy()
    return np.asarray(result).astype(np.float32)


def _first_results(lib: Lib, run: Run, mode: str) -> tuple[np.ndarray, float]:
    """Losses of the first steps, or an inference; and the seconds of the first call."""
    start = time.perf_counter()
    result = _host(lib, run())
    seconds = time.perf_counter() - start
    if mode == MODES[0]:
        result = np.array([result, *(_host(lib, run()) for _ in range(STEPS - 1))])
    return result, seconds


def _difference(result: np.ndarray, reference: np.ndarray, mode: str) -> float:
    """Of losses the greatest relative one; of outputs the root mean square, beside the outputs'."""
    off = result.reshape(reference.shape) - reference
    if mode == MODES[0]:
        return float(np.abs(off / reference).max())
    return float(np.sqrt(np.square(off).mean() / np.square(reference).mean()))


def sample(lib: Lib, run: Run, calls: int) -> float:
    """Seconds of a call, many issued back to back."""
    lib.block(run())
    start = time.perf_counter()
    for _ in range(calls):
        result = run()
    lib.block(result)
    return (time.perf_counter() - start) / calls


def measure(
    network: Network,
    mode: str,
    names: list[str],
    rounds: int,
    budget: float,
    quick: bool,
    device: str,
) -> report.Row:
    """A row: samples of all libraries in turn, first calls, memory."""
    row: dict[str, Any] = {"name": f"{network.name}, {mode}", "samples": {}, "errors": {}}
    row |= {"first": {}, "memory": {}, "difference": {}}
    runs: dict[str, tuple[Lib, Run, int]] = {}
    reference: np.ndarray | None = None
    for name in sorted(names, key=lambda x: not x.startswith("torch")):  # PyTorch is the reference
        try:
            lib = load(name, quick, device)
            run = prepare(lib, network, mode)
            result, row["first"][name] = _first_results(lib, run, mode)
            reference = result if reference is None else reference
            off = row["difference"][name] = _difference(result, reference, mode)
            if not off <= network.tolerance:
                row["errors"][name] = f"results differ by {off:.1e}"
                continue
            row["memory"][name] = greatest_memory(lib)
            runs[name] = lib, run, max(3, int(budget / sample(lib, run, 3)))
        except Exception as error:
            row["errors"][name] = f"{type(error).__name__}: {error}"[:500]
    row["samples"] = {name: [] for name in runs}
    with _whole_device():
        for _ in range(rounds):
            for name, (lib, run, calls) in runs.items():
                row["samples"][name].append(sample(lib, run, calls))
    row["seconds"] = {name: statistics.median(times) for name, times in row["samples"].items()}
    return row


@contextmanager
def _whole_device() -> Iterator[None]:
    """While rows are prepared side by side only one is timed at a time."""
    with open(Path(tempfile.gettempdir()) / "amdjax-gpu-models.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def section(rows: list[report.Row], device: str) -> str:
    """The part of the page about networks."""
    libs = [x for x in report.LABELS if any(x in row["seconds"] for row in rows)]
    head = [
        "network",
        *(report.LABELS[x] for x in libs),
        "vs JAX",
        "vs PyTorch",
        "first call",
        "memory",
    ]
    lines = [
        "## Networks on a GPU, as PTX",
        "",
        "Products in bfloat16, parameters of training in float32; each library's usual way,",
        "attention and recurrent layers by cuDNN where it has them. Libraries in turns; medians.",
        "first call, memory: amdjax's and, as ratios, JAX's over amdjax's.",
        *_beside_others(max(row["jobs"] for row in rows)),
        "",
        f"- device: {device}",
        "",
        f"| {' | '.join(head)} |",
        f"|---|{'--:|' * (len(head) - 1)}",
    ]
    for row in rows:
        cells = [report.cell(row, lib) for lib in libs]
        cells += [report.ratio_text(report.speedup(row, x)) for x in ("jax", "torch")]
        cells += [
            _beside(row["first"], report.seconds_text),
            _beside(row["memory"], lambda n: f"{n / 1e9:.2f} GB"),
        ]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    errors = [(row["name"], *item) for row in rows for item in row["errors"].items()]
    lines += ["", *(f"- {name}, {report.LABELS[lib]}: {text}" for name, lib, text in errors)]
    return "\n".join(lines).strip() + "\n"


def _beside_others(jobs: int) -> list[str]:
    if jobs == 1:
        return []
    return [
        f"Up to {jobs} rows were prepared at a time beside the one that is timed: what the host",
        "bounds, as PyTorch's eager calls, and first calls take longer for that.",
    ]


def _beside(values: dict[str, float], text: Callable[[float], str]) -> str:
    if "amdjax" not in values:
        return "–"
    ratio = f" ({values['jax'] / values['amdjax']:.2f}×)" if "jax" in values else ""
    return text(values["amdjax"]) + ratio


def _rows_in_processes(args: argparse.Namespace) -> list[report.Row]:
    """Each row in its own process, `jobs` of them prepared side by side."""
    wanted = [
        f"{network.name}, {mode}" for network in gpu_networks.networks() for mode in MODES
        if args.only in f"{network.name}, {mode}"
    ]  # fmt: skip
    rows: list[report.Row] = []
    running: list[subprocess.Popen[str]] = []

    def collect() -> None:
        text, _ = running.pop(0).communicate()
        found = [line for line in text.splitlines() if line.startswith("{")]
        for line in found:
            row = json.loads(line)
            rows.append(row)
            times = "".join(f"{report.cell(row, lib):>12}" for lib in args.libs)
            print(
                f"{row['name']:<46}{times}", row["first"], row["memory"], row["errors"], flush=True
            )

    for name in wanted:
        if len(running) == args.jobs:
            collect()
        command = [sys.executable, "-m", "benchmarks.gpu_models", "--row", name, *sys.argv[1:]]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    while running:
        collect()
    return rows


def _single_row(args: argparse.Namespace) -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print disturb nothing
    for network in gpu_networks.networks(args.quick):
        for mode in MODES:
            if args.row.endswith(mode) and args.row.startswith(network.name):
                row = measure(
                    network, mode, args.libs, args.rounds, args.budget, args.quick, args.device
                )
                print(json.dumps(row | {"jobs": args.jobs}), file=answer, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of a sample")
    parser.add_argument("--libs", type=lambda x: x.split(","), default=list(report.LABELS))
    parser.add_argument("--jobs", type=int, default=1, help="rows prepared side by side")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu together with --quick")
    parser.add_argument("--quick", action="store_true", help="small networks")
    parser.add_argument("--json", type=Path, help="write all samples there")
    parser.add_argument(
        "--markdown", type=Path, help="the page to write into; its default is the project's"
    )
    parser.add_argument("--from", dest="files", type=Path, nargs="+", help="rows written before")
    parser.add_argument("--gpu", help="its name, for rows written before")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device != "cpu":
        os.environ.setdefault("AMDJAX_PLATFORMS", f"{args.device},cpu")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("AMDJAX_CACHE_DIR", "off")
    if args.row:
        return _single_row(args)
    rows = (
        [row for file in args.files for row in json.loads(file.read_text())]
        if args.files
        else _rows_in_processes(args)
    )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if not args.only and not args.quick:
        from .machine import gpu_model

        page = args.markdown or PAGE
        text = section(rows, args.gpu or gpu_model())
        page.write_text(report.with_section(page, report.NETWORKS_MARK, text), encoding="utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
