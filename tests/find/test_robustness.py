"""Searches that are killed, interrupted or short of time; disks that are full, bytes that flip."""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import warnings

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import find, jit
from amdjax.find import known
from amdjax.find.__main__ import main
from amdjax.find.database import SCHEMA, Database
from amdjax.find.session import Session
from tests.find.test_database import MACHINE, PROBLEM, chosen, result
from tests.find.test_find import _set

pytestmark = pytest.mark.cpu_only
X = np.random.default_rng(0).standard_normal((40, 56)).astype(np.float32)


def f(x):
    return jnp.sort(jnp.tanh(x @ x.T), axis=0)


@pytest.fixture
def path(tmp_path):
    """The file of a user's database of the test's own."""
    with _set("db_path", str(tmp_path / "find.db")):
        yield tmp_path / "find.db"
    amdjax.clear_caches()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(("kills", "processes"), [(4, 1), (8, 8)])
def test_killed_searches_lose_nothing(kills, processes, tmp_path):
    """`tests/support/killed_searches.py` says what is checked; it was run with 200 kills, too."""
    code = [sys.executable, "-m", "tests.support.killed_searches", str(tmp_path)]
    environment = os.environ | {"AMDJAX_NUM_THREADS": "1"}
    run = subprocess.run(
        [*code, str(kills), str(processes)], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0 and "killed" in run.stdout, run.stderr


def test_flipped_bytes(path):
    """What is damaged anywhere is read as far as it is sound, or set aside; it is never fatal."""
    database = Database(path)
    for i in range(60):
        database.record(PROBLEM, MACHINE, "1", result(f"way {i}", 1.0 + i))
    database.close()
    sound, rng, asides, used = path.read_bytes(), random.Random(0), 0, 0
    for _ in range(120):
        damaged = bytearray(sound)
        for at in (rng.randrange(len(sound)) for _ in range(rng.choice([1, 4, 64]))):
            damaged[at] ^= 1 << rng.randrange(8)
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(damaged)
        # Errors of SQLite are for those who use it: a schema that seems to be a later one.
        with warnings.catch_warnings(), contextlib.suppress(sqlite3.Error):
            warnings.filterwarnings("ignore", ".*is damaged")
            database = Database(path)
            chosen(database)
            assert all(k.result.status and k.result.decisions is not None for k in database.rows())
            database.record(PROBLEM, MACHINE, "1", result("new", 1e-9))
            assert chosen(database) is not None
            database.close()
            used += 1
        asides += any("damaged" in file.name for file in path.parent.iterdir())
    assert asides > 10 and used > 110


def test_a_full_disk_stops_the_recording_alone(path, monkeypatch):
    Database(path).close()
    before = path.read_bytes()

    def full(*args):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Database, "record", full)
    (problem,) = find.problems(jnp.sort, X[0])
    with pytest.warns(UserWarning, match=r"find\.db does not record results: .* disk is full"):
        assert find.find_solutions(problem)
    assert path.read_bytes() == before


def test_where_nothing_can_be_written_results_are_read(path, monkeypatch):
    """As with locks that fail, or no place for the files of WAL mode."""
    find.tune(f, X, budget=100, quiet=True)
    rows = list(Database(path).rows())
    monkeypatch.setattr(known, "_open", {})

    def refused(self):
        raise sqlite3.OperationalError("locking protocol")

    monkeypatch.setattr(Database, "_prepared", refused)
    monkeypatch.setattr(Session, "measure", lambda *args: pytest.fail("measured again"))
    find.tune(f, X, budget=100, quiet=True)
    assert not known.user_database().writable and list(known.user_database().rows()) == rows
    monkeypatch.setattr(known, "_open", {})
    path.unlink()
    with pytest.warns(UserWarning, match=r"find\.db is not used .*: locking protocol"):
        assert known.user_database() is None
    np.testing.assert_allclose(jit(f)(X), np.sort(np.tanh(X @ X.T), axis=0), 1e-5, 1e-5)


def test_a_database_of_another_program_is_left_alone(path, monkeypatch):
    Database(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.warns(UserWarning, match="is not used .* written by a later version"):
        jit(f)(X)
    assert path.read_bytes() == before


def test_an_interrupt_keeps_what_was_measured(path, monkeypatch, capsys):
    measure, count = Session.measure, 0

    def interrupted(self, *args):
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return measure(self, *args)

    monkeypatch.setattr(Session, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find.tune(f, X, budget=60)
    assert "what was measured stays in" in capsys.readouterr().out
    assert len(list(Database(path).rows())) == 1
    count = -1000
    find.tune(f, X, budget=60, quiet=True)
    resumed, all_known = count + 1000, len(list(Database(path).rows()))
    again = resumed - (all_known - 1)  # the fastest are measured once more
    assert 0 <= again <= 2 * 3
    count = -1000
    find.tune(f, X, budget=60, quiet=True)
    assert count == -1000  # all is known


def test_a_budget_is_kept_within_one_plan(path, monkeypatch):
    """By a clock that goes on by a second a plan."""
    now, measure, compiled = 0.0, Session.measure, []

    def later(self, decisions, *args):
        nonlocal now
        now += 1.0
        compiled.append(decisions)
        return measure(self, decisions, *args)

    monkeypatch.setattr(Session, "measure", later)
    monkeypatch.setattr("amdjax.find.tuning.time.monotonic", lambda: now)
    for budget in (0, 1, 3):
        before, now = now, now + 100.0
        count = len(compiled)
        tuning = find.tune(f, X, budget=budget, quiet=True)
        assert len(compiled) - count <= budget + 1 and now - before <= 101.0 + budget
        assert tuning.before > 0 and tuning.after > 0


def test_the_bar_tells_the_best_so_far(path, capsys, monkeypatch):
    find.tune(f, X, budget=5)
    out = capsys.readouterr()
    assert "times as fast by" in out.err and "2/2" in out.err and "saved a call" in out.out
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if it were not there
    find.tune(f, X, budget=5)
    assert "product, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tune", "json:loads", "json:lodas"], "module 'json' has no 'lodas'"),
        (["tune", "jsno:loads", "json:loads"], "no module 'jsno'"),
        (["tune", "json", "json:loads"], "'json' is not MODULE:NAME"),
        (["tune", "json:loads", "json:__name__"], "must be a function, got 'json'"),
        (["tune", "json:loads", "os:getpid"], "must return a tuple of arguments"),
        (["tune", "json:loads", "gc:get_referrers", "--budget", "-1"], "budget must be a number"),
        (["tune", "json:loads", "gc:get_referrers", "--model"], "no model of CPUs"),
        (["tune", "json:loads", "gc:get_referrers", "--target", "gfx942"], "gfx942 is not here"),
        (["tune", "json:loads", "gc:get_referrers", "--target", "gfx1"], "unknown GPU target"),
        (["show", "--kind", "prodct"], "no results of kind 'prodct'"),
        (["export", "/no/such/folder/x.json"], "/no/such/folder/x.json"),
        (["merge", sys.executable], "neither a database of find nor what export wrote"),
        (["merge", "/no/such/file"], "/no/such/file"),
    ],
)
def test_commands_that_make_no_sense(arguments, text, path, capsys):
    assert main(arguments) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["shw"], ["clean", "--al"], ["tune", "json:loads"]])
def test_commands_are_not_guessed(arguments, path, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["find_mode", "find_enforce"])
def test_settings_tell_what_they_take(name):
    variable = f"AMDJAX_{name.upper()}"
    code = [sys.executable, "-c", "import amdjax"]
    run = subprocess.run(code, env=os.environ | {variable: "fats"}, capture_output=True, text=True)
    assert run.returncode and f"{variable} takes one of [" in run.stderr and "'fats'" in run.stderr
