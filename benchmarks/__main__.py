"""``python -m benchmarks``: run the workloads, print the table, write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import machine, report
from .lib import NAMES

DOCS = Path(__file__).resolve().parent.parent / "docs"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="family or workload names that contain or match PATTERN; repeatable",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument(
        "--libs",
        default=",".join(NAMES),
        help=f"comma-separated, of {', '.join(NAMES)} (torch* for both of torch)",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="for everyone")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="cores for everyone")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="rounds of A B C ...")
    parser.add_argument(
        "--timeout",
        type=float,
        default=600,
        metavar="S",
        help="seconds without news after which a library is given up",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there")
    parser.add_argument(
        "--from",
        type=Path,
        nargs="+",
        dest="samples",
        metavar="FILE",
        help="run nothing: print, and write to --markdown, what --json wrote there; rows of later "
        "files take the place of those of earlier ones",
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="write the page there; docs/benchmarks.md after a whole run",
    )
    parser.add_argument("--no-write", action="store_true", help="leave docs/ as it is")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    return parser.parse_args()  # fmt: skip


def choose_libs(text: str) -> list[str]:
    wanted = [name for part in text.split(",") for name in fnmatch.filter(NAMES, part.strip())]
    if not wanted:
        raise SystemExit(f"--libs {text}: choose from {', '.join(NAMES)}")
    return list(dict.fromkeys(wanted))


def matches(workload: Any, patterns: list[str]) -> bool:
    names = (workload.family, workload.name, f"{workload.family}/{workload.name}")
    return not patterns or any(
        pattern.lower() in name.lower() or fnmatch.fnmatch(name.lower(), pattern.lower())
        for pattern in patterns
        for name in names
    )


def environment(threads: int, scratch: str, device: str) -> dict[str, str]:
    """Equal terms: the same cores, one device, and no kernels from earlier runs on disk."""
    platforms = "cpu" if device == "cpu" else f"{device},cpu"
    return os.environ | {
        "AMDJAX_NUM_THREADS": str(threads),
        "AMDJAX_CACHE_DIR": os.path.join(scratch, "amdjax"),
        "OMP_NUM_THREADS": str(threads),
        "AMDJAX_PLATFORMS": platforms,
        "JAX_PLATFORMS": platforms,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor"),
        "BENCHMARKS_SCRATCH": scratch,
    }


class Worker:
    """The process that does the work, and its replacement when it dies."""

    def __init__(self, options: dict[str, Any], env: dict[str, str], cpus: list[int]):
        self.options, self.env, self.cpus = options, env, cpus
        self.process: subprocess.Popen | None = None

    def _start(self) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps(self.options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env,
            cwd=Path(__file__).resolve().parent.parent,
        )  # fmt: skip
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, self.cpus)
        self.buffer = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(process.stdout, selectors.EVENT_READ)
        return process

    def _message(self, timeout: float) -> dict[str, Any] | None:
        """The next answer; None when the worker died; TimeoutError when it went silent."""
        until = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0.0, until - time.monotonic())):
                raise TimeoutError
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                return None
            self.buffer += read
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def close(self) -> int:
        if self.process is None:
            return 0
        self.process.kill()
        self.process.stdout.close()
        self.process.stdin.close()
        code, self.process = self.process.wait(), None
        return code

    def measure(self, name: str, libs: list[str], timeout: float, on_stage: Any) -> dict[str, Any]:
        """One workload; a library that crashes or hangs becomes an error and is left out."""
        errors: dict[str, str] = {}
        remaining = list(libs)
        while remaining:
            if self.process is None:
                self.process = self._start()
            request = json.dumps({"workload": name, "libs": remaining}) + "\n"
            lib = ""
            try:
                self.process.stdin.write(request.encode())
                self.process.stdin.flush()
                while (message := self._message(timeout)) is not None:
                    if "done" in message:
                        done = message["done"]
                        return done | {"errors": done["errors"] | errors}
                    if "lib" in message:
                        lib = message["lib"]
                        on_stage(f"{name} · {lib}")
                code = self.process.wait()
                self.close()
                why = (
                    f"crashed ({signal.Signals(-code).name})" if code < 0 else f"exited with {code}"
                )
            except TimeoutError:
                self.close()
                why = f"no answer in {timeout:.0f} s"
            except BrokenPipeError:
                why = f"exited with {self.close()}"
            if not lib:
                raise SystemExit(f"the benchmark worker does not start: {why}")
            errors[lib] = why
            remaining.remove(lib)
        return {"seconds": {}, "samples": {}, "errors": errors}


def run(
    args: argparse.Namespace, libs: list[str], scratch: str, about: dict[str, str]
) -> list[report.Row]:
    from tqdm import tqdm

    from .families import workloads

    chosen = [w for w in workloads() if matches(w, args.only)]
    if args.list:
        print("\n".join(f"{w.family}/{w.name}" for w in chosen))
        raise SystemExit
    if not chosen:
        raise SystemExit(f"no workload matches {args.only}")
    cpus = machine.available_cpus()[: args.threads]
    options = {
        "libs": libs,
        "quick": args.quick,
        "device": args.device,
        "threads": args.threads,
        "rounds": args.rounds or (3 if args.quick else 9),
        "min_rounds": min(args.rounds or 3, 3),
        "target": 0.01 if args.quick else 0.05,
        "budget": 2.0 if args.quick else 12.0,
    }
    terminal = report.Terminal(libs)
    worker = Worker(options, environment(args.threads, scratch, args.device), cpus)
    rows = []
    with tqdm(chosen, unit="workload", dynamic_ncols=True) as progress:
        if args.quick:
            progress.write("quick: smaller sizes than the names say; a check, not figures")
        progress.write(terminal.header())
        for workload in progress:
            measured = worker.measure(
                workload.name, libs, args.timeout, lambda text: progress.set_postfix_str(text)
            )
            rows.append({"name": workload.name, "family": workload.family, **measured})
            progress.write(terminal.row(rows[-1]))
            if args.json:  # after each row, so that a run that is cut short leaves the others
                args.json.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    worker.close()
    print(terminal.footer(rows))
    return rows


def reread(samples: list[Path]) -> tuple[list[report.Row], list[str], dict[str, str]]:
    """The rows of earlier runs on one machine, its libraries and the machine.

    A row is of one run, the latest that has it: its ratios are of that run.

    Raises:
      SystemExit: the runs were on different machines, or with other versions.
    """
    runs = [json.loads(path.read_text()) for path in samples]
    about = runs[0]["machine"]
    if any(run["machine"] != about for run in runs):
        raise SystemExit("--from: these runs were on different machines, or with other versions")
    latest = {(row["family"], row["name"]): row for run in runs for row in run["rows"]}
    families = list(dict.fromkeys(family for family, _ in latest))
    rows = sorted(latest.values(), key=lambda row: families.index(row["family"]))
    if len(runs) > 1:
        again = len({(row["family"], row["name"]) for run in runs[1:] for row in run["rows"]})
        about = about | {"runs": f"{len(runs)}; {again} rows are of later ones than the others"}
    libs = [lib for lib in NAMES if any(lib in r["seconds"] | r["errors"] for r in rows)]
    terminal = report.Terminal(libs)
    print("\n".join([terminal.header(), *map(terminal.row, rows), terminal.footer(rows)]))
    return rows, libs, about


def main() -> None:
    args = arguments()
    libs = choose_libs(args.libs)
    args.threads = min(args.threads or 10**6, len(machine.available_cpus()))
    if args.samples:
        rows, libs, about = reread(args.samples)
    else:
        about = machine.describe(args.threads, args.device)
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
            rows = run(args, libs, scratch, about)
    partial = args.quick or args.only or args.no_write or args.samples or args.device != "cpu"
    whole = not partial and set(libs) == set(NAMES)
    page = args.markdown or (DOCS / "benchmarks.md" if whole else None)
    if page:
        picture = page.with_suffix(".svg")
        drawn = report.draw(rows, picture)
        text = report.markdown(rows, libs, about, picture.name if drawn else None)
        page.write_text(report.with_section(page, "", text), encoding="utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
