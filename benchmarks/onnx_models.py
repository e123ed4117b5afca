"""``python -m benchmarks.onnx_models``: models from ONNX files beside onnxruntime and PyTorch.

PyTorch exports networks with random weights (`benchmarks.networks`). Each row is a process in
which all run the same inputs in turns, with as many threads; their results are compared first.
Times until a program is ready are taken in processes of their own, without disk caches. The table
becomes the section "Models from files" of ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, report
from .lib import difference
from .worker import Sampler, short
from .workload import Prepared

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
NAMES = ("amdjax", "onnxruntime", "torch", "torch.compile")
LABELS = report.LABELS | {"onnxruntime": "onnxruntime"}
#: The greatest differences that pass, as fractions of the greatest magnitude: in bytes, libraries
#: scale by ranges of their own.
TOLERANCE = {"fp32": 2e-3, "int8": 0.3}

Run = Callable[[], Any]


def _session(model: Any, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait for the next call would take the cores of the others.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _onnxruntime(name: str, path: Path, feed: dict, int8: bool, threads: int) -> Run:
    if int8:
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Reader(quantization.CalibrationDataReader):
            left = iter(_calibration(name))

            def get_next(self):
                return next(self.left, None)

        prepared, small = path.with_suffix(".prepared.onnx"), path.with_suffix(".int8.onnx")
        if not small.exists():
            quant_pre_process(path, prepared, skip_symbolic_shape=True)
            narrow = not _has_vnni()  # else sums of two products would saturate
            quantization.quantize_static(
                prepared, small, Reader(), per_channel=True, reduce_range=narrow
            )
        path = small
    session = _session(path, threads)
    known = {i.name for i in session.get_inputs()}
    feed = {n: x for n, x in feed.items() if n in known}
    return lambda: session.run(None, feed)


def _has_vnni() -> bool:
    try:
        return "vnni" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def _calibration(name: str) -> list[dict]:
    from .networks import batches

    return batches(name, 4, 4)


def _amdjax(name: str, path: Path, feed: dict, int8: bool, threads: int) -> Run:
    import amdjax
    from amdjax import onnx

    model = onnx.load(path)
    order = [v.name for v in model.outputs]
    known = {v.name for v in model.inputs}
    feed = {n: x for n, x in feed.items() if n in known}
    if not int8:
        return lambda: list(map(amdjax.block_until_ready(model(**feed)).__getitem__, order))
    from amdjax import quantize

    data = [{n: x for n, x in batch.items() if n in known} for batch in _calibration(name)]
    with amdjax.enable_x64(True):
        small = quantize.quantize(model.function, model.params, data)
    # Weights are constants, as they are in a model that is called.
    compiled = amdjax.jit(lambda **inputs: small(small.params, **inputs))

    def run() -> list:
        with amdjax.enable_x64(True):
            made = amdjax.block_until_ready(compiled(**feed))
        return [made[n] for n in order]

    return run


def _torch(name: str, feed: dict, int8: bool, compiled: bool) -> Run:
    import warnings

    import torch

    from .networks import NETWORKS, build

    module, args = build(name), tuple(map(torch.from_numpy, feed.values()))
    if int8:
        warnings.simplefilter("ignore")
        from torch.ao import quantization

        if NETWORKS[name].int8 == "dynamic":
            module = quantization.quantize_dynamic(module, {torch.nn.Linear})
        else:
            from torch.ao.quantization import quantize_fx

            example = tuple(map(torch.from_numpy, _calibration(name)[0].values()))
            mapping = quantization.get_default_qconfig_mapping("x86")
            module = quantize_fx.prepare_fx(module, mapping, example)
            with torch.no_grad():
                for batch in _calibration(name):
                    module(*map(torch.from_numpy, batch.values()))
            module = quantize_fx.convert_fx(module)
    elif any(x.ndim == 4 and x.shape[1] == 3 for x in feed.values()):
        # What its users are told to do with images on CPUs.
        module = module.to(memory_format=torch.channels_last)
        args = tuple(x.to(memory_format=torch.channels_last) for x in args)
    if compiled:
        module = torch.compile(module)

    def run() -> Any:
        with torch.no_grad():
            return module(*args)

    return run


def prepare(lib: str, name: str, path: Path, feed: dict, int8: bool, threads: int) -> Run:
    if lib == "amdjax":
        return _amdjax(name, path, feed, int8, threads)
    if lib == "onnxruntime":
        return _onnxruntime(name, path, feed, int8, threads)
    return _torch(name, feed, int8, lib == "torch.compile")


class _Waiting:
    """What `Sampler` asks of a library: each call here returns results that are there."""

    def block(self, result: Any) -> None:
        pass


def _host(made: Any) -> list[np.ndarray]:
    made = made if isinstance(made, tuple | list) else [made]
    return [np.asarray(x) for x in made]


def measure_row(name: str, path: Path, batch: int, precision: str, options: dict) -> dict:
    """A row: samples of all libraries in turns; onnxruntime in float32 is the reference."""
    from .networks import batches

    (feed,), int8 = batches(name, batch, 1), precision == "int8"
    reference = _host(_onnxruntime(name, path, feed, False, options["threads"])())
    errors, samplers, off = {}, {}, {}
    clock = time.process_time if options["cpu_time"] else time.perf_counter
    for lib in options["libs"]:
        if int8 and lib == "torch.compile":
            continue
        try:
            run = prepare(lib, name, path, feed, int8, options["threads"])
            off[lib] = difference(_host(run()), reference)
            if off[lib] > TOLERANCE[precision]:
                errors[lib] = f"differs by {off[lib]:.1e} of the greatest magnitude"
                continue
            samplers[lib] = Sampler(_Waiting(), Prepared(run), options["target"], clock)
        except Exception as error:
            errors[lib] = short(error)
    start = time.perf_counter()
    for turn in range(options["rounds"]):
        for sampler in samplers.values():
            sampler.take()
        if turn >= 3 and time.perf_counter() - start > options["budget"]:
            break
    samples = {lib: sampler.samples for lib, sampler in samplers.items()}
    return {
        "name": name, "batch": batch, "precision": precision, "errors": errors, "off": off,
        "seconds": {lib: statistics.median(s) for lib, s in samples.items()},
        "least": {lib: min(s) for lib, s in samples.items()}, "samples": samples,
    }  # fmt: skip


def measure_start(lib: str, name: str, path: Path, threads: int) -> float:
    """Seconds until a program is ready for a batch of one, in this process, after imports."""
    from .networks import batches

    (feed,) = batches(name, 1, 1)
    if lib == "onnxruntime":
        import onnxruntime  # noqa: F401

        start = time.perf_counter()
        _session(path, threads)
        return time.perf_counter() - start
    import amdjax
    from amdjax import numpy as jnp

    # The library's own start (threads, device, first allocation) is not the compiler's time.
    amdjax.block_until_ready(amdjax.jit(lambda x: x + 1)(jnp.ones(4)))
    start = time.perf_counter()
    run = _amdjax(name, path, feed, False, threads)
    run()
    first = time.perf_counter() - start
    start = time.perf_counter()
    run()
    return first - (time.perf_counter() - start)


def _ask(args: list[str], env: dict[str, str], timeout: float) -> Any:
    """What a process of this module answers."""
    command = [sys.executable, "-m", "benchmarks.onnx_models", *args]
    made = subprocess.run(
        command, env=os.environ | env, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout
    )
    if made.returncode:
        raise RuntimeError(f"exited with {made.returncode}")
    return json.loads(made.stdout.splitlines()[-1])


def _environment(scratch: Path, threads: int) -> dict[str, str]:
    return {
        "AMDJAX_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "AMDJAX_CACHE_DIR": str(scratch / "amdjax"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
    }


def starts_of(name: str, path: Path, env: dict, options: dict) -> dict[str, float]:
    """Least seconds until ready: without a cache, of onnxruntime, and with what a run has left."""
    found: dict[str, list[float]] = {"amdjax": [], "onnxruntime": [], "again": []}
    for _ in range(options["starts"]):
        with tempfile.TemporaryDirectory() as empty:
            for what in found:
                request = {"start": what.replace("again", "amdjax"), "name": name} | options
                args = [json.dumps(request | {"path": str(path)})]
                found[what].append(_ask(args, env | {"AMDJAX_CACHE_DIR": empty}, 900))
    return {what: min(seconds) for what, seconds in found.items()}


def best_other(row: dict, seconds: str = "seconds") -> tuple[str, float] | None:
    others = {lib: t for lib, t in row[seconds].items() if lib != "amdjax"}
    return min(others.items(), key=lambda item: item[1]) if others else None


def ratio(row: dict, seconds: str = "seconds") -> float | None:
    """How many times faster amdjax is than the best of the others."""
    best, ours = best_other(row, seconds), row[seconds].get("amdjax")
    return best[1] / ours if best and ours else None


def line(row: dict) -> str:
    cells = "".join(f"{report.cell(row, lib):>12}" for lib in NAMES)
    name = f"{row['name']}, batch {row['batch']}, {row['precision']}"
    best = best_other(row)
    medians, least = (report.ratio_text(ratio(row, s)) for s in ("seconds", "least"))
    lines = [f"{name:<46}{cells}{medians:>8}{least:>8}  {LABELS[best[0]] if best else ''}"]
    lines += [f"    error: {LABELS[lib]}: {text}" for lib, text in row["errors"].items()]
    return "\n".join(lines)


def section(rows: list[dict], starts: dict[str, dict[str, float]], about: dict[str, str]) -> str:
    """The part of the page."""
    heads = " | ".join(LABELS[lib] for lib in NAMES)
    lines = [
        "## Models from files",
        "",
        "Written by `python -m benchmarks.onnx_models`: networks with random weights that",
        "PyTorch exports, with a symbolic batch; one run, libraries in turns, medians. A ratio",
        "above 1 means that amdjax is faster than the best of the others; the last column is that",
        "of the least times. int8: `amdjax.quantize`, onnxruntime's static quantization, and",
        "PyTorch's own, which is static for convolutions and dynamic for transformers.",
        "",
        *(f"- {label}: {text}" for label, text in about.items()),
        "",
        f"| model | batch | | {heads} | ratio | of least times |",
        "|---|--:|---|" + "--:|" * (len(NAMES) + 2),
    ]
    for row in rows:
        cells = " | ".join(report.cell(row, lib) for lib in NAMES)
        ratios = " | ".join(report.ratio_text(ratio(row, s)) for s in ("seconds", "least"))
        lines.append(
            f"| {row['name']} | {row['batch']} | {row['precision']} | {cells} | {ratios} |"
        )
    for precision in dict.fromkeys(row["precision"] for row in rows):
        mean = report.geometric_mean(ratio(r) for r in rows if r["precision"] == precision)
        if mean:
            lines += ["", f"Geometric mean, {precision}: {mean:.2f}×."]
    if starts:
        lines += [
            "",
            "Seconds until a program for a batch of one is ready: reading and compiling, without",
            "and with what an earlier process left in the disk cache; onnxruntime's session.",
            "",
            "| model | amdjax | with disk cache | onnxruntime | ratio |",
            "|---|--:|--:|--:|--:|",
        ]
        for name, found in starts.items():
            text = report.seconds_text
            ours, again, theirs = (found[k] for k in ("amdjax", "again", "onnxruntime"))
            lines.append(
                f"| {name} | {text(ours)} | {text(again)} | {text(theirs)} "
                f"| {report.ratio_text(theirs / ours)} |"
            )
    return "\n".join(lines) + "\n"


def answer(request: dict) -> Any:
    """The work of one process."""
    import torch

    torch.set_num_threads(request["threads"])
    path = Path(request["path"])
    if "start" in request:
        return measure_start(request["start"], request["name"], path, request["threads"])
    return measure_row(request["name"], path, request["batch"], request["precision"], request)


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        # Libraries print as they please; the answer goes through a descriptor of its own.
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        print(json.dumps(answer(json.loads(sys.argv[1]))), file=out)
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_models", description=__doc__)
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--libs", default=",".join(NAMES))
    parser.add_argument("--threads", type=int, default=len(machine.available_cpus()))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=20, help="seconds of rounds for a row")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's time; with one thread"
    )
    parser.add_argument("--starts", type=int, default=2, help="how often starts are timed")
    parser.add_argument("--models", type=Path, help="where exported files are kept")
    parser.add_argument("--json", type=Path, help="write all samples there")
    parser.add_argument("--markdown", type=Path, default=PAGE, help="the page to write into")
    args = parser.parse_args()
    from .networks import NETWORKS, export

    options = {
        "libs": args.libs.split(","), "threads": args.threads, "rounds": args.rounds,
        "starts": args.starts, "target": 0.05, "budget": args.budget, "cpu_time": args.cpu_time,
    }  # fmt: skip
    rows, starts = [], {}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        env = _environment(Path(scratch), args.threads)
        folder = args.models or Path(scratch)
        folder.mkdir(exist_ok=True)
        for name, network in NETWORKS.items():
            if args.only.lower() not in name.lower():
                continue
            stem = "".join(c if c.isalnum() else "_" for c in name)
            path = folder / f"{stem}.onnx"
            if not path.exists():
                export(name, path)
            for precision in args.precisions.split(","):
                if precision == "int8" and not network.int8:
                    continue
                for batch in map(int, args.batches.split(",")):
                    request = {"path": str(path), "name": name, "batch": batch}
                    request |= {"precision": precision} | options
                    try:
                        rows.append(_ask([json.dumps(request)], env, 1800))
                    except Exception as error:
                        print(f"{name}, batch {batch}, {precision}: {short(error)}", flush=True)
                        continue
                    print(line(rows[-1]), flush=True)
            if args.starts:
                starts[name] = starts_of(name, path, env, options)
                print("    ready:", {k: report.seconds_text(v) for k, v in starts[name].items()})
    about = machine.describe(args.threads)
    about["versions"] += f", onnxruntime {machine.version('onnxruntime')}"
    if args.json:
        text = json.dumps({"machine": about, "rows": rows, "starts": starts}, indent=1)
        args.json.write_text(text)
    if not args.only and args.libs == ",".join(NAMES):
        text = section(rows, starts, about)
        text = report.with_section(args.markdown, report.MODELS_MARK, text)
        args.markdown.write_text(text, encoding="utf-8")
        print(f"wrote {args.markdown}")


if __name__ == "__main__":
    main()
