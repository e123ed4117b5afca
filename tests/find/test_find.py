"""find: problems of programs, solutions that are measured and right, what programs follow."""

import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import find, jit, lax
from amdjax.core.config import State
from amdjax.find import machines, model, session, solutions, tuning
from amdjax.find.arguments import random_arguments, whole_arguments
from amdjax.find.database import Database, Result
from amdjax.find.known import applying
from amdjax.find.machines import default_machine, machine_named
from amdjax.find.session import Session
from amdjax.jit.finding import ask_finder
from amdjax.schedule.search import FAMILIES, Decisions, Solver, UnknownDecision

pytestmark = pytest.mark.cpu_only
X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


@pytest.fixture(autouse=True)
def database(tmp_path):
    """A user's database of the test's own."""
    path = tmp_path / "find.db"
    with _set("db_path", str(path)):
        yield path
    amdjax.clear_caches()


def _set(name, value):
    return State(name)(value)


def conv(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


#: Programs, their arguments, and the kinds of their problems.
CASES = {
    "product": (lambda x: jnp.tanh(x @ x.T), [X], ["product"]),
    "convolution": (
        lambda x, w: conv(x, w) + 1,
        [X.reshape(1, 8, 8, 96), X[:27].reshape(3, 3, 96, 3)],
        ["convolution"],
    ),
    "sort": (lambda x: jnp.sort(x, axis=0), [X], ["sort"]),
    "selection": (lambda x: lax.top_k(x.reshape(-1), 3), [X], ["selection"]),
    "scan": (lambda x: jnp.cumsum(x, axis=1), [X], ["scan"]),
    "softmax": (lambda x: jnp.exp(x) / jnp.exp(x).sum(1, keepdims=True), [X], ["rows"]),
    "scatter": (lambda x, i: x.at[i].add(1), [X, np.arange(5)], None),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.sin(y @ y), x), [X[:, :64]], None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_problems(name):
    """Problems of a program are problems of their own programs, printed and read back."""
    f, args, kinds = CASES[name]
    found = find.problems(f, *args)
    assert kinds is None or [p.kind for p in found] == kinds
    assert len(set(found)) == len(found) > 0
    for problem in found:
        back = find.Problem(**json.loads(json.dumps(problem.to_json())))
        assert back == problem and hash(back) == hash(problem) and back.is_whole
        session.Session(back, default_machine())  # raises unless it is one step


def test_problems_are_those_of_the_program_after_the_passes_of_its_machine():
    """Products read what was converted as it is stored, on CPUs."""
    x, w = np.ones((4, 256), np.float32), jnp.ones((256, 256), "bfloat16")
    (problem,) = find.problems(lambda x, w: x @ w.astype("float32"), x, w)
    assert problem.kind == "product" and "b:bf16[256,256]" in problem.program


@pytest.mark.parametrize(
    "form",
    [
        ("NHWC", "HWIO", "NHWC"),
        ("NCHW", "OIHW", "NCHW"),
        ("NHWC", "OHWI", "NHWC"),
        ("NWC", "WIO", "NWC"),
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_directions_of_convolutions(form, stride, groups):
    """Whatever the layout, gradients tell what they are of."""
    places = {"N": 2, "C": 6, "H": 9, "W": 10}, {"O": 8, "I": 6 // groups, "H": 3, "W": 3}
    x, w = (np.ones([sizes[c] for c in spec], np.float32) for sizes, spec in zip(places, form))

    def f(x, w):
        strides = (stride,) * (len(form[0]) - 2)
        return lax.conv_general_dilated(
            x, w, strides, "SAME", dimension_numbers=form, feature_group_count=groups
        )

    names = lambda g: {p.name for p in find.problems(g, x, w) if p.kind == "convolution"}
    ct = lambda argument: lambda x, w: amdjax.grad(lambda *a: f(*a).sum(), argument)(x, w)
    assert names(f) == {"convolution forward"}
    assert names(ct(0)) == {"convolution data"}
    assert names(ct(1)) == {"convolution weights"}
    (problem,) = find.problems(f, x, w)
    assert str(problem).startswith("convolution forward: { lambda")
    assert str(find.Problem("convolution", "of another version")).startswith("convolution: of")


def test_problems_of_equal_steps_are_equal():
    def f(x, y):
        return jnp.tanh(x @ y) @ y, y @ y, jnp.tanh(y @ y.T)

    found = find.problems(f, X[:, :64], X[:, :64])
    other = find.problems(lambda a, b: jnp.tanh(b @ a), X[:, :64], X[:, :64])
    assert other[-1] in found


SPELLINGS = {
    "product": (lambda x, y, **more: lax.dot_general(x, y, (((1,), (0,)), ((), ())), **more),
                X[:, :64], X[:, :32]),
    "convolution": (
        lambda x, w, **more: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **more
        ),
        X.reshape(1, 8, 8, 96), X[:27].reshape(3, 3, 96, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_equal_steps_have_one_record(name, database):
    """Also where one says what dtype its result has anyway."""
    f, *args = SPELLINGS[name]
    spelled = lambda *args: jnp.tanh(f(*args, preferred_element_type=np.float32))
    plain = lambda *args: jnp.tanh(f(*args))
    (problem,), (same,) = find.problems(spelled, *args), find.problems(plain, *args)
    assert problem == same
    measured = find.find_solutions(problem)
    assert find.find_solutions(same) == measured  # not again
    assert {row[0] for row in Database(database).rows()} == {problem}
    short = [x.astype("bfloat16") for x in args]
    assert find.problems(spelled, *short) != find.problems(plain, *short)


def test_a_search_that_ended_has_nothing_left_to_try(monkeypatch, tmp_path):
    """However times waver, so that others than before are the fastest when measured again."""
    f, *args = SPELLINGS["convolution"]
    (problem,) = find.problems(f, *args)
    for seed in range(12):
        rng = np.random.default_rng(seed)

        def measure(self, decisions, rounds=5, rng=rng):
            return Result(decisions, "right", 1e-6 * int(rng.integers(8, 16)))  # some are equal

        monkeypatch.setattr(Session, "measure", measure)
        with _set("db_path", str(tmp_path / f"{seed}.db")):
            assert find.find_solutions(problem) == find.find_solutions(problem)


def test_strong_and_weak_types_are_one_problem():
    strong = lambda x: lax.convert_element_type(x, np.float32) * 2
    weak = lambda x: (
        lax.convert_element_type_p.bind(
            x, new_dtype=np.dtype(np.float32), weak_type=True, sharding=None
        )
        * np.float32(2)
    )
    x = np.arange(64, dtype=np.int32)
    assert find.problems(strong, x) == find.problems(weak, x)


@pytest.mark.parametrize("name", ["product", "convolution", "sort", "softmax"])
def test_solutions_are_right(name):
    f, args, _ = CASES[name]
    expected = [np.asarray(x) for x in amdjax.tree.leaves(jit(f)(*args))]
    (*_, problem) = find.problems(f, *args)
    found = find.find_solutions(problem)
    assert found and [s.time for s in found] == sorted(s.time for s in found)
    assert all(s.time > 0 and s.spread >= 0 and s.workspace_bytes >= 0 for s in found)
    arguments = [np.asarray(x) for x in _arguments_of(problem, f, args)]
    for solution in found:
        for x, y in zip(solution.run(*arguments), expected, strict=True):
            np.testing.assert_allclose(x, y, 2e-5, 2e-5)
    by_space = find.find_solutions(problem, sort="workspace")
    assert [s.workspace_bytes for s in by_space] == sorted(s.workspace_bytes for s in by_space)
    least = by_space[0].workspace_bytes
    limited = find.find_solutions(problem, workspace_limit=least, limit=1)
    assert len(limited) == 1 and limited[0].workspace_bytes == least


def _arguments_of(problem, f, args):
    """A problem's arguments where it is the last step of a program."""
    shapes = [a.shape for a in problem.closed.in_avals]
    return [next(x for x in (*args, *(x.T for x in args)) if x.shape == s) for s in shapes]


def test_solutions_are_saved_without_code(tmp_path):
    (problem,) = find.problems(lambda x: jnp.sort(x), X)
    solution = find.find_solutions(problem, limit=1)[0]
    path = tmp_path / "solution.json"
    solution.save(path)
    assert find.load_solution(path) == solution
    np.testing.assert_array_equal(find.load_solution(path).run(X)[0], np.sort(X))
    text = path.read_text()
    for bad in ("", "{}", "[]", "[" * 10**5, '{"amdjax_solution": 3}', text.replace("lambda", "x")):
        path.write_text(bad)
        with pytest.raises(ValueError, match="holds no solution"):
            find.load_solution(path)
    version = machines.version()
    for old, new, message in (
        (version, "1/LLVM 2", f"by the compiler's version '1/LLVM 2', and this is '{version}'"),
        (json.dumps(_cpu(), ensure_ascii=False), '"another"', "is for 'another', and this is"),
        ('"target": "cpu"', '"target": "gfx942"', "and this is 'gfx942'"),
        ('"target": "cpu"', '"target": "gfx1"', "unknown GPU target 'gfx1'"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=re.escape(message)):
            find.load_solution(path)
    gone = replace(solution, decisions=(solution.decisions[0]._replace(plan="of old"),))
    gone.save(path)
    with pytest.raises(UnknownDecision, match="has no plan 'of old' here"):
        find.load_solution(path).run(X)
    with pytest.raises(ValueError, match="gfx942 is not here"):
        replace(solution, target="gfx942").run(X)


def _cpu():
    return machines.machine_key(default_machine()).name


def test_a_saved_solution_runs_in_another_process(tmp_path):
    (problem,) = find.problems(lambda x, y: jnp.tanh(x @ y), X, X.T)
    solution = find.find_solutions(problem)[-1]
    solution.save(tmp_path / "solution.json")
    np.save(tmp_path / "x.npy", X)
    code = """import sys, numpy as np
from amdjax import find
solution = find.load_solution(sys.argv[1] + "/solution.json")
x = np.load(sys.argv[1] + "/x.npy")
np.save(sys.argv[1] + "/y.npy", solution.run(x, x.T)[0])
print(solution.plan)"""
    run = [sys.executable, "-c", code, str(tmp_path)]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert told.strip() == solution.plan
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), solution.run(X, X.T)[0])


def test_solution_checks_its_arguments():
    (problem,) = find.problems(lambda x: jnp.sort(x), X)
    solution = find.find_solutions(problem, limit=1)[0]
    with pytest.raises(TypeError, match="takes 1 arrays, got 2"):
        solution.run(X, X)
    with pytest.raises(TypeError, match=r"array 0 must be .*64,96.*, got .*96,64"):
        solution.run(X.T)
    with pytest.raises(ValueError, match="sort must be"):
        find.find_solutions(problem, sort="size")


def test_results_last(database, monkeypatch):
    """A second search measures nothing, one that refreshes does."""
    (problem,) = find.problems(lambda x: jnp.sort(x), X)
    first = find.find_solutions(problem)
    monkeypatch.setattr(session.Session, "measure", lambda *args: pytest.fail("measured again"))
    assert find.find_solutions(problem) == first
    with pytest.raises(pytest.fail.Exception):
        find.find_solutions(problem, refresh=True)


def planned(f, *args):
    return jit(f).lower(*args).compile().as_text("schedule")


def test_programs_follow_what_is_known(database):
    """Another way than the usual one, once it is known to be the fastest."""

    def f(x):
        return jnp.sort(x, axis=0)

    usual = planned(f, X)
    (problem,) = find.problems(f, X)
    found = find.find_solutions(problem)
    db = Database(database)
    rows = {result.decisions: entry for *entry, result in db.rows()}
    other = next(s for s in found if s.plan not in usual)
    result = next(r for *_, r in db.rows() if r.decisions == other.decisions)
    db.record(*rows[other.decisions], replace(result, seconds=1e-12))
    ask_finder(default_machine())
    assert other.plan in planned(f, X) and usual == planned_by("off", f)
    np.testing.assert_array_equal(jit(f)(X), np.sort(X, axis=0))


def planned_by(mode, f):
    with _set("find_mode", mode):
        return planned(f, X)


def test_unknown_plans_are_not_followed(database):
    """As after a change of the compiler: the usual plan serves."""

    def f(x):
        return jnp.sort(x, axis=0)

    usual = planned(f, X)
    (problem,) = find.problems(f, X)
    find.find_solutions(problem)
    db = Database(database)
    for entry in list(db.rows()):
        *key, result = entry
        gone = tuple(d._replace(plan="a plan of old") for d in result.decisions)
        db.record(*key, replace(result, decisions=gone, seconds=1e-12))
    assert planned(f, X) == usual
    np.testing.assert_array_equal(jit(f)(X), np.sort(X, axis=0))
    best, *_ = find.find_solutions(problem)
    assert best.time > 1e-9 and "a plan of old" not in str(best.plan)


@pytest.mark.parametrize("mode", ["normal", "hybrid", "dynamic_hybrid"])
def test_modes_search_while_compiling(mode, database):
    def f(x):
        return jnp.sort(x, axis=0)

    with _set("find_mode", mode):
        np.testing.assert_array_equal(jit(f)(X + len(mode)), np.sort(X + len(mode), axis=0))
    known = [r for *_, r in Database(database).rows()]
    assert len({r.decisions[0].solver for r in known}) == 2
    with _set("find_enforce", "db_clean"):
        jit(lambda x: f(x))(X)
    assert not list(Database(database).rows())


def test_groups_are_measured_by_bounds_that_are_some(database):
    """Kernels read where bounds say: any integers would be places that do not exist."""
    x, w, sizes = np.ones((24, 16), np.float32), np.ones((5, 16, 130), np.float32), np.ones(5, int)
    problems = find.problems(lax.ragged_dot, x, w, sizes)
    (problem,) = (p for p in problems if "grouped_dot" in p.program)
    for draw in (random_arguments, whole_arguments):
        (bounds,) = (v for v in draw(problem) if v.shape == (6,))
        assert bounds[0] == 0 and bounds[-1] == 24 and (np.diff(bounds) >= 0).all()
    found = find.find_solutions(problem)
    assert found and not [r for *_, r in Database(database).rows() if r.status == "wrong"]


def test_wrong_plans_are_reported_and_not_chosen(monkeypatch, database):
    """A solver that leaves out the last of what is summed."""
    family = FAMILIES["product on a CPU"]
    (packed,) = (s for s in family.solvers if s.name == "packed")

    def short(problem, target):
        plan = packed.best(problem, target)
        a, b = plan.problem.a, plan.problem.b
        depth = a.depth[0].extent - 1
        cut = [replace(x, depth=(replace(x.depth[0], extent=depth),)) for x in (a, b)]
        return [replace(plan, problem=replace(plan.problem, a=cut[0], b=cut[1]))]

    monkeypatch.setattr(family, "solvers", [*family.solvers, Solver("short", short, tier=99)])
    (problem,) = find.problems(lambda x, y: x @ y, X, X.T)
    with pytest.warns(UserWarning, match="computes wrong results and is not used: error"):
        found = find.find_solutions(problem)
    assert found and all("short" not in s.solver for s in found)
    assert [
        r.status for *_, r in Database(database).rows() if r.decisions[0].solver == "short"
    ] == ["wrong"]


def test_failing_plans_are_recorded_and_skipped(monkeypatch, database):
    class Failing:
        def emit(self, ctx):
            raise RuntimeError("no such kernel")

        def __str__(self):
            return "a plan that fails"

    family = FAMILIES["sort on a CPU"]
    broken = Solver("broken", lambda problem, target: [Failing()], tier=99)
    monkeypatch.setattr(family, "solvers", [*family.solvers, broken])
    (problem,) = find.problems(lambda x: jnp.sort(x), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find.find_solutions(problem)
    assert found and all("broken" not in s.solver for s in found)
    failed = [r for *_, r in Database(database).rows() if r.status == "failed"]
    assert [r.note for r in failed] == ["RuntimeError: no such kernel"]


def test_tune(database, capsys):
    def f(x):
        return jnp.sort(jnp.tanh(x @ x.T), axis=0)

    tuning = find.tune(f, X, budget=20)
    assert {s.problem.kind for s in tuning.solutions} >= {"product", "sort"}
    assert tuning.before > 0 and tuning.after > 0 and not tuning.unsolved
    assert "times as fast" in capsys.readouterr().out
    assert {p.kind for p, *_ in Database(database).rows()} >= {"product", "sort"}
    np.testing.assert_allclose(jit(f)(X), np.sort(np.tanh(X @ X.T), axis=0), 1e-5, 1e-5)


def test_tune_of_what_donates():
    step = jit(lambda x, y: x @ y + 1, donate_argnums=0)
    x = jnp.array(X[:, :64])
    assert find.tune(step, x, x + 1, budget=5, quiet=True).solutions
    assert np.asarray(x).shape == (64, 64)  # the caller's own are still there


def test_tune_without_time():
    tuning = find.tune(lambda x: jnp.sort(x), X, budget=0, quiet=True)
    assert not tuning.solutions and [why for _, why in tuning.unsolved] == ["no time was left"]


def test_applying_is_of_this_thread_and_nests():
    with applying({}):
        assert solutions.Session(find.problems(jnp.sort, X)[0], default_machine()).usual


def test_a_model_ranks_plans_of_a_gpu_that_is_not_here(database):
    """By what the emulator counts; results are compared, times never replaced."""
    x = X[:32, :32].astype(np.float16)
    (problem,) = find.problems(lambda x: x @ x, x, target="gfx942")
    with pytest.raises(ValueError, match="gfx942 is not here"):
        find.find_solutions(problem, target="gfx942")
    with pytest.raises(ValueError, match="no model of CPUs"):
        find.find_solutions(find.problems(lambda x: x @ x, x)[0], model=True)
    found = find.find_solutions(problem, target="gfx942", model=True)
    assert len(found) > 2 and all(s.estimated and s.target == "gfx942" for s in found)
    assert "estimated" in str(found[0])
    exact = (x.astype(np.float64) @ x).astype(np.float16)
    np.testing.assert_allclose(np.asarray(found[-1].run(x)[0]), exact, 1e-2, 1e-2)
    tuning = find.tune(lambda x: x @ x, x, target="gfx942", model=True, quiet=True)
    assert tuning.solutions[0] == found[0] and tuning.before >= tuning.after > 0
    text = jit(lambda x: x @ x).lower(x).compile("gfx942").as_text("schedule")
    assert found[0].plan in text


def test_a_database_is_opened_once_and_asked_once_for_each_problem(database, monkeypatch):
    Database(database).close()
    opened, asked = [], []
    connect, known = Database._connect, Database.known
    monkeypatch.setattr(Database, "_connect", lambda *args: opened.append(args) or connect(*args))
    monkeypatch.setattr(
        Database, "known", lambda self, *args: asked.append(args[0]) or known(self, *args)
    )
    weights = [X[:, :64] * i for i in range(6)]

    def f(x, weights):
        for w in weights:
            x = jnp.tanh(w @ x) + 1
        return jnp.sort(x, axis=0)

    x = X[:64, :64]
    with _set("find_mode", "off"):
        jit(f)(x, weights)
    assert not opened and not asked
    jit(lambda *args: f(*args))(x, weights)
    assert len(opened) == 1 and len(asked) == len({tuple(p) for p in asked}) >= 2
    jit(lambda *args: f(*args))(x + 1, weights)
    assert len(opened) == 1


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_sample_of_the_workgroups_tells_what_all_do(target, monkeypatch):
    """About as many instructions, the same estimate; what the sample computed is compared."""
    shapes = amdjax.ShapeDtypeStruct((512, 128), np.float32), X.reshape(128, 48)
    (problem,) = find.problems(lambda x, y: x @ y, *shapes, target=target)
    tried = session.Session(problem, machine_named(target), model=True)
    (options,) = tried.plan(listing=True).options
    way = (next(o for o in options if "split" not in o.plan),)
    program = tried.compile(way)
    whole = tried.outcome(program, tried._arguments)
    monkeypatch.setattr(model, "INSTRUCTIONS", 20)
    sampled = tried.outcome(program, tried._arguments)
    assert whole.is_whole and not sampled.is_whole
    assert (
        sampled.launches[0].executed < whole.launches[0].executed == sampled.launches[0].workgroups
    )
    assert tried._estimated(sampled) == pytest.approx(tried._estimated(whole), rel=0.02)
    assert sampled.launches[0].instructions == pytest.approx(
        whole.launches[0].instructions, rel=0.02
    )
    (mask,) = sampled.written
    np.testing.assert_array_equal(sampled.results[0][mask], whole.results[0][mask])
    assert 0 < mask.mean() < 1
    assert tried.measure(way).status == "right"
    wrong = replace(sampled, results=[sampled.results[0] + np.float32(0.01)])
    assert "exceeds" in tried._reference.fault(program, wrong, way)
    unsampled = replace(sampled, launches=[*sampled.launches, *whole.launches])
    assert not model.written(sampled.results[0], unsampled.launches).any()


def test_arguments_that_make_no_sense():
    problem, *_ = find.problems(lambda x: x @ x, np.ones((4, 4), np.float32))
    with pytest.raises(ValueError, match="find_solutions: limit must be positive, got -1"):
        find.find_solutions(problem, limit=-1)
    with pytest.raises(TypeError, match="find_solutions: problem must be one of"):
        find.find_solutions(3)
    with pytest.raises(TypeError, match="tune: f must be a function of arrays, got 3"):
        find.tune(3)
    with pytest.raises(ValueError, match="tune: budget must be a number of seconds, got -1"):
        find.tune(lambda x: x, 1.0, budget=-1)


def test_tuning_without_time_changes_nothing():
    tuned = find.tune(lambda x: jnp.tanh(x.T @ x), X, budget=0, quiet=True)
    assert tuned.solutions == () and tuned.speedup == 1.0


def test_tuning_looks_at_problems_for_half_of_its_time(monkeypatch):
    """However many problems there are, the most expensive that were looked at are searched."""
    clock = iter(range(10_000))
    monkeypatch.setattr(tuning.time, "monotonic", lambda: next(clock))
    searched = []

    class Run:
        def __init__(self, cost):
            self.cost = cost

        def first_look(self):
            return self.cost

        def run(self, each, deadline, report):
            searched.append(self.cost)

    runs = {n: Run(n % 7) for n in range(100)}
    counts = dict.fromkeys(runs, 1)
    progress = tuning._Progress(quiet=True)
    progress.show = lambda run, done: None
    tuning._search_all(runs, counts, 1, next(clock) + 40, progress)
    assert searched[:2] == [6, 6] and 5 < len(searched) < 25


def test_programs_of_symbolic_sizes_follow_what_is_known_of_the_sizes_at_hand(monkeypatch):
    """One compile serves other sizes too; plans whose names tell sizes are found again."""

    def f(x, w):
        return jnp.tanh(x @ w)

    w = np.random.default_rng(1).standard_normal((96, 256)).astype(np.float32)
    (problem,) = find.problems(f, X, w)
    tried = session.Session(problem, default_machine())
    (options,) = tried.plan(listing=True).options
    followed, take = [], Decisions.take
    monkeypatch.setattr(
        Decisions, "take", lambda self, *args: (take(self, *args), followed.extend(self.taken))[0]
    )
    for decision in (options[-1], options[len(options) // 2]):
        assert (decision,) != tried.usual
        with applying({problem: (decision,)}):
            run = jit(f, symbolic=("n, 96", None))
            for n in (64, 3, 65, 500):
                x = np.resize(X, (n, 96))
                np.testing.assert_allclose(run(x, w), np.tanh(x @ w), rtol=1e-4, atol=1e-4)
        assert decision in followed
        followed.clear()


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_problems_are_what_a_machine_has_kernels_for(target):
    """Attention is a step in float32, of which there are kernels; in float64 its definition is."""

    def kinds(dtype):
        x = amdjax.ShapeDtypeStruct((1, 64, 2, 32), dtype)
        attend = lambda q, k, v: amdjax.nn.dot_product_attention(q, k, v, is_causal=True)
        return [p.kind for p in find.problems(attend, x, x, x, target=target)]

    assert kinds("float32") == ["attention"]
    with amdjax.enable_x64(True):
        found = kinds("float64")
    assert "attention" not in found and found.count("product") == 2
