"""Runs JAX's own tests on amdjax and prints how many pass.

    python tools/conformance/run.py TESTS [FILE ...]    # FILE: lax_test, …; all in scope if none

TESTS is the folder of tests of a checkout of JAX of the version that is installed beside amdjax
(its test utilities are used, XLA never runs). They are not part of this project. Settings from
the environment:

| | |
|---|---|
| `JAXTESTS_OUT` | folder of logs and of `failures.md`, where an interrupted run goes on |
| `JAXTESTS_JOBS` | processes at once, 2 |
| `JAXTESTS_PARTS` | processes that share the tests of a large file, 1 |
| `JAXTESTS_SAMPLE` | share of the tests to run, 1 |
| `JAXTESTS_FILE_SECONDS`, `JAXTESTS_TEST_SECONDS` | limits, 900 and 40 |
| `JAX_NUM_GENERATED_CASES` | cases of each generated test, 5 |
| `JAX_ENABLE_X64` | 1 for 64-bit types |

One test: `-k` and other arguments of pytest follow after `--`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
OUT = pathlib.Path(os.environ.get("JAXTESTS_OUT", "jaxtests-out")).resolve()
PYTEST_ARGUMENTS = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
FILE_SECONDS = float(os.environ.get("JAXTESTS_FILE_SECONDS", "900"))
PARTS = int(os.environ.get("JAXTESTS_PARTS", "1"))
LARGE = 60_000
"""Bytes of a file whose tests are shared among processes."""

IN_SCOPE = (HERE / "files.txt").read_text().split()

# Failures of this kind are of XLA's texts and of JAX's private attributes: out of scope.
INTERNALS = re.compile(
    r"stablehlo|mhlo|sdy\.sharding|HloModule|xla_client|MLIR|stage must be one of"
    r"|argument 'dialect'|_executable'"
    r"|attribute '(compiler_ir|client|get_global|_params)'|<missing jax\._src|maximal device"
    r"|attribute '_(invars|eqns|arrays|no_kwargs|check_if_deleted|flat_devices_tuple)'"
    r"|attribute '_to_xla_hlo_sharding'"
    r"|optimization_barrier %"
)


def _logs(name: str) -> list[pathlib.Path]:
    return sorted(OUT.glob(f"{name}.*-*.jsonl"))


def run_part(tests: pathlib.Path, name: str, part: str) -> None:
    """Runs a part "1-4" of a file, again after each crash, until its log is whole or time is up."""
    log = OUT / f"{name}.{part}.jsonl"
    log.touch()
    env = {
        "JAX_NUM_GENERATED_CASES": "5", **os.environ,
        "AMDJAX_ENABLE_X64": os.environ.get("JAX_ENABLE_X64", "0"),
        "JAXTESTS_LOG": str(log), "JAXTESTS_PART": part, "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent)]),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", "-q",
               "-s", "--tb=short", "--no-header", "-c", os.devnull, "--rootdir", str(tests),
               str(tests / f"{name}.py"), *PYTEST_ARGUMENTS]  # fmt: skip
    end = time.time() + FILE_SECONDS
    for _ in range(30):
        with open(OUT / f"{name}.{part}.out", "ab") as out:
            process = subprocess.Popen(
                command, env=env, cwd=OUT, stdout=out, stderr=out, start_new_session=True
            )
            try:
                code = process.wait(max(1, end - time.time()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                with open(log, "a") as f:
                    f.write(json.dumps({"stopped": "file time limit"}) + "\n")
                return
        if code in (0, 1, 2, 5):
            return
        entries = _entries(log)
        started = [e["start"] for e in entries if "start" in e]
        finished = {e["id"] for e in entries if "id" in e}
        with open(log, "a") as f:
            for test in started:
                if test not in finished:
                    reason = f"process died (exit status {code})"
                    f.write(json.dumps({"id": test, "outcome": "crash", "reason": reason}) + "\n")


def _entries(log: pathlib.Path) -> list[dict[str, Any]]:
    with open(log) as f:
        return [json.loads(line) for line in f]


def normalize(reason: str) -> str:
    """The part of a message that tests of one cause share."""
    if "Not equal to tolerance" in reason or "Arrays are not equal" in reason:
        return "WRONG RESULT: values differ from the reference"
    if re.search(r'" does not match "', reason, re.S):
        return "error or warning text differs from JAX's"
    line = next((l for l in reason.splitlines() if l.strip()), "")
    line = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "N", line)
    line = re.sub(r"(\w+\[)[^\]]*\]", r"\1...]", line)
    line = re.sub(r"\((?:N,? ?)+\)", "(shape)", line)
    line = re.sub(r"\b(bfloat|float|u?int|complex)N(_\w+)?\b|\bbool\b", "DTYPE", line)
    return line[:170]


def main() -> None:
    """Run the files that were asked for, and report."""
    tests = pathlib.Path(sys.argv[1]).resolve()
    files = sys.argv[2 : len(sys.argv) - len(PYTEST_ARGUMENTS)]
    names = [pathlib.Path(f).stem for f in files if f != "--"] or IN_SCOPE
    names = [n for n in names if (tests / f"{n}.py").exists()]
    OUT.mkdir(parents=True, exist_ok=True)
    sizes = {n: (tests / f"{n}.py").stat().st_size for n in names}
    counts = {n: PARTS if sizes[n] > LARGE else 1 for n in names}
    parts = [
        (n, f"{i}-{counts[n]}")
        for n in sorted(names, key=sizes.__getitem__, reverse=True)
        for i in range(counts[n])
    ]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JAXTESTS_JOBS", "2"))) as pool:
        list(pool.map(lambda job: run_part(tests, *job), parts))
    report(names)


def report(names: list[str]) -> None:
    """Print a line for each file and the shares, and write the failures by cause."""
    total: collections.Counter = collections.Counter()
    groups = collections.defaultdict(list)
    print(f"{'file':38} passed failed error crash skipped out-of-scope  not-run  %")
    for name in names:
        entries = [entry for log in _logs(name) for entry in _entries(log)]
        last = {e["id"]: e for e in entries if "id" in e}  # an error in tearDown replaces a pass
        n: collections.Counter = collections.Counter()
        for e in last.values():
            kind = e["outcome"]
            if kind == "skipped" and "out of scope" in e["reason"]:
                kind = "scope"
            if kind == "failed" and INTERNALS.search(e["reason"]):
                kind = "scope"
            n[kind] += 1
            if kind in ("failed", "error", "crash", "collection"):
                groups[normalize(e["reason"])].append(e)
                if "text differs" in normalize(e["reason"]):
                    n["text"] += 1
        collected = max((e["collected"] for e in entries if "collected" in e), default=0)
        n["left"] = max(0, collected - len(last))
        ran = n["passed"] + n["failed"] + n["error"] + n["crash"]
        share = f"{100 * n['passed'] / ran:5.1f}" if ran else "    -"
        note = "  COLLECTION ERROR" if n["collection"] else ""
        print(f"{name:38} {n['passed']:6} {n['failed']:6} {n['error']:5} {n['crash']:5} "
              f"{n['skipped']:7} {n['scope']:12} {n['left']:8}  {share}{note}")  # fmt: skip
        total.update(n)
    ran = total["passed"] + total["failed"] + total["error"] + total["crash"]
    print(f"\n{dict(total)}")
    print(f"passed {total['passed']} of {ran}: {100 * total['passed'] / max(ran, 1):.2f} %")
    lenient = 100 * (total["passed"] + total["text"]) / max(ran, 1)
    print(f"with errors of the right class and another text: {lenient:.2f} %")
    with open(OUT / "failures.md", "w") as f:
        for message, es in sorted(groups.items(), key=lambda g: -len(g[1])):
            f.write(f"## {len(es)} × {message}\n")
            for e in es[:12]:
                f.write(f"- {e['id']}: {' '.join(e['reason'].split())[:300]}\n")
            f.write("\n")


if __name__ == "__main__":
    main()
