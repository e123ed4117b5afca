"""pytest plugin: runs each test under a time limit and appends what happened to a JSON-lines file.

A test that the file has already is not run again, so a run that a crash ended can be resumed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import zlib
from typing import Any

import jax_alias  # noqa: F401  it puts the alias in place
import pytest
from missing import State

LOG = os.environ["JAXTESTS_LOG"]
LIMIT = float(os.environ.get("JAXTESTS_TEST_SECONDS", "40"))
SAMPLE = float(os.environ.get("JAXTESTS_SAMPLE", "1"))
PART, PARTS = map(int, os.environ.get("JAXTESTS_PART", "0-1").split("-"))


class TooSlow(BaseException):
    """Ends a test that runs too long."""


def _write(**entry: Any) -> None:
    with open(LOG, "a") as f:
        f.write(json.dumps(entry) + "\n")


def _alarm(signum: int, frame: Any) -> None:
    raise TooSlow(f"test ran longer than {LIMIT:.0f} s")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out tests that have run, and those of other parts or outside the sample."""
    _write(collected=len(items))
    with open(LOG) as f:
        entries = [json.loads(line) for line in f]
    done = {entry.get("start") or entry.get("id") for entry in entries}
    chosen = random.Random(0)
    sampled = [i.nodeid for i in items if chosen.random() < SAMPLE]
    mine = {name for name in sampled if zlib.crc32(name.encode()) % PARTS == PART} - done
    items[:] = [i for i in items if i.nodeid in mine]


def pytest_collection_finish(session: Any) -> None:
    """From now on absent names are errors."""
    State.running = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any, nextitem: Any) -> Any:
    """Run one test, or end it."""
    _write(start=item.nodeid)
    signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    faulthandler.dump_traceback_later(LIMIT + 20, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report: Any) -> None:
    """Write down how a test, its set-up or its end went."""
    if report.when != "call" and report.passed:
        return
    text, reason, where = "", "", []
    if report.skipped:
        reason = str(report.longrepr[2])
    elif report.failed:
        text = report.longreprtext[-6000:]
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else text[-600:]
        lines = text.splitlines()
        where = [l for l in lines if ": in " in l or l.rstrip().endswith("Error")][-3:]
    outcome = report.outcome if report.when == "call" or report.skipped else "error"
    seconds = round(report.duration, 2)
    found = {"reason": reason[:1500], "seconds": seconds, "text": text, "where": where}
    _write(id=report.nodeid, outcome=outcome, **found)


def pytest_collectreport(report: Any) -> None:
    """Write down that a file could not be read."""
    if report.failed:
        _write(id=report.nodeid, outcome="collection", reason=report.longreprtext[-1500:])
