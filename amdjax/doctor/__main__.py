"""The command `python -m amdjax.doctor`."""

from __future__ import annotations

import argparse
import sys

from amdjax.doctor import checks, doctor


def main() -> int:
    """Returns the exit code: 0 if all is well, 1 if not."""
    summary = (doctor.__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser("python -m amdjax.doctor", description=summary)
    parser.add_argument("--no-self-test", action="store_true", help="only look, run nothing")
    # How the self-test starts the processes that run its checks.
    parser.add_argument("--run", nargs="+", metavar="CHECK", help=argparse.SUPPRESS)
    parser.add_argument("--device", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        platform, _, number = options.device.rpartition(":")
        checks.run_here(platform, int(number), options.run)
        return 0
    return 0 if doctor(self_test=not options.no_self_test) else 1


if __name__ == "__main__":
    sys.exit(main())
