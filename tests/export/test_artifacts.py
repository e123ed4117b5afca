"""Programs in files: what is read is what was saved, with machine code only where it is trusted."""

import json
import os
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load as load_safetensors

import amdjax
import amdjax.numpy as jnp
from amdjax import export, lax, nn
from amdjax.codegen.engine import Compilation
from amdjax.core.config import State
from amdjax.core.jaxpr import subjaxprs
from amdjax.core.primitive import Primitive
from amdjax.emulator.device import emulated_device
from amdjax.export.container import Members, write_file
from amdjax.find.database import Database, Result
from amdjax.find.machines import default_machine, machine_key, version
from amdjax.find.problem import decided, problem_of, steps
from amdjax.jit.cpu import program
from amdjax.jit.gpu import kernels as gpu_kernels
from amdjax.jit.kernels import clear_loaded
from amdjax.schedule.search import Decisions
from tests.support.jit_helpers import run_python

W = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
X = np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)


def function(x):
    return {"y": jnp.tanh(x @ W), "sum": [x.sum(0), None]}


def exported(text="b, 8"):
    spec = amdjax.ShapeDtypeStruct(export.symbolic_shape(text), np.float32)
    return export.export(amdjax.jit(function))(spec)


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Counts kernels that are compiled; none is found on disk or in memory."""
    monkeypatch.setenv("AMDJAX_CACHE_DIR", str(tmp_path / "cache"))
    before, add, texts = amdjax.config.cache_dir, Compilation.add, []
    amdjax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    monkeypatch.setattr(
        Compilation, "add", lambda self, text: (texts.append(text), add(self, text))
    )

    def forget():
        texts.clear()
        clear_loaded()
        amdjax.config.update("jax_compilation_cache_dir", str(tmp_path / str(os.urandom(4).hex())))

    forget()
    yield texts, forget
    amdjax.config.update("jax_compilation_cache_dir", before)
    clear_loaded()


def right(got, x=X):
    np.testing.assert_allclose(got["y"], np.tanh(x @ W), rtol=1e-6)
    np.testing.assert_allclose(got["sum"][0], x.sum(0), rtol=1e-6)
    assert got["sum"][1] is None


def test_what_is_read_is_what_was_saved(tmp_path):
    path = tmp_path / "f.amdjax"
    exported().save(path, metadata={"by": "me"})
    artifact = amdjax.load_artifact(path)
    right(artifact(X))
    right(artifact(X[:1]), X[:1])
    right(export.deserialize(path.read_bytes()).call(X))
    assert artifact.metadata == {"by": "me"} and not artifact.targets and not artifact.is_trusted
    assert str(artifact.inputs[0]) == "0: float32[b,8]"
    assert artifact.manifest["schema"] == 2 and artifact.params == {}


def test_a_fresh_process_knows_all_operations(tmp_path):
    f = amdjax.jit(lambda x: x * amdjax.random.gamma(amdjax.random.key(3), 2.0, x.shape))
    export.export(f)(X).save(tmp_path / "f")
    made = run_python(f"""
        import amdjax, numpy as np
        x = np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)
        made = amdjax.load_artifact({str(tmp_path / "f")!r})(x)
        print(np.asarray(made).tobytes().hex())
    """)
    assert made.strip() == np.asarray(f(X)).tobytes().hex()


def test_others_transform_what_was_read(tmp_path):
    exported().save(tmp_path / "f")
    f = lambda x: amdjax.load_artifact(tmp_path / "f").function({}, x)["y"]
    expected = (1 - np.tanh(X @ W) ** 2) @ W.T
    np.testing.assert_allclose(amdjax.grad(lambda x: f(x).sum())(X), expected, rtol=1e-5)
    np.testing.assert_allclose(amdjax.vmap(f)(X[None])[0], np.tanh(X @ W), rtol=1e-6)
    np.testing.assert_allclose(amdjax.jit(f)(X), np.tanh(X @ W), rtol=1e-6)


def test_the_file_is_a_plain_archive(tmp_path):
    exported().save(tmp_path / "f", targets=["cpu"])
    with zipfile.ZipFile(tmp_path / "f") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[0] == "manifest.json" and "program.txt" in names
        assert any(n.startswith("kernels/cpu/") for n in names)
        manifest = json.loads(archive.read("manifest.json"))
        assert sorted(manifest["hashes"]) == sorted(names[1:])
        arrays = load_safetensors(archive.read("weights.safetensors"))
        np.testing.assert_array_equal(arrays["constant.0"], W)
        data = (tmp_path / "f").read_bytes()
        for name in names:
            assert data.index(archive.read(name)) % 64 == 0
    exported().save(tmp_path / "g", targets=["cpu"])
    assert (tmp_path / "g").read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == ["f", "g"]


@pytest.mark.parametrize("trusted", [{"trust": True}, {"keys": {"k": b"secret"}}, {}])
@pytest.mark.parametrize("shape", ["b, 8", "2, 8"])
def test_machine_code_runs_where_it_is_trusted(tmp_path, compiled, trusted, shape):
    texts, forget = compiled
    exported(shape).save(tmp_path / "f", targets=["cpu"], key=("k", b"secret"))
    assert texts
    forget()
    artifact = amdjax.load_artifact(tmp_path / "f", **trusted)
    right(artifact(X))
    assert bool(texts) != bool(trusted) and artifact.is_trusted == bool(trusted)


@pytest.fixture
def planned(monkeypatch, compiled):
    """Names of what is planned, while plans are kept; none is found on disk."""
    names, plan = [], program.plan_program
    monkeypatch.setattr(program, "plan_program", lambda *args: names.append(1) or plan(*args))
    with State("keep_plans")(True), State("check")(False):
        yield names


def long(x):
    for i in range(12):
        x = jnp.sin(x) + jnp.flip(x, i % 2)
    return x @ W


@pytest.mark.parametrize("trusted", [{"trust": True}, {"keys": {"k": b"secret"}}, {}])
def test_plans_come_with_machine_code(tmp_path, compiled, planned, trusted):
    e = export.export(amdjax.jit(long))(amdjax.ShapeDtypeStruct(X.shape, X.dtype))
    wanted = e.call(X)
    e.save(tmp_path / "f", targets=["cpu"], key=("k", b"secret"))
    for damaged in (False, True):
        compiled[1]()
        planned.clear()
        if damaged:  # on purpose, so that hashes are right
            change(tmp_path / "f", lambda name: name.startswith("plans/"))
            trusted = {name: True for name in trusted if name == "trust"}
        artifact = amdjax.load_artifact(tmp_path / "f", **trusted)
        assert np.asarray(artifact(X)).tobytes() == np.asarray(wanted).tobytes()
        # Who may write a plan may name any memory: it is read where machine code is.
        assert bool(planned) == (damaged or not trusted)


def is_read(program):
    """Whether a program that is read late was."""
    try:
        object.__getattribute__(program, "jaxpr")
    except AttributeError:
        return False
    return True


def test_programs_with_plans_are_not_read(tmp_path, compiled, planned):
    e = export.export(amdjax.jit(long))(X)
    wanted = np.asarray(e.call(X)).tobytes()
    e.save(tmp_path / "f", targets=["cpu"])
    compiled[1]()
    planned.clear()
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    program = artifact.exported.program
    assert np.asarray(artifact(X)).tobytes() == wanted
    assert not is_read(program) and not planned
    with pytest.raises(TypeError, match=r"Argument 'args\[0\]'"):
        artifact(X[:1])
    assert str(program) == str(e.program)
    g = amdjax.grad(lambda x: artifact(x).sum())(X)
    np.testing.assert_array_equal(g, amdjax.grad(lambda x: e.call(x).sum())(X))
    # Without trust it is read at once.
    assert is_read(amdjax.load_artifact(tmp_path / "f").exported.program)


def attended(q, w):
    """Products whose plans depend on sizes, sums over a size, and a size as a number."""
    h = jnp.tanh(q @ w)
    p = nn.softmax(h @ h.swapaxes(-1, -2) / jnp.sqrt(jnp.float32(h.shape[0])))
    return {"y": (p @ h).sum(0), "n": h.mean((0, 1)), "z": jnp.flip(p, 1)}


def test_plans_of_symbolic_sizes_come_with_machine_code(tmp_path, compiled, planned):
    """The very plans: for all sizes the same bits as where they were made, and no planning."""
    w = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    spec = amdjax.ShapeDtypeStruct(export.symbolic_shape("b, t, 64"), np.float32)
    e = export.export(amdjax.jit(attended))(spec, w)
    sizes = [(2, 8), (8, 40), (3, 5)]
    e.save(tmp_path / "f", targets=["cpu"], example=[{"b": b, "t": t} for b, t in sizes])
    xs = [np.random.default_rng(b * t).normal(size=(b, t, 64)).astype("f4") for b, t in sizes]
    wanted = [e.call(x, w) for x in xs]
    compiled[1]()
    planned.clear()
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    for x, want in zip(xs, wanted):
        got = artifact(x, w)
        assert not planned and not compiled[0]
        np.testing.assert_allclose(got["y"], want["y"], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got["n"], want["n"], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got["z"], want["z"], rtol=1e-6, atol=1e-6)
    # Other sizes are served by these plans, or by ones that are made for them.
    for b, t in ((2, 9), (7, 64), (1, 8), (4, 1), (200, 3)):
        x = np.random.default_rng(t).normal(size=(b, t, 64)).astype("f4")
        want = amdjax.jit(attended)(x, w)
        for k, got in artifact(x, w).items():
            np.testing.assert_allclose(got, want[k], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["gfx942", "gfx1100"])
def test_plans_for_gpus_come_with_machine_code(tmp_path, compiled, monkeypatch, name):
    """Made with no GPU at hand, run by an emulated one, which plans nothing."""

    def f(x):
        y, tops = lax.scan(lambda h, t: (jnp.tanh(h @ w) + t, h.max()), x, jnp.arange(3.0))
        return long(y), tops, lax.cond(y.sum() > 0, lambda: y * 2, lambda: y - 1)

    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)

    names, plan = [], gpu_kernels.plan_program
    monkeypatch.setattr(
        gpu_kernels, "plan_program", lambda *a, **k: names.append(1) or plan(*a, **k)
    )
    with State("keep_plans")(True), State("check")(False):
        e = export.export(amdjax.jit(f))(X)
        e.save(tmp_path / "f", targets=[name])
        members = Members(tmp_path / "f")
        (stored,) = (n for n in members.names() if n.startswith(f"plans/{name}/"))
        # Programs of the loop stay resident, and wait for each other.
        kernels = json.loads(bytes(members[stored]))["kernels"]
        assert any(cooperative for *_, facts in kernels for *_, cooperative in [facts])
        compiled[1]()
        names.clear()
        with amdjax.default_device(emulated_device(name)):
            artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
            got = artifact(X)
            assert not names and not compiled[0] and not is_read(artifact.exported.program)
            lowered = artifact.exported.compiled()
            assert "sin" in lowered.as_text("tiles") and names
        for a, b in zip(got, e.call(X)):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_programs_whose_operations_have_rules_of_the_users_have_no_plans(
    tmp_path, compiled, planned, monkeypatch
):
    e = export.export(amdjax.jit(long))(X)
    e.save(tmp_path / "f", targets=["cpu"])
    compiled[1]()
    planned.clear()
    sin = jnp.sin(X)  # compiled by the rule as it is
    rule = Primitive.by_name["sin"].lowering
    own = type(rule)(lambda b, x, **_: x)
    monkeypatch.setattr(Primitive.by_name["sin"], "lowering", own)
    made = amdjax.load_artifact(tmp_path / "f", trust=True)(X)
    expected = X
    for i in range(12):
        expected = expected + np.flip(expected, i % 2)
    np.testing.assert_allclose(made, expected @ W, rtol=1e-5)
    assert planned and not np.array_equal(sin, X)


@pytest.mark.parametrize("old, new", [("sin", "cos"), ("f32[2,8]", "f32[2,9]"), ("sin", "sine")])
def test_programs_that_are_read_late_are_what_was_told(tmp_path, compiled, planned, old, new):
    """Texts with right hashes: none is taken for the program that a plan was made of."""
    export.export(amdjax.jit(long))(X).save(tmp_path / "f", targets=["cpu"])
    compiled[1]()
    planned.clear()
    text = bytes(Members(tmp_path / "f")["program.txt"]).decode().replace(old, new)
    change(tmp_path / "f", lambda name: name == "program.txt", text.encode())
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    if new == "cos":
        expected = jnp.asarray(X)
        for i in range(12):
            expected = jnp.cos(expected) + jnp.flip(expected, i % 2)
        np.testing.assert_allclose(artifact(X), expected @ W, rtol=1e-5, atol=1e-6)
        assert planned
    else:
        with pytest.raises(export.ArtifactError, match=r"program\.txt"):
            artifact(X)


def test_types_that_are_told_are_those_of_the_program(tmp_path):
    export.export(amdjax.jit(long))(X).save(tmp_path / "f")
    members = Members(tmp_path / "f")
    told = {k: v for k, v in members.manifest.items() if k != "hashes"}
    told["programs"]["main"]["in_types"] = ["f32[3,8]"]
    write_file(tmp_path / "f", {n: bytes(members[n]) for n in members.names()}, told)
    with pytest.raises(export.ArtifactError, match="its types are not those"):
        amdjax.load_artifact(tmp_path / "f")
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    with pytest.raises(export.ArtifactError, match="its types are not those"):
        artifact(np.zeros((3, 8), np.float32))


def test_names_of_layers_stay(tmp_path):
    """In programs in programs too, one of which is called twice."""

    @amdjax.jit
    def layer(x):
        with amdjax.named_scope("norm"):
            return x / jnp.sqrt((x * x).sum())

    def f(x):
        with amdjax.named_scope("net"):
            x = layer(layer(x))
            with amdjax.named_scope("loop"):
                return lax.fori_loop(0, 3, lambda i, y: layer(y) + i, x)

    def names(program):
        found = [(e.primitive.name, str(e.source.name_stack)) for e in program.eqns]
        return found + [n for body in subjaxprs(program) for n in names(body)]

    e = export.export(amdjax.jit(f))(X)
    e.save(tmp_path / "f")
    for trust in (False, True):
        artifact = amdjax.load_artifact(tmp_path / "f", trust=trust)
        assert names(artifact.exported.program) == names(e.program)
        assert {"net/loop", "norm"} <= {n for _, n in names(e.program)}
        artifact.save(tmp_path / "g")
        assert (tmp_path / "g").read_bytes() == (tmp_path / "f").read_bytes()
    good = json.loads(bytes(Members(tmp_path / "f")["names.json"]))
    told = good["program.txt"]
    for wrong in (
        told["of"][:-1], [*told["of"], 0], [9, *told["of"][1:]], [-1, *told["of"][1:]],
        [True, *told["of"][1:]], None,
    ):  # fmt: skip
        text = json.dumps({"program.txt": told | {"of": wrong}}).encode()
        change(tmp_path / "f", lambda name: name == "names.json", text)
        with pytest.raises(export.ArtifactError, match=r"names\.json"):
            amdjax.load_artifact(tmp_path / "f")
    export.export(amdjax.jit(lambda x: layer(x) + 1))(X).save(tmp_path / "h")
    export.export(amdjax.jit(lambda x: x + 1))(X).save(tmp_path / "i")
    assert "names.json" not in Members(tmp_path / "i").names()


def tuned(database):
    """A program of which a measured choice, in a database, differs from the usual one."""

    def f(x, w):
        return jnp.tanh(x @ w)

    x, w = np.ones((64, 96), np.float32), np.ones((96, 64), np.float32)
    machine = default_machine()
    (step,) = steps(amdjax.make_jaxpr(f)(x, w), machine)
    usual = decided(step, machine).taken
    way = next(o for o in reversed(decided(step, machine, listing=True).options[0]) if [o] != usual)
    result = Result((way,), "right", 1e-9)
    Database(database).record(problem_of(step), machine_key(machine), version(), result)
    return f, (x, w), way


def test_measured_choices_come_with_a_program(tmp_path, monkeypatch, compiled):
    """They are data: followed where the file is not trusted, too."""
    with State("db_path")(str(tmp_path / "find.db")):
        f, args, way = tuned(tmp_path / "find.db")
        export.export(amdjax.jit(f))(*args).save(tmp_path / "f", targets=["cpu"])
    followed, take = [], Decisions.take
    monkeypatch.setattr(
        Decisions, "take", lambda self, *args: (take(self, *args), followed.extend(self.taken))[0]
    )
    with State("db_path")("off"):
        artifact = amdjax.load_artifact(tmp_path / "f")
        np.testing.assert_allclose(artifact(*args), np.tanh(args[0] @ args[1]), rtol=1e-5)
        assert followed == [way]
        artifact.save(tmp_path / "g", targets=["cpu"])  # choices stay with it
        followed.clear()
        export.export(amdjax.jit(f))(*args).call(*args)
        assert not followed
    members = Members(tmp_path / "g")
    assert bytes(members["choices.json"]) == bytes(Members(tmp_path / "f")["choices.json"])
    for text in (b"[]", b"{}", b'{"choices": [3]}', b'{"choices": [{"machine": 1}]}'):
        change(tmp_path / "g", lambda name: name == "choices.json", text)
        with pytest.raises(export.ArtifactError, match=r"choices\.json"):
            amdjax.load_artifact(tmp_path / "g")


def test_choices_of_other_compilers_are_left_aside(tmp_path, compiled):
    with State("db_path")(str(tmp_path / "find.db")):
        f, args, way = tuned(tmp_path / "find.db")
        export.export(amdjax.jit(f))(*args).save(tmp_path / "f", targets=["cpu"])
    text = bytes(Members(tmp_path / "f")["choices.json"])
    changed = text.replace(json.dumps(way.plan).encode(), b'"a plan of old"')
    assert changed != text
    change(tmp_path / "f", lambda name: name == "choices.json", changed)
    with State("db_path")("off"):
        made = amdjax.load_artifact(tmp_path / "f")(*args)
    np.testing.assert_allclose(made, np.tanh(args[0] @ args[1]), rtol=1e-5)


def test_a_machine_that_knows_nothing_compiles_nothing(tmp_path):
    f = amdjax.jit(long)
    with State("keep_plans")(True), State("check")(False):
        export.export(f)(X).save(tmp_path / "f", targets=["cpu"])
    made = run_python(
        f"""
        import amdjax, numpy as np
        from amdjax.codegen import compile_worker, engine
        compile_worker.Compiler.object_code = engine.Compilation.add = None
        x = np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)
        made = amdjax.load_artifact({str(tmp_path / "f")!r}, trust=True)(x)
        print(np.asarray(made).tobytes().hex())
        """,
        AMDJAX_CACHE_DIR="off", AMDJAX_KEEP_PLANS="1", AMDJAX_CHECK="0",
    )  # fmt: skip
    assert made.strip() == np.asarray(f(X)).tobytes().hex()


def change(path, chosen, data=b"{}"):
    """Put members of an artifact to shame."""
    members = Members(path)
    told = {k: v for k, v in members.manifest.items() if k != "hashes"}
    write_file(path, {n: data if chosen(n) else bytes(members[n]) for n in members.names()}, told)


@pytest.mark.parametrize("shape", ["b, 8", "2, 8"])
def test_machine_code_is_made_without_a_gpu(tmp_path, compiled, shape):
    texts, forget = compiled
    exported(shape).save(tmp_path / "f", targets=["gfx1100", "sm_90"], example=None)
    forget()
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    assert artifact.targets == ("gfx1100", "sm_90")
    with amdjax.default_device(emulated_device("gfx1100")):
        right(artifact(X))
        assert not texts
        right(amdjax.load_artifact(tmp_path / "f")(X))
        assert texts


def test_what_others_made_is_compiled_again(tmp_path, compiled, monkeypatch, caplog):
    texts, forget = compiled
    with monkeypatch.context() as changed:
        changed.setattr("amdjax.runtime.cache.CODEGEN_VERSION", -1)
        exported().save(tmp_path / "f", targets=["cpu"])
    forget()
    with caplog.at_level("DEBUG", "amdjax"):
        right(amdjax.load_artifact(tmp_path / "f", trust=True)(X))
    assert texts and "kernels for cpu are compiled again: the compiler differs" in caplog.text
    assert "is compiled here: no source has it" in caplog.text


def test_sizes_that_machine_code_is_made_for(tmp_path):
    e = exported()
    e.save(tmp_path / "f", targets=["cpu"], example={"b": 40})
    assert amdjax.load_artifact(tmp_path / "f").manifest["targets"]["cpu"]["sizes"] == [{"b": 40}]
    spec = amdjax.ShapeDtypeStruct(export.symbolic_shape("b, 8", constraints=["b >= 20"]), "f4")
    export.export(amdjax.jit(function))(spec).save(tmp_path / "f", targets=["cpu"])
    assert amdjax.load_artifact(tmp_path / "f").manifest["targets"]["cpu"]["sizes"] == [{"b": 20}]
    with pytest.raises(ValueError, match="sizes lacks 'b'"):
        e.save(tmp_path / "f", targets=["cpu"], example={"c": 40})
    with pytest.raises(ValueError, match="gfx1"):
        e.save(tmp_path / "f", targets=["gfx1"])
    with pytest.raises(ValueError, match="targets must be a list"):
        e.save(tmp_path / "f", targets="cpu")


def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path, monkeypatch):
    exported().save(tmp_path / "f")
    before = (tmp_path / "f").read_bytes()

    def fail(handle):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        exported("2, 8").save(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == before and os.listdir(tmp_path) == ["f"]


def test_types_of_64_bits_are_those_it_was_traced_with(tmp_path):
    with amdjax.enable_x64(True):
        spec = amdjax.ShapeDtypeStruct((3,), np.int64)
        e = export.export(amdjax.jit(lambda x: x * np.int64(1 << 40)))(spec)
        e.save(tmp_path / "f")
    made = amdjax.load_artifact(tmp_path / "f")(np.arange(3))
    assert made.dtype == np.int64 and made.tolist() == [0, 1 << 40, 2 << 40]


@pytest.mark.parametrize("dtype", ["bool", "int4", "bfloat16", "float8_e4m3fnuz", "complex64"])
def test_constants_of_dtypes_that_the_format_lacks(tmp_path, dtype):
    table = jnp.asarray([[1, 0, 1]]).astype(dtype)
    e = export.export(amdjax.jit(lambda x: (table, x)))(jnp.ones(2))
    e.save(tmp_path / "f")
    got = amdjax.load_artifact(tmp_path / "f")(np.ones(2, np.float32))[0]
    assert got.dtype == table.dtype and got.shape == (1, 3)
    np.testing.assert_array_equal(got.astype(np.complex64), table.astype(np.complex64))
