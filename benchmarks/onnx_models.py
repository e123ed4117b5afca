"""``python -m benchmarks.onnx_models``: models from ONNX files beside onnxruntime and PyTorch.

PyTorch exports networks with random weights (`benchmarks.networks`). Each row is a process in
which all run the same inputs in turns, with as many threads; their results are compared first.
Times until a program is ready are taken in processes of their own, without disk caches. After a
whole run the tables become the section "Models from files" of ``docs/benchmarks.md``. Parts of it
are run with ``--only``, ``--parts``, ``--batches`` and ``--precisions``; what ``--json`` has kept
of them is put together with ``--from``, and ``--resume`` goes on with a run that was stopped.
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
from .lib import difference, to_host
from .onnx_report import NAMES, Row, Starts, line, section, starts_line
from .worker import Sampler, short
from .workload import Prepared

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
PARTS = ("rows", "starts")
#: The greatest differences that pass, as fractions of the greatest magnitude: in bytes, libraries
#: scale by ranges of their own.
TOLERANCE = {"fp32": 2e-3, "fp16": 2e-2, "int8": 0.3}

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


def _amdjax(name: str, path: Path, feed: dict, precision: str, device: str = "cpu") -> Run:
    import amdjax
    from amdjax import onnx

    model = onnx.load(path)
    order = [v.name for v in model.outputs]
    known = {v.name for v in model.inputs}
    target = amdjax.devices(device)[0]
    given = {n: x for n, x in feed.items() if n in known}
    feed = given if device == "cpu" else amdjax.device_put(given, target)
    if precision == "fp32":
        return lambda: list(map(amdjax.block_until_ready(model(**feed)).__getitem__, order))
    from amdjax import quantize

    if precision == "fp16":
        half = quantize.quantize(model.function, model.params, dtype="float16", inputs=given)
        params = amdjax.device_put(half.params, target)
        call = amdjax.jit(lambda **inputs: half(params, **inputs))
        return lambda: list(map(amdjax.block_until_ready(call(**feed)).__getitem__, order))
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


def _torch(name: str, feed: dict, precision: str, compiled: bool, device: str = "cpu") -> Run:
    import warnings

    import torch

    from .networks import NETWORKS, build

    module, args = build(name), tuple(map(torch.from_numpy, feed.values()))
    if precision == "int8":
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
        # What its users are told to do with images.
        module = module.to(memory_format=torch.channels_last)
        args = tuple(x.to(memory_format=torch.channels_last) for x in args)
    module, args = module.to(device), tuple(x.to(device) for x in args)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if compiled:
        module = torch.compile(module)
    half = torch.autocast(device, torch.float16, enabled=precision == "fp16")

    def run() -> Any:
        with torch.no_grad(), half:
            made = module(*args)
        if device == "cuda":
            torch.cuda.synchronize()
        return made

    return run


def prepare(lib: str, name: str, path: Path, feed: dict, precision: str, options: dict) -> Run:
    if lib == "amdjax":
        return _amdjax(name, path, feed, precision, options["device"])
    if lib == "onnxruntime":
        return _onnxruntime(name, path, feed, precision == "int8", options["threads"])
    return _torch(name, feed, precision, lib == "torch.compile", options["device"])


class _Waiting:
    """What `Sampler` asks of a library: each call here returns results that are there."""

    def block(self, result: Any) -> None:
        pass


def _host(made: Any) -> list[np.ndarray]:
    made = made if isinstance(made, tuple | list) else [made]
    return [to_host(x) for x in made]


def measure_row(name: str, path: Path, batch: int, precision: str, options: dict) -> Row:
    """A row: samples of all libraries in turns; onnxruntime in float32 is the reference."""
    from .networks import batches

    (feed,) = batches(name, batch, 1)
    reference = _host(_onnxruntime(name, path, feed, False, options["threads"])())
    errors, samplers, off = {}, {}, {}
    clock = time.process_time if options["cpu_time"] else time.perf_counter
    for lib in options["libs"]:
        if precision == "int8" and lib == "torch.compile":
            continue
        try:
            run = prepare(lib, name, path, feed, precision, options)
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


def measure_start(what: str, name: str, path: Path, threads: int) -> float:
    """Seconds until a program is ready for a batch of one, in this process, after imports."""
    from .networks import batches

    (feed,) = batches(name, 1, 1)
    if what == "onnxruntime":
        import onnxruntime  # noqa: F401

        start = time.perf_counter()
        _session(path, threads)
        return time.perf_counter() - start
    import amdjax
    import amdjax.onnx
    from amdjax import numpy as jnp

    # The library's own start (threads, device, first allocation) is not the compiler's time.
    amdjax.block_until_ready(amdjax.jit(lambda x: x + 1)(jnp.ones(4)))
    start = time.perf_counter()
    if what == "artifact":
        artifact = amdjax.load_artifact(_artifact(path), trust=True)
        run = lambda: amdjax.block_until_ready(artifact(**feed))
    else:
        run = _amdjax(name, path, feed, "fp32")
    run()
    first = time.perf_counter() - start
    start = time.perf_counter()
    run()
    return first - (time.perf_counter() - start)


def _artifact(path: Path) -> Path:
    return path.with_suffix(".amdjax")


def save_artifact(name: str, path: Path) -> None:
    """Write a model to a file, with machine code for a batch of one."""
    from amdjax import onnx

    from .networks import batches

    (feed,) = batches(name, 1, 1)
    onnx.load(path).save(_artifact(path), example=feed)


def _ask(args: list[str], env: dict[str, str], timeout: float) -> Any:
    """What a process of this module answers."""
    command = [sys.executable, "-m", "benchmarks.onnx_models", *args]
    made = subprocess.run(
        command, env=os.environ | env, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout
    )
    if made.returncode:
        raise RuntimeError(f"exited with {made.returncode}")
    return json.loads(made.stdout.splitlines()[-1])


def _environment(scratch: Path, threads: int, device: str) -> dict[str, str]:
    return {
        "AMDJAX_PLATFORMS": "cpu" if device == "cpu" else f"{device},cpu",
        "AMDJAX_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "AMDJAX_CACHE_DIR": str(scratch / "amdjax"),
        # Packages that are installed have their bytecode.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(scratch / "bytecode"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
    }


def starts_of(name: str, path: Path, env: dict, options: dict) -> dict[str, float]:
    """Least seconds until ready: without a cache, of onnxruntime, with one, from an artifact."""
    request = {"name": name, "path": str(path)} | options
    ask = lambda what, env: _ask([json.dumps(request | what)], env, 600)
    found: dict[str, list[float]] = {"amdjax": [], "onnxruntime": [], "again": [], "artifact": []}
    try:
        ask({"save": True}, env)
    except Exception as error:
        print(f"    no artifact: {short(error)}", flush=True)
        del found["artifact"]
    for _ in range(options["starts"]):
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as empty:
            for what, times in found.items():
                folder = empty if what == "artifact" else cache
                told = {"start": what.replace("again", "amdjax")}
                times.append(ask(told, env | {"AMDJAX_CACHE_DIR": folder}))
    return {what: min(seconds) for what, seconds in found.items()}


def answer(request: dict) -> Any:
    """The work of one process."""
    import torch

    torch.set_num_threads(request["threads"])
    path = Path(request["path"])
    if "start" in request:
        return measure_start(request["start"], request["name"], path, request["threads"])
    if "save" in request:
        return save_artifact(request["name"], path)
    return measure_row(request["name"], path, request["batch"], request["precision"], request)


class Found:
    """What was measured, kept in a file as it comes.

    Args:
      about: of the machine.
      path: where it is kept, if anywhere.
    """

    def __init__(self, about: dict[str, str], path: Path | None):
        self.about, self.path = about, path
        self.rows: dict[tuple[str, int, str], Row] = {}
        self.starts: Starts = {}

    def read(self, path: Path) -> None:
        """Take what a file has; of the same row or model it replaces what is there."""
        kept = json.loads(path.read_text())
        self.about = kept["machine"]
        self.rows |= {(r["name"], r["batch"], r["precision"]): r for r in kept["rows"]}
        self.starts |= kept["starts"]

    def keep(self) -> None:
        """Write all of it."""
        if self.path is not None:
            kept = {"machine": self.about, "rows": list(self.rows.values()), "starts": self.starts}
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1))
            part.replace(self.path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_models", description=__doc__)
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--parts", default=",".join(PARTS), help="rows, starts or both")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--libs", default=",".join(NAMES))
    parser.add_argument(
        "--device",
        default="cpu",
        choices=("cpu", "cuda"),
        help="of amdjax and PyTorch; with cuda, rows of fp32 and fp16 without onnxruntime",
    )
    parser.add_argument("--threads", type=int, default=len(machine.available_cpus()))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=10, help="seconds of rounds for a row")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's time; with one thread"
    )
    parser.add_argument("--starts", type=int, default=2, help="how often starts are timed")
    parser.add_argument("--models", type=Path, help="where exported files and caches are kept")
    parser.add_argument("--json", type=Path, help="write all samples there, after each row")
    parser.add_argument(
        "--resume", action="store_true", help="leave out what the file of --json has already"
    )
    parser.add_argument(
        "--from", type=Path, nargs="+", dest="samples", metavar="FILE",
        help="run nothing: print and write what --json wrote there; later files take precedence",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", type=Path, metavar="FILE", help="what --json wrote of a GPU, for the page"
    )
    parser.add_argument(
        "--markdown", type=Path,
        help="the page to write into; docs/benchmarks.md after a whole run and with --from",
    )  # fmt: skip
    return parser.parse_args()


def jobs_of(args: argparse.Namespace) -> list[tuple[str, int, str]]:
    """What is run: models with batch and precision, or with 0 and "start"."""
    from .networks import NETWORKS

    parts, jobs = args.parts.split(","), []
    for name, network in NETWORKS.items():
        if args.only.lower() not in name.lower():
            continue
        precisions = [p for p in args.precisions.split(",") if p != "int8" or network.int8]
        if "rows" in parts:
            jobs += [(name, int(b), p) for p in precisions for b in args.batches.split(",")]
        if "starts" in parts and args.starts:
            jobs.append((name, 0, "start"))
    return jobs


def run(args: argparse.Namespace, found: Found) -> None:
    """Run the jobs one after the other, and tell and keep what comes of each."""
    options = {
        "libs": args.libs.split(","), "threads": args.threads, "rounds": args.rounds,
        "starts": args.starts, "target": 0.05, "budget": args.budget, "cpu_time": args.cpu_time,
        "device": args.device,
    }  # fmt: skip
    jobs, begin = jobs_of(args), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        folder = args.models or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        env = _environment(folder, args.threads, args.device)
        for number, job in enumerate(jobs, 1):
            name, batch, precision = job
            if job in found.rows or (precision == "start" and name in found.starts):
                continue
            passed = time.monotonic() - begin
            print(f"[{number}/{len(jobs)}, {passed / 60:.1f} min] ", end="", flush=True)
            try:
                path = _exported(name, folder)
                if precision == "start":
                    found.starts[name] = starts_of(name, path, env, options)
                    print(starts_line(name, found.starts[name]), flush=True)
                else:
                    request = {"path": str(path), "name": name, "batch": batch} | options
                    row = _ask([json.dumps(request | {"precision": precision})], env, 600)
                    found.rows[job] = row
                    print(line(row), flush=True)
            except Exception as error:
                print(f"{name}, batch {batch}, {precision}: {short(error)}", flush=True)
            found.keep()
    print(f"{len(jobs)} parts in {(time.monotonic() - begin) / 60:.1f} minutes", flush=True)


def _exported(name: str, folder: Path) -> Path:
    """The model's file, which is written if it is not there."""
    from .networks import export

    path = folder / f"{''.join(c if c.isalnum() else '_' for c in name)}.onnx"
    if not path.exists():
        export(name, path)
    return path


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        # Libraries print as they please; the answer goes through a descriptor of its own.
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        print(json.dumps(answer(json.loads(sys.argv[1]))), file=out)
        return
    args = arguments()
    about = machine.describe(args.threads, args.device)
    about["versions"] += f", onnxruntime {machine.version('onnxruntime')}"
    found = Found(about, args.json)
    if args.samples:
        for path in args.samples:
            found.read(path)
        print(*map(line, found.rows.values()), sep="\n")
        print(*(starts_line(*item) for item in found.starts.items()), sep="\n")
    else:
        if args.resume and args.json and args.json.exists():
            found.read(args.json)
        run(args, found)
    everything = arguments_are_whole(args) and args.device == "cpu"
    page = args.markdown or (PAGE if everything or args.samples else None)
    if page is not None:
        kept = json.loads(args.gpu.read_text()) if args.gpu else None
        gpu = (kept["rows"], kept["machine"]) if kept else None
        text = section(list(found.rows.values()), found.starts, found.about, gpu)
        text = report.with_section(page, report.MODELS_MARK, text)
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")


def arguments_are_whole(args: argparse.Namespace) -> bool:
    """Whether all of the tables were run."""
    return (
        not args.only
        and set(args.parts.split(",")) == set(PARTS)
        and args.libs == ",".join(NAMES)
        and set(args.batches.split(",")) >= {"1", "8"}
        and set(args.precisions.split(",")) == set(TOLERANCE)
    )


if __name__ == "__main__":
    main()
