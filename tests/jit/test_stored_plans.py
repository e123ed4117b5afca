"""Plans that are read instead of made: the same results, and none that another program made."""

import json
import random

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import ConcreteArray
from amdjax.core.config import State, config
from amdjax.extend.core import Primitive
from amdjax.find.known import applying
from amdjax.interpreters import mlir
from amdjax.jit.cpu.program import cpu_kernels, cpu_target
from amdjax.jit.kernels import KernelLoader, clear_loaded, kernels_recorded
from amdjax.jit.plan import plan_program
from amdjax.jit.plan_keys import VALUES_COUNT, PlanKey, plan_key
from amdjax.jit.report import plan_text
from amdjax.jit.stored_plans import read_plan, written_plan
from amdjax.runtime.cache import object_cache
from amdjax.schedule.search import deciding
from amdjax.targets import get
from tests.support.jit_helpers import run_python

SCRIPT = """
import hashlib, json
import numpy as np
import amdjax
from amdjax.jit.kernels import KernelLoader, clear_loaded
from tests.random_programs.draw import draw
from tests.random_programs.libraries import Traced
from tests.random_programs.program import run

original, read, library, told = KernelLoader.read, [], Traced("amdjax"), []

def counted(*args):
    read.append(original(*args) is not None)
    return original(*args)

KernelLoader.read = counted
for seed in SEEDS:
    program, inputs = draw(seed, 30)
    with np.errstate(all="ignore"):
        outs = amdjax.jit(lambda *xs: run(program, library, xs))(*inputs)
    told.append([hashlib.sha256(np.asarray(x).tobytes()).hexdigest() for x in outs])
print(json.dumps([told, read]))
"""


@pytest.fixture
def kept(tmp_path):
    """Plans are kept, in a folder of their own."""
    with State("keep_plans")(True), State("check")(False), State("cache_dir")(str(tmp_path)):
        yield tmp_path


@pytest.fixture
def reads(kept, monkeypatch):
    """For each program whose plan is looked for, whether it was found."""
    found, original = [], KernelLoader.read

    def read(self, *args):
        made = original(self, *args)
        found.append(made is not None)
        return made

    monkeypatch.setattr(KernelLoader, "read", read)
    return found


def chain(x, n=12, factor=1.0):
    for i in range(n):
        x = jnp.sin(x * factor) + jnp.flip(x, i % x.ndim)
    return x, x.sum(-1)


def loops(x):
    """A scan that stacks, a while and a branch whose lengths the data tell."""
    x, stacked = lax.scan(lambda c, i: (jnp.sin(c @ c.T @ c) + i, c.sum()), x, jnp.arange(5.0))
    x = lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, x)
    return lax.switch(jnp.int32(x[0, 0]) % 3, [jnp.sin, jnp.cos, lambda y: chain(y)[0]], x), stacked


def fresh(f):
    """The function, of which nothing is traced yet."""
    return amdjax.jit(lambda *args: f(*args))


def same(a, b):
    for x, y in zip(amdjax.tree.leaves(a), amdjax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("f", [chain, loops, amdjax.grad(lambda x: chain(x)[1].sum())])
def test_a_plan_that_was_read_computes_the_same(reads, f):
    with State("keep_plans")(False):
        wanted = fresh(f)(X)
    same(wanted, fresh(f)(X))
    same(wanted, fresh(f)(X))
    assert reads == [False, True]


def test_random_programs_in_another_process(tmp_path):
    script = SCRIPT.replace("SEEDS", str([*range(8)]))
    settings = {"AMDJAX_CACHE_DIR": str(tmp_path), "AMDJAX_CHECK": "0"}
    runs = [
        json.loads(run_python(script, **settings, AMDJAX_KEEP_PLANS=keep).splitlines()[-1])
        for keep in ("0", "1", "1")
    ]
    assert runs[0][0] == runs[1][0] == runs[2][0]
    assert runs[0][1] == [] and len(runs[1][1]) >= 4
    assert not any(runs[1][1]) and all(runs[2][1])


def test_donated_arguments_and_constants(reads):
    table = jnp.asarray(np.arange(2000, dtype=np.float32))

    def f(x):
        return chain(x)[0] * table[:6], table

    with State("keep_plans")(False):
        wanted = fresh(f)(X)
    for _ in range(2):
        x = jnp.asarray(X) + 0
        same(wanted, amdjax.jit(lambda x: f(x), donate_argnums=0)(x))
    assert reads == [False, True]


STAGES = ("jaxpr", "simplified", "fusion", "schedule", "tiles", "passes", "plan", "llvm")


def test_stages_of_a_plan_that_was_read(reads):
    lower = lambda: fresh(loops).lower(X)
    first, second = lower().compile(), lower().compile()
    assert reads == [False, True]
    with State("disabled_passes")(("simplify",)):  # those in force when it was compiled count
        for stage in STAGES:
            assert first.as_text(stage) == second.as_text(stage), stage
    assert first.cost_analysis() == second.cost_analysis()
    assert first.memory_analysis() == second.memory_analysis()
    assert [c[0] for c in first.passes] == [c[0] for c in second.passes]


# Keys


def key(f=chain, args=(X,), donated=None, machine=None, facts=("facts",)):
    closed = amdjax.jit(lambda *xs: f(*xs)).trace(*args).jaxpr
    donated = donated or (False,) * len(args)
    with State("keep_plans")(True), State("check")(False):
        found = plan_key(closed, donated, machine or cpu_target(), facts)
    return None if found is None else (found.local, found.carried)


def with_constant(value):
    """A program with a constant, and literals."""
    return lambda x: chain(x)[0] * jnp.asarray(value).sum()


PROGRAMS = {
    "another length": lambda x: chain(x, 13),
    "another literal": lambda x: chain(x, factor=2.0),
    "negative zero": lambda x: chain(x, factor=-0.0),
    "zero": lambda x: chain(x, factor=0.0),
    "NaN": lambda x: chain(x, factor=np.float32("nan")),
    "another NaN": lambda x: chain(x, factor=np.uint32(0x7FC00001).view(np.float32)),
    "constant": with_constant(np.arange(9000.0)),
    "constant of zeros": with_constant(np.zeros(9000)),
    "constant of negative zeros": with_constant(-np.zeros(9000)),
    "constant but for an element": with_constant(np.arange(9000.0) * (np.arange(9000) < 8999)),
    "body of a loop": lambda x: lax.fori_loop(0, 3, lambda i, y: chain(y)[0], x),
    "longer loop": lambda x: lax.fori_loop(0, 4, lambda i, y: chain(y)[0], x),
    "other body": lambda x: lax.fori_loop(0, 3, lambda i, y: chain(y, factor=2.0)[0], x),
    "precision": lambda x: chain(jnp.matmul(x, x.T, precision="highest")),
    "other precision": lambda x: chain(jnp.matmul(x, x.T, precision="default")),
    "results in another order": lambda x: chain(x)[::-1],
}  # fmt: skip


def test_each_part_of_a_program_counts():
    keys = [key(f) for f in (chain, *PROGRAMS.values())]
    keys += [key(args=(X.astype(np.float16),)), key(args=(X[:3],)), key(args=(X[None],))]
    assert None not in keys
    assert len({local for local, _ in keys}) == len({other for _, other in keys}) == len(keys)


def test_what_is_equal_has_one_key():
    constant = np.arange(9000.0)
    assert key() == key(lambda x: chain(x)) == key(args=(X + 1,))
    assert key(with_constant(constant)) == key(with_constant(constant.copy()))


def weighted(*values):
    """A program of constants, one for each value."""
    consts = [jnp.asarray(v) for v in values]
    again = {id(v): c for v, c in zip(values, consts)}
    return lambda x: sum((chain(x)[0].sum() * again[id(v)].sum() for v in values), 0.0)


def test_values_of_large_weights_do_not_count():
    a = np.arange(20_000, dtype=np.float32)
    assert key(weighted(a)) == key(weighted(a + 1)) != key(weighted(a[:-1]))
    assert key(weighted(a)) != key(weighted(a.astype(np.int32)))
    assert key(weighted(a, a)) != key(weighted(a, a + 1)) == key(weighted(a + 2, a + 3))
    mask = np.arange(200_000) % 2 == 0  # of attention, which may become bounds
    assert key(weighted(mask)) != key(weighted(~mask))


def test_a_plan_serves_other_weights(reads):
    draw = np.random.default_rng(0).standard_normal
    for expected in (False, True):
        w, v, b = (draw(s, np.float32) for s in ((6, 30_000), (30_000, 6), (30_000,)))
        f = lambda x, w=w, v=v, b=b: chain(jnp.tanh(x @ jnp.asarray(w) + b) @ v)[0]
        with State("keep_plans")(False):
            wanted = fresh(f)(X)
        same(wanted, fresh(f)(X))
        assert reads[-1] is expected


NUMBERS = np.random.default_rng(1)
LARGE = {n: jnp.asarray(NUMBERS.standard_normal(s, np.float32)) for n, s in {
    "matrix": (128, 256), "kernel": (3, 3, 32, 64), "table": (500, 40), "mask": (160, 160),
}.items()}  # fmt: skip
BYTES = jnp.asarray(NUMBERS.integers(-9, 9, (512, 256)).astype(np.int8))
READERS = {
    "product": (lambda x: x @ LARGE["matrix"], (20, 128)),
    "product from the left": (lambda x: LARGE["matrix"] @ x, (256, 20)),
    "packed in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, y: y @ LARGE["mask"], x), (16, 160)),
    "product of bytes": (lambda x: x @ (BYTES.astype(np.float32) * 0.1), (20, 512)),
    "convolution": (
        lambda x: lax.conv_general_dilated(
            x, LARGE["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (1, 9, 9, 32)),
    "attention": (
        lambda x: amdjax.nn.dot_product_attention(x, x, x, bias=LARGE["mask"]), (1, 160, 2, 8)),
    "written attention": (
        lambda x: amdjax.nn.softmax(x @ x.T + LARGE["mask"]) @ x, (160, 8)),
    "rows": (lambda x: LARGE["table"][jnp.int32(x) % 500], (30,)),
    "scatter": (lambda x: LARGE["table"].at[jnp.int32(x) % 500].add(1.0), (30,)),
    "scan": (lambda x: lax.scan(lambda c, w: (c + w.sum(), c), x[0], LARGE["table"])[1], (3,)),
    "sort": (lambda x: jnp.sort(LARGE["table"], 0) + x, (1, 40)),
    "select": (lambda x: jnp.where(LARGE["mask"] > 0, x, -jnp.inf), (160, 160)),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_planning_reads_no_large_weights(name, monkeypatch):
    """As keys of plans say."""
    f, shape = READERS[name]
    closed = fresh(f).trace(np.ones(shape, np.float32)).jaxpr
    assert any(c.nbytes > VALUES_COUNT for c in closed.consts)
    whole, read = ConcreteArray.__array__, ConcreteArray.__buffer__

    def refused(method):
        def of(self, *args, **options):
            assert self.nbytes <= VALUES_COUNT, "planning reads a large constant"
            return method(self, *args, **options)

        return of

    monkeypatch.setattr(ConcreteArray, "__array__", refused(whole))
    monkeypatch.setattr(ConcreteArray, "__buffer__", refused(read))
    assert plan_program(closed, cpu_target()).instructions


def test_whether_types_are_weak_counts():
    f = lambda x: (x, *chain(jnp.ones((2, 2)) * x))
    assert key(f, (1.0,)) != key(f, (np.float32(1),))


def test_each_part_of_the_machine_counts():
    machine = cpu_target()
    keys = {key(), key(donated=(True,)), key(facts=("other",))}
    fields = [n for n, v in vars(machine).items() if type(v) is int and v > 0]
    for name in fields:
        keys.add(key(machine=type(machine)(**{**vars(machine), name: 2 * vars(machine)[name]})))
    keys.add(key(machine=amdjax.targets.get("gfx942")))
    keys.add(key(machine=amdjax.targets.get("gfx1100")))
    assert "threads" in fields and "l2_bytes" in fields
    assert None not in keys and len(keys) == 5 + len(fields)


def test_the_compiler_and_what_it_stands_on_count(monkeypatch):
    before = key()
    for name, other in {
        "package_digest": lambda: "other",
        "compiler_version": lambda: ("other",),
        "_versions": lambda: ("other",),
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(f"amdjax.jit.plan_keys.{name}", other)
            assert key()[0] != before[0] and key()[1] != before[1]
    monkeypatch.setattr("amdjax.jit.plan_keys.package_digest", lambda: None)
    assert key() is None


OTHERS = {
    "default_matmul_precision": "highest", "numpy_dtype_promotion": "strict",
    "numpy_rank_promotion": "warn", "explicit_x64_dtypes": "allow", "legacy_prng_key": "warn",
    "default_prng_impl": "rbg", "random_seed_offset": 1, "disabled_passes": ("fuse",),
    "find_mode": "off", "memory_limit": 1 << 20, "constants_limit": 100,
    "exec_time_optimization_effort": -1.0,
}  # fmt: skip
#: Settings under which programs are not planned as usual, and those of other places.
WITHOUT = {"check": None, "default_device": "same", "db_path": "same"}


def test_each_setting_that_tracing_reads_counts():
    closed = amdjax.jit(chain).trace(X).jaxpr
    found = {}
    for name, value in config.traced().items():
        if name in WITHOUT:
            continue
        other = OTHERS.get(name, (not value) if isinstance(value, bool) else None)
        if name in ("find_enforce",):
            continue
        assert other is not None, f"{name}: say here what else it may be"
        with State("keep_plans")(True), State("check")(False), State(name)(other):
            made = plan_key(closed, (False,), cpu_target(), ())
        assert made is not None, name
        found[name] = made.carried
    assert len(set(found.values())) == len(found)


def test_measured_choices_count(tmp_path):
    path = tmp_path / "find.db"
    with State("db_path")(str(path)):
        keys = [key()]
        for data in (b"one", b"two"):
            path.write_bytes(data)
            keys.append(key())
        path.with_name("find.db-wal").write_bytes(b"three")
        keys.append(key())
    assert len({local for local, _ in keys}) == 4
    # A program in a file has the choices of where it was made.
    assert len({carried for _, carried in keys}) == 1


def test_programs_that_are_measured_are_planned():
    for context in (applying({}), deciding(()), State("find_mode")("hybrid")):
        with context:
            assert key() is None
    with State("find_enforce")("search"):
        assert key() is None


def test_programs_that_nothing_tells_are_planned():
    def double(x):
        return np.asarray(x) * 2

    called = lambda x: amdjax.pure_callback(double, amdjax.ShapeDtypeStruct(x.shape, x.dtype), x)
    assert key(lambda x: chain(called(x))) is None
    assert key(lambda x: x + 1) is None  # too small
    with State("check")(True):
        closed = amdjax.jit(chain).trace(X).jaxpr
        assert plan_key(closed, (False,), cpu_target(), ()) is None
    with State("keep_plans")(False):
        assert plan_key(closed, (False,), cpu_target(), ()) is None


def test_plans_that_nothing_keeps_have_no_key():
    closed, loader = amdjax.jit(chain).trace(X).jaxpr, cpu_kernels()
    with State("keep_plans")(True), State("check")(False), State("cache_dir")("off"):
        assert loader.key(closed, (False,), cpu_target()) is None
        with kernels_recorded():
            assert cpu_kernels().key(closed, (False,), cpu_target()) is not None


def test_rules_of_the_user_are_not_told():
    twice = Primitive("twice")
    twice.def_abstract_eval(lambda x: x)
    mlir.register_lowering(twice, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    assert key(lambda x: chain(twice.bind(x))) is None
    assert key(lambda x: lax.fori_loop(0, 2, lambda i, y: chain(twice.bind(y))[0], x)) is None


# Data


def stored():
    """A plan with all kinds of words, as data, and the constants of its program."""
    table = jnp.asarray(X)
    closed = amdjax.jit(lambda x: (loops(x), chain(x @ table.T))).trace(X).jaxpr
    plan = plan_program(closed, cpu_target())
    keys = {id(k): bytes([n]) * 32 for n, k in enumerate(plan.kernels())}
    data = written_plan(plan, closed.consts, keys)
    assert data is not None
    return plan, data, closed.consts


def test_what_is_read_is_what_was_written():
    plan, data, consts = stored()
    read = read_plan(data, consts)
    assert plan_text(read.plan) == plan_text(plan)
    numbers = {id(k): n for n, (k, _) in enumerate(read.keys)}
    of_kernel = lambda k: (k.name, [p.role for p in k.params])
    told = read.plan.identity(of_kernel), plan.identity(of_kernel)
    assert told[0] == told[1]
    assert len(numbers) == len({id(k) for k in plan.kernels()})
    assert [i.step for i in read.plan.instructions] == [i.step for i in plan.instructions]


def test_what_is_in_the_hosts_memory_is_read_there():
    def f(w, x):
        there = amdjax.device_put(jnp.sin(x) @ w, amdjax.memory.Space.Host)
        return amdjax.device_put(2 * x, amdjax.memory.Space.Device) @ w, there, there + 1

    w = np.ones((128, 128), np.float32)
    with State("offload_copy")(True):
        plan = plan_program(amdjax.jit(f).trace(w, w).jaxpr, get("gfx942"))
    keys = {id(k): bytes(32) for k in plan.kernels()}
    read = read_plan(written_plan(plan, (), keys), ()).plan
    assert plan_text(read) == plan_text(plan)
    assert {"ASIDE", "AWAIT"} <= set(plan_text(plan).split())
    assert read.hosted == plan.hosted == {0, 1} and read.host_slot == plan.host_slot
    assert read.host_bytes == plan.host_bytes
    assert [s.space for s in read.storages] == [s.space for s in plan.storages]


def test_constants_keep_their_bits():
    closed = amdjax.jit(chain).trace(X).jaxpr
    plan = plan_program(closed, cpu_target())
    values = [-np.zeros(3), np.zeros((2, 0)), np.array(True), jnp.arange(3, dtype=jnp.bfloat16)]
    values += [np.array([np.nan, -np.inf]), np.array(1 + 2j), jnp.ones(2, jnp.float8_e4m3fn)]
    plan.constants += values
    plan.slots += len(values)
    keys = {id(k): bytes(32) for k in plan.kernels()}
    read = read_plan(written_plan(plan, (), keys), ()).plan.constants[-len(values) :]
    same(values, read)
    plan.constants.append(np.ones(1 << 20))
    assert written_plan(plan, (), keys) is None


def test_hostile_plans_are_refused():
    _, data, consts = stored()
    random_ = random.Random(0)
    refused = 0
    for _ in range(3000):
        mutated = bytearray(data)
        for _ in range(random_.randint(1, 4)):
            at = random_.randrange(len(mutated))
            match random_.randrange(4):
                case 0:
                    mutated[at] = random_.randrange(256)
                case 1:
                    del mutated[at : at + random_.randint(1, 40)]
                case 2:
                    mutated[at:at] = random_.choice([b"9" * 20, b"[", b"null", b"-1", b'"', b"{}"])
                case _:
                    mutated[at] = random_.choice(b"0123456789")
        refused += not is_read(bytes(mutated), consts)
    assert refused > 2000


HOSTILE = [None, True, -1, 1 << 70, 1.5, "", "k", [], {}, [[[]]]]
HOSTILE += [["v", 0, 0, 0, 0], ["z", "f32", [1 << 59]]]


def test_hostile_parts_are_refused():
    _, data, consts = stored()
    random_, refused = random.Random(1), 0
    for _ in range(1500):
        told = json.loads(data)
        place = told
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            at = random_.choice(keys)
            if not isinstance(place[at], (list, dict)) or random_.random() < 0.1:
                place[at] = random_.choice(HOSTILE)
                break
            place = place[at]
        refused += not is_read(json.dumps(told).encode(), consts)
    assert refused > 1000


def is_read(data, consts):
    try:
        read_plan(data, consts)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"numbers": NaN}'])
def test_what_is_no_plan_is_refused(data):
    assert not is_read(data, ())


def forget():
    """Keep in memory nothing of what is on disk."""
    clear_loaded()
    with State("cache_dir")("off"):
        object_cache()


def test_a_damaged_or_incomplete_entry_is_a_miss(reads, kept):
    forget()
    wanted = fresh(chain)(X)
    files = [p for p in kept.rglob("*") if p.is_file() and p.name[0] != "."]
    (plan,) = (p for p in files if b'"instructions"' in p.read_bytes())
    kernel = next(p for p in files if b'"instructions"' not in p.read_bytes())
    contents = plan.read_bytes(), kernel.read_bytes()
    for path, data in ((kernel, None), (plan, contents[0][:-3]), (kernel, contents[1][:-3])):
        path.unlink() if data is None else path.write_bytes(data)
        forget()
        same(wanted, fresh(chain)(X))
        assert (plan.read_bytes(), kernel.read_bytes()) == contents
    forget()
    same(wanted, fresh(chain)(X))
    assert reads == [False, False, False, False, True]


def test_a_plan_that_does_not_fit_is_a_miss(reads):
    """As one of a later version would be, if the key told too little."""
    wanted, found = fresh(chain)(X), key()
    object_cache().put(found[0], b'{"numbers": [0, 2, 3, 4, 5]}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("amdjax.jit.kernels.plan_key", lambda *args: PlanKey(*found))
        same(wanted, fresh(chain)(X))
    assert reads == [False, False]
