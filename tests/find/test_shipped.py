"""Estimates that come with the package: sound, quickly read, followed only where they hold."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import amdjax
from amdjax import find, jit
from amdjax.find.__main__ import main
from amdjax.find.choice import choice
from amdjax.find.database import Database, Known, Result
from amdjax.find.lines import line_of, read_lines
from amdjax.find.machines import machine_key, machine_named, version
from amdjax.find.session import Session
from amdjax.find.shipped import VERSION, shipped
from amdjax.jit import finding
from tests.find.test_find import _set
from tests.support.turns import in_turn

pytestmark = pytest.mark.cpu_only
FILES = sorted(finding.ESTIMATES.glob("*.jsonl"))
X = amdjax.ShapeDtypeStruct((192, 80), np.float16), amdjax.ShapeDtypeStruct((80, 112), np.float16)


def product(x, y):
    return x @ y


def more(x, y):
    return amdjax.nn.relu(x @ y + 1)


def planned(f, *args):
    return jit(lambda *args: f(*args)).lower(*args).compile("gfx942").as_text("schedule")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of estimates of the test's own, and no user's database."""
    monkeypatch.setattr(finding, "ESTIMATES", tmp_path)
    shipped.cache_clear()
    with _set("db_path", str(tmp_path / "find.db")):
        yield tmp_path
    shipped.cache_clear()
    amdjax.clear_caches()


def estimates(made_by, fastest=-1):
    """Lines that say that an unusual plan is the fastest, and that plan."""
    (problem,) = find.problems(product, *X, target="gfx942")
    machine = machine_named("gfx942")
    session = Session(problem, machine, model=True)
    (options,) = session.plan(listing=True).options
    ways = [session.usual, (options[fastest],)]
    assert ways[0] != ways[1]
    results = [Result(w, "right", 2.0 - i, 0, 0, True) for i, w in enumerate(ways)]
    lines = [line_of(Known(problem, machine_key(machine), made_by, r)) for r in results]
    return lines, ways[1][0].plan


def test_what_is_shipped_is_sound():
    assert {"gfx942", "gfx1100"} <= {path.stem for path in FILES}
    assert sum(path.stat().st_size for path in FILES) < 1 << 20
    for path in FILES:
        known = list(read_lines(path))
        assert known and {k.machine.name for k in known} == {path.stem}
        assert {k.machine.units for k in known} == {machine_named(path.stem).compute_units}
        for k in known:
            assert k.result.status == "right" and k.result.estimated and k.result.seconds > 0
            assert k.result.decisions and all(d.solver for d in k.result.decisions)
        problems = [k.problem for k in known]
        assert len({(k.problem, k.result.decisions) for k in known}) == len(known)
        assert all(problems.count(p) <= 2 for p in problems[:: len(problems) // 8 or 1])
        assert all(p.closed and p.is_whole for p in problems[:: len(problems) // 8 or 1])


def by_problem(path):
    """What a file knows of each problem, the best first."""
    found = {}
    for k in read_lines(path):
        assert k.version == VERSION
        found.setdefault(k.problem, []).append(k)
    return found


DUE = "estimates are due: tools/ship_estimates.py makes them anew, then raise find.shipped.VERSION"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_shipped_is_followed(path):
    """The usual plan is still the one that was compared, whatever the compiler's version."""
    machine = machine_named(path.stem)
    for problem, known in by_problem(path).items():
        usual = Session(problem, machine, model=True).usual
        best = choice(known, problem, machine.compute_units, VERSION, lambda usual=usual: usual)
        assert best == known[0].result.decisions, f"{DUE}: {problem}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_shipped_is_what_is_counted(path):
    """Of a problem in turn; the whole is made anew where code or model have changed."""
    known, machine = by_problem(path), machine_named(path.stem)
    size = lambda p: sum(a.size for a in (*p.closed.in_avals, *p.closed.out_avals))
    small = [p for p in known if size(p) < 4_000_000]
    for problem in in_turn(small, len(small) or 1):
        session = Session(problem, machine, model=True)
        best, usual = known[problem]
        now = session.measure(best.result.decisions)
        assert now.status == "right", f"{problem}: {now.note}"
        for seconds, before in ((now.seconds, best), (session.usual_seconds, usual)):
            assert abs(seconds / before.result.seconds - 1) < 0.05, f"{DUE}: {problem}"


def test_estimates_are_followed_without_a_database(folder):
    usual = planned(product, *X)
    lines, plan = estimates(VERSION)
    (folder / "gfx942.jsonl").write_text("\n".join(lines) + "\n")
    shipped.cache_clear()
    assert plan not in usual and plan in planned(product, *X)
    assert plan in planned(more, *X)  # the same equation with more behind it
    with _set("find_mode", "off"):
        assert planned(product, *X) == usual
    assert [path.name for path in folder.iterdir()] == ["gfx942.jsonl"]  # nothing is written


def test_stale_estimates_are_not_followed(folder):
    """Neither those of other versions, nor those to which the plan of today was not compared."""
    usual = planned(product, *X)
    file = folder / "gfx942.jsonl"
    for made_by, first in (("estimates 0", 0), (version(), 0), (VERSION, 1)):
        lines = estimates(made_by)[0][first:]
        file.write_text("\n".join(lines) + "\n")
        shipped.cache_clear()
        assert planned(product, *X) == usual
    file.write_text(lines[0].replace("seconds", "second"))
    shipped.cache_clear()
    with pytest.warns(UserWarning, match="cannot be read: .*gfx942.jsonl: no result of find"):
        assert planned(product, *X) == usual
    file.write_bytes(b"\xff" + b"{" * 50)
    shipped.cache_clear()
    with pytest.warns(UserWarning, match="cannot be read: .*codec"):
        assert planned(product, *X) == usual


def test_what_the_user_found_goes_first(folder):
    lines, plan = estimates(VERSION)
    other = replace(next(iter(read_lines(_written(folder, lines)))).result, seconds=9.0)
    (problem,) = find.problems(product, *X, target="gfx942")
    mine = Session(problem, machine_named("gfx942"), model=True).plan(listing=True).options[0][1]
    key = machine_key(machine_named("gfx942"))
    database = Database(folder / "find.db")
    database.record(problem, key, version(), replace(other, decisions=(mine,), estimated=False))
    assert mine.plan in planned(product, *X) and mine.plan != plan
    exported = folder / "all.json"
    assert main(["merge", str(folder / "gfx942.jsonl")]) == 0
    assert main(["export", str(exported)]) == 0 and len(list(read_lines(exported))) == 3


def _written(folder, lines):
    path = folder / "gfx942.jsonl"
    path.write_text("\n".join(lines) + "\n")
    shipped.cache_clear()
    return path


def test_programs_for_cpus_do_not_read_them():
    """Nor load what would."""
    code = """import sys, amdjax.numpy as jnp
jnp.ones(3) + 1
assert "amdjax.find" not in sys.modules"""
    environment = {**os.environ, "AMDJAX_DB_PATH": str(Path(os.devnull) / "no.db")}
    environment.pop("AMDJAX_FIND_MODE", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
