"""Databases of find: many processes, kills, damage, schemas, what is chosen of what is known."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from amdjax.find.__main__ import main
from amdjax.find.choice import choice
from amdjax.find.database import SCHEMA, Database, MachineKey, Result
from amdjax.find.problem import Problem
from amdjax.jit.finding import database_path
from amdjax.schedule.search import Decision
from tests.find.test_find import _set

pytestmark = pytest.mark.cpu_only
PROBLEM = Problem("sort", "{ lambda ; a:f32[3]. let b:f32[3] = sort a in (b,) }")
MACHINE = MachineKey("gfx942", 304)


def way(name):
    return (Decision("sort on a CPU", name, f"plan of {name}"),)


def result(name, seconds=1.0, **fields):
    return Result(way(name), "right", seconds, **fields)


def chosen(db, machine=MACHINE, version="1", usual="usual", problem=PROBLEM):
    """What is followed for a problem whose usual way has a name."""
    known = db.known([problem, PROBLEM], machine)
    return choice(known, problem, machine.units, version, lambda: way(usual))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "find.db"


def test_round_trip(path):
    db = Database(path)
    results = [
        result("fast", 1e-6, spread=1e-7, workspace=5),
        result("slow", 2e-6),
        result("guess", 1e-9, estimated=True),
        Result(way("bad"), "wrong", note="error 3 exceeds 1"),
        Result(way("worse"), "failed", note="RuntimeError: no"),
    ]
    for r in results:
        db.record(PROBLEM, MACHINE, "1", r)
    found = db.results(PROBLEM, MACHINE, "1")
    assert found == [results[0], results[1], results[2], *found[3:]]
    assert {r.status for r in found[3:]} == {"wrong", "failed"} and set(found) == set(results)
    assert chosen(db) == way("fast")
    assert chosen(Database(path, writable=False)) == way("fast")
    assert not db.known([replace(PROBLEM, kind="scan")], MACHINE)


def test_times_go_before_estimates_and_the_nearest_machine_serves(path):
    db = Database(path)
    db.record(PROBLEM, MachineKey("gfx942", 80), "1", result("80", 1e-9))
    assert chosen(db) == way("80")
    assert chosen(db, MachineKey("gfx90a", 80)) is None
    db.record(PROBLEM, MachineKey("gfx942", 228), "1", result("228", 1e-6))
    assert chosen(db) == way("228")
    db.record(PROBLEM, MACHINE, "1", result("304", 1.0))
    assert chosen(db) == way("304")
    db.record(PROBLEM, MACHINE, "1", result("guess", 1e-12, estimated=True))
    db.record(PROBLEM, MACHINE, "1", result("usual", 1e-11, estimated=True))
    assert chosen(db) == way("304")
    db.record(PROBLEM, MACHINE, "2", result("new", 2.0))
    assert chosen(db, version="2") == way("new")


def test_what_is_old_or_a_guess_is_followed_where_the_usual_way_was_compared_and_lost(path):
    """A plan that has become the usual one since may be faster than all that were tried."""
    db = Database(path)
    db.record(PROBLEM, MACHINE, "1", result("best", 1.0, estimated=True))
    assert chosen(db) is None
    db.record(PROBLEM, MACHINE, "1", result("usual", 2.0))  # a time, which is no estimate
    assert chosen(db) == way("usual")
    db.forget()
    db.record(PROBLEM, MACHINE, "1", result("best", 1.0, estimated=True))
    db.record(PROBLEM, MACHINE, "1", result("usual", 2.0, estimated=True))
    assert chosen(db) == way("best") and chosen(db, usual="fresh") is None
    assert chosen(db, version="2") is None  # other code has other counts
    db.record(PROBLEM, MACHINE, "1", result("timed", 3.0))
    assert chosen(db) == way("timed") == chosen(db, usual="fresh")
    assert chosen(db, version="2") is None
    db.record(PROBLEM, MACHINE, "1", result("usual", 4.0))
    assert chosen(db, version="2") == way("timed")
    assert chosen(db, version="2", usual="fresh") is None


def test_an_equation_alone_tells_what_suits_it_with_more_behind_it(path):
    db, fused = Database(path), replace(PROBLEM, program="with more behind it")
    db.record(PROBLEM, MACHINE, "1", result("best", 1.0))
    assert chosen(db, problem=fused) is None
    db.record(PROBLEM, MACHINE, "1", result("usual", 2.0))
    assert chosen(db, problem=fused) == way("best")
    assert chosen(db, problem=fused, usual="another") is None
    db.record(fused, MACHINE, "1", result("its own", 3.0))
    assert chosen(db, problem=fused) == way("its own")


def test_estimates_never_replace_times(path):
    db = Database(path)
    db.record(PROBLEM, MACHINE, "1", result("a", 1.0))
    db.record(PROBLEM, MACHINE, "1", result("a", 0.1, estimated=True))
    assert db.results(PROBLEM, MACHINE, "1") == [result("a", 1.0)]
    db.record(PROBLEM, MACHINE, "1", result("b", 0.1, estimated=True))
    db.record(PROBLEM, MACHINE, "1", result("b", 3.0))
    assert result("b", 3.0) in db.results(PROBLEM, MACHINE, "1")


def test_forget(path):
    db = Database(path)
    other = replace(PROBLEM, kind="scan")
    for problem in (PROBLEM, other):
        for version in ("1", "2"):
            db.record(problem, MACHINE, version, result("a"))
    assert db.forget(version="2") == 2 and db.forget(version="2") == 0
    assert db.forget(other) == 1 and [p for p, *_ in db.rows()] == [PROBLEM]
    assert db.forget() == 1 and not list(db.rows())


@pytest.mark.parametrize(
    "content", [b"no database at all " * 400, b"SQLite format 3\0" + b"x" * 8000]
)
def test_damage_is_set_aside(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="is damaged"):
        db = Database(path)
    db.record(PROBLEM, MACHINE, "1", result("a"))
    assert chosen(db) == way("a")
    (aside,) = path.parent.glob("find.db.damaged-*")
    assert aside.read_bytes() == content


def test_damage_in_the_middle(path):
    db = Database(path)
    for i in range(300):
        db.record(PROBLEM, MACHINE, "1", result(f"way {i}"))
    db.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    with pytest.warns(UserWarning, match="is damaged"):
        db = Database(path)
    assert not list(db.rows())


def test_later_schema_is_left_alone(path):
    Database(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(sqlite3.OperationalError, match="written by a later version"):
        Database(path)
    assert path.read_bytes() == before and len(list(path.parent.glob("*damaged*"))) == 0


WRITER = """
import sys
from tests.find.test_database import MACHINE, PROBLEM, Database, result
db, name = Database(sys.argv[1]), sys.argv[2]
for i in range(int(sys.argv[3])):
    db.record(PROBLEM, MACHINE, "1", result(f"{name} {i}", 1.0 + i))
    print(i, flush=True)
"""


def writer(path, name, count):
    code = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(code, stdout=subprocess.PIPE, text=True)


def test_processes_write_at_once(path):
    writers = [writer(path, name, 40) for name in "abc"]
    for process in writers:
        process.communicate()
    assert all(process.returncode == 0 for process in writers)
    assert len(Database(path).results(PROBLEM, MACHINE, "1")) == 3 * 40


OPENER = """
import sys, time
from tests.find.test_database import MACHINE, PROBLEM, Database, result
folder, name, start = *sys.argv[1:3], float(sys.argv[3])
for i in range(25):
    time.sleep(max(0.0, start + 0.05 * i - time.time()))
    db = Database(f"{folder}/{i}.db")
    db.record(PROBLEM, MACHINE, "1", result(name))
    db.close()
"""


def test_processes_open_a_new_file_at_once(tmp_path):
    start = time.time() + 3.0  # later than the slowest of them has imported
    code = [sys.executable, "-c", OPENER, str(tmp_path)]
    processes = [subprocess.Popen([*code, name, str(start)]) for name in "abcd"]
    assert [process.wait() for process in processes] == [0] * 4
    for i in range(25):
        assert len(Database(tmp_path / f"{i}.db").results(PROBLEM, MACHINE, "1")) == 4


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such signal")
def test_a_kill_loses_nothing(path):
    process = writer(path, "a", 100_000)
    assert process.stdout is not None
    written = [int(process.stdout.readline()) for _ in range(25)]
    os.kill(process.pid, signal.SIGKILL)
    written += [int(x) for x in process.stdout.read().splitlines(keepends=True) if x.endswith("\n")]
    process.wait()
    found = {r.decisions for r in Database(path).results(PROBLEM, MACHINE, "1")}
    assert found >= {way(f"a {i}") for i in written} and len(written) >= 25


def test_a_database_that_cannot_be_written_is_read(path):
    db = Database(path)
    db.record(PROBLEM, MACHINE, "1", result("a"))
    db.close()
    for p in (path, path.parent):
        p.chmod(p.stat().st_mode & ~0o222)
    try:
        assert chosen(Database(path, writable=False)) == way("a")
    finally:
        for p in (path.parent, path):
            p.chmod(p.stat().st_mode | 0o200)


def test_fork(path):
    db = Database(path)
    db.record(PROBLEM, MACHINE, "1", result("parent"))
    child = os.fork()
    if child == 0:
        db.record(PROBLEM, MACHINE, "1", result("child", 0.5))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert chosen(db) == way("child")


def test_command(path, tmp_path, capsys):
    with _set("db_path", str(path)):
        assert database_path() == path
        db, exported = Database(path), tmp_path / "results.json"
        db.record(PROBLEM, MACHINE, "1", result("a", 2e-6))
        db.record(PROBLEM, MACHINE, "1", Result(way("b"), "wrong", note="error 3"))
        assert main(["show"]) == 0
        out = capsys.readouterr().out
        assert str(PROBLEM) in out and "2.0 µs + 0.0: a: plan of a" in out and "error 3" not in out
        assert main(["show", "--all"]) == 0 and "wrong (error 3)" in capsys.readouterr().out
        assert main(["show", "--kind", "scan"]) == 1 and "plan" not in capsys.readouterr().out
        assert main(["show", "--kind", "sort"]) == 0 and "plan of a" in capsys.readouterr().out
        assert main(["export", str(exported)]) == 0
        rows = list(db.rows())
        assert len(exported.read_text().splitlines()) == 2
        assert main(["clean", "--all"]) == 0 and not list(db.rows())
        assert main(["merge", str(exported)]) == 0 and list(db.rows()) == rows
        copy = tmp_path / "copy.db"
        sqlite3.connect(path).backup(sqlite3.connect(copy))
        assert main(["clean"]) == 0 and not list(Database(path).rows())
        assert main(["merge", str(copy)]) == 0
        exported.write_text(json.dumps({"kind": "sort"}) + "\n")
        assert main(["merge", str(exported)]) == 1
        assert "line 1: no result of find" in capsys.readouterr().err
    with _set("db_path", "off"):
        assert main(["show"]) == 1 and "there is no database" in capsys.readouterr().err
