"""Runs random programs for a while and prints those that fail, as small as they get.

python -m tests.random_programs --minutes 60 [--from SEED] [--device gfx942] [--library jax]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

import numpy as np


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=10**9, help="programs at most")
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--device", help="cpu, cuda, hip, or a target to emulate: gfx942")
    parser.add_argument("--x64", action="store_true", help="with 64-bit types")
    parser.add_argument("--library", default="amdjax", help="amdjax, or jax to check the oracle")
    parser.add_argument("--only", help="ways of running, such as jit,derivative")
    parser.add_argument("--show", action="store_true", help="print each program")
    args = parser.parse_args()
    if args.device and args.device.startswith("gfx"):
        os.environ["AMDJAX_EMULATE"] = args.device
        os.environ["AMDJAX_PLATFORMS"] = "emulated,cpu"
    elif args.device and args.device != "cpu":
        os.environ["AMDJAX_PLATFORMS"] = f"{args.device},cpu"
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from .check import check, shrink, some_modes
    from .draw import DTYPES, WIDE, draw
    from .libraries import Traced

    library = Traced(args.library)
    if args.library == "amdjax":
        library.module.config.update("check", True)
    library.module.config.update("jax_enable_x64", args.x64)
    end, failed, ran, steps = time.time() + 60 * args.minutes, 0, 0, 0
    with tqdm(unit=" programs", mininterval=0.5 if sys.stderr.isatty() else 60) as bar:
        for seed in range(args.first, args.first + args.count):
            if time.time() > end:
                break
            program, inputs = draw(seed, args.steps, WIDE if args.x64 else DTYPES)
            only = args.only.split(",") if args.only else some_modes(seed)
            if args.show:
                tqdm.write(f"seed {seed}\n{program}")

            def error(p, inputs=inputs, only=only):
                try:
                    check(p, inputs, library, only)
                except Exception as e:
                    return e
                return None

            found = error(program)
            ran, steps = ran + 1, steps + program.operations()
            bar.update()
            bar.set_postfix(failed=failed, steps=steps)
            if found is None:
                continue
            failed += 1
            kind = type(found)
            small = shrink(program, lambda p: isinstance(error(p), kind))
            final = error(small) or found
            text = "".join(traceback.format_exception(final)[-3:])
            tqdm.write(f"\nseed {seed} fails: {text}{small}")
            for i, x in enumerate(inputs):
                if any(i in s.operands for s in small.steps) or i in small.outputs:
                    tqdm.write(f"v{i} = {np.array2string(x, threshold=40)}")
    print(f"{ran} programs of {steps} operations, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
