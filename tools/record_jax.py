"""Records what JAX gives for generated calls of its public functions; the tests replay them.

    python tools/record_jax.py numpy            # write tests/api/recorded/numpy.npz
    python tools/record_jax.py numpy --compare  # print where amdjax differs, write nothing
    python tools/record_jax.py numpy --departures  # without JAX: list where amdjax differs now

Needs the JAX release whose surface amdjax follows. A package joins by a module of generators in
`tests/support/jax_calls/`.
Options: --each N (calls of a function), --only REGEX, --modes eager,jit. A call that takes JAX more
than SECONDS, or all of the memory it may have, is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import pathlib
import re
import resource
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import jax_calls, recorded_calls as recorded  # noqa: E402

#: In one of how many calls a mode is recorded.
EVERY = {"eager": 1, "jit": 4, "vmap": 6, "grad": 5, "types": 1, "slopes": 2}


def modes_of(call: Any, modes: list[str]) -> list[str]:
    """The ways in which a call is recorded: eagerly, and some of them also otherwise."""
    number = zlib.crc32(repr(call).encode())
    return [m for i, m in enumerate(modes) if (number >> (5 * i)) % EVERY[m] == 0]


def record(call: Any, modes: list[str], package: Any) -> dict[str, Any]:
    """The outcome of a call in each mode; "same" where it is that in the first, eagerly."""
    try:
        made = recorded.Call(call, package)
    except Exception as e:  # an argument that cannot be made: no call
        print("no call:", call, repr(e)[:80], file=sys.stderr)
        return {}
    first = recorded.outcome(getattr(made, modes[0]), package)
    outcomes: dict[str, Any] = {modes[0]: first}
    failed = first[0].get("error") if isinstance(first[0], dict) else None
    if failed and failed[0] in OUT_OF_MEMORY:
        print("no end:", call, file=sys.stderr)
        return {}
    for mode in modes[1:]:
        if not made.traced or (mode != "jit" and failed):
            continue
        slopes = mode in ("grad", "slopes")
        if slopes and not made.differentiable():
            continue
        found = recorded.outcome(getattr(made, mode), package)
        if not slopes and recorded.differences(found, first, 4) is None:
            found = "same"
        outcomes[mode] = found
    return outcomes


SECONDS, MEMORY = 20, 12 << 30
OUT_OF_MEMORY = ("MemoryError", "XlaRuntimeError", "JaxRuntimeError")


def _recorder(pipe: Any) -> None:
    """The process that calls JAX: `(call, modes)` in, outcomes out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import jax

    pipe.send("ready")
    for number in range(sys.maxsize):
        if number % 200 == 199:
            # Every shape is a program of its own; they would fill the memory.
            jax.clear_caches()
        pipe.send(record(*pipe.recv(), jax))


def record_all(wanted: list[tuple[Any, list[str]]]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """`(call, outcomes)` of JAX where it ends; a process serves until a call does not."""
    spawn, process = multiprocessing.get_context("spawn"), None
    for call, modes in wanted:
        if process is None:
            pipe, theirs = spawn.Pipe()
            process = spawn.Process(target=_recorder, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            pipe.recv()
        try:
            pipe.send((call, modes))
            if not pipe.poll(SECONDS):
                raise TimeoutError
            yield call, pipe.recv()
        except (TimeoutError, EOFError, ConnectionError):
            print("no end:", call, file=sys.stderr)
            process.kill()
            process.join()
            process = None
    if process:
        process.kill()


def list_departures(path: pathlib.Path) -> None:
    """Replay all recorded calls, and write those that differ beside them."""
    lines = [
        json.dumps([call, mode, told[:160]])
        for call, outcomes in recorded.load(path)
        for mode, told in recorded.replay(call, outcomes)
    ]
    path.with_suffix(".departures").write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} outcomes differ", file=sys.stderr)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--departures", action="store_true")
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--only", default="")
    parser.add_argument("--modes", default="eager,jit,vmap,grad")
    options = parser.parse_args()
    path = ROOT / f"tests/api/recorded/{options.package}.npz"
    if options.departures:
        list_departures(path)
        return
    module = importlib.import_module(f"tests.support.jax_calls.{options.package}")
    prefix = getattr(module, "PREFIX", options.package)
    cases, start = [], time.time()
    modes = getattr(module, "MODES", options.modes).split(",")
    wanted = [
        (call, modes_of(call, modes))
        for call in jax_calls.calls(module, prefix, options.each)
        if re.search(options.only, call[0])
    ]
    for call, outcomes in record_all(wanted):
        if outcomes:
            cases.append((call, outcomes))
        if len(cases) % 200 == 0:
            print(f"{len(cases)} calls, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        if outcomes and options.compare:
            for mode, text in recorded.replay(call, outcomes):
                print(
                    f"{mode:5} {call[0]} x64={call[1]} {call[2]} {call[3]}: {text[:400]}",
                    flush=True,
                )
    print(f"{len(cases)} calls, {time.time() - start:.0f} s", file=sys.stderr)
    if not options.compare:
        recorded.save(path, cases)
        print(path, path.stat().st_size, file=sys.stderr)


if __name__ == "__main__":
    main()
