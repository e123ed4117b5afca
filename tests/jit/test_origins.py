"""Kernels know which operation, on which line of the user, each of their ops was made from."""

import re
import subprocess

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, random, targets, tile
from amdjax.codegen.elf.format import ElfFile
from amdjax.emulator import CodeObject
from amdjax.emulator.debug.scopes import chain_text
from amdjax.jit.api import clear_caches
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.gpu.kernels import compile_device
from amdjax.jit.plan import plan_program
from amdjax.runtime.cache import object_cache
from tests.support.gpu_cases import CASES
from tests.support.llvm_tools import tool

X = np.ones((8, 200), np.float32)
GFX942 = targets.get("gfx942")


def scaled(x):
    return jnp.exp(x) - 0.75


def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def tiles(fun, *args, target="gfx942"):
    return amdjax.jit(fun).lower(*args).compile(target).as_text("tiles")


def line_of(fun, offset=1):
    """A line of a function, the first of its body by default."""
    return fun.__code__.co_firstlineno + offset


def remark(operation, fun, offset=1):
    return f"; `{operation}` at test_origins.py:{line_of(fun, offset)} ({fun.__name__})"


# Texts


@pytest.mark.parametrize("target", [None, "gfx942", "sm_90a"])
def test_tile_programs_show_lines(target):
    text = tiles(softmax, X, target=target)
    for operation, line in (("reduce_max", 1), ("exp", 1), ("reduce_sum", 2), ("div", 2)):
        assert remark(operation, softmax, line) in text


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_assembly_shows_ops_and_lines(target):
    program = amdjax.jit(scaled).lower(np.ones(5000, np.float32)).compile(target)
    text, shown = program.as_text("amdgcn"), program.as_text("tiles").splitlines()
    ops = [re.sub(r" +; `.*", "", line) for line in shown]
    above, _, _ = text.partition("global_load")
    number, op = re.findall(r"^; +(\d+)  (.*)$", above, re.MULTILINE)[-1]
    assert ops[int(number) - 1] == op and "= load x" in op
    assert re.findall(r"^; `.*$", above, re.MULTILINE)[-1] == remark("exp", scaled)
    assert remark("sub", scaled) in text
    assert ".debug_" not in text and ".loc" not in text and ".file" not in text
    assert "s_endpgm" in text and "amdhsa.kernels" in text


def test_debuggers_show_operations_as_inlined_calls(tmp_path):
    (record,) = amdjax.jit(softmax).lower(X).compile("gfx942").kernels
    path = tmp_path / "kernel.co"
    path.write_bytes(record.code)

    def dwarfdump(option):
        command = [tool("llvm-dwarfdump"), option, path]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "No errors" in dwarfdump("--verify")
    calls = re.findall(
        rf'abstract_origin\s+\(0x\w+ "(\w+)"\)(?:(?!DW_TAG).)*call_file\s+\("{__file__}"\)'
        r"\s+DW_AT_call_line\s+\((\d+)\)", dwarfdump("--debug-info"), re.DOTALL)  # fmt: skip
    first, second = str(line_of(softmax)), str(line_of(softmax, 2))
    assert set(calls) == {("reduce_max", first), ("sub", first), ("exp", first),
                          ("reduce_sum", second), ("div", second)}  # fmt: skip


def test_files_and_functions_of_any_name():
    space = {"jnp": jnp}
    exec(compile("f = lambda x: jnp.exp(x)", 'a "quoted"\\name.py', "exec"), space)
    compiled = amdjax.jit(space["f"]).lower(X).compile("gfx942")
    (kernel,) = CodeObject(compiled.kernels[0].code).kernels.values()
    chains = {chain_text(kernel.chain_of(pc)) for pc in range(0, len(kernel.code), 4)}
    assert '`exp` at a "quoted"\\name.py:1 (<lambda>)' in chains
    assert '`exp` at a "quoted"\\name.py:1 (<lambda>)' in compiled.as_text("amdgcn")


def test_equal_functions_of_different_files():
    """Python finds their code equal, but for the name of the file."""
    spaces = [{"jnp": jnp}, {"jnp": jnp}]
    for space, file in zip(spaces, ("one.py", "other.py")):
        exec(compile("def f(x):\n  return jnp.sort(x, axis=1)[:, ::-1]", file, "exec"), space)
    one, other = (space["f"] for space in spaces)
    compiled = amdjax.jit(lambda x: other(one(x))).lower(X).compile("gfx942")
    assert {"one.py", "other.py"} <= set(re.findall(r'filename: "(\w+\.py)"', llvm_of(compiled)))


def llvm_of(compiled):
    """Of every kernel that was compiled, those included that texts show once."""
    kernels = next(x for name, x in compiled.stages if name == "kernels")
    return "\n".join(k.llvm for k in kernels.values())


@pytest.mark.parametrize("fun", [softmax, lambda x: jnp.sort(x), lambda x: x @ x.T])
def test_machine_code_is_the_same_with_and_without(fun):
    jaxpr = amdjax.jit(fun).trace(X).jaxpr
    made = [compile_device(jaxpr, GFX942, debug=debug)[1].values() for debug in (False, True)]
    for plain, debug in zip(*made, strict=True):
        one, other = ElfFile(plain.code), ElfFile(debug.code)
        for section in (".text", ".rodata", ".note"):
            assert one.section(section).data == other.section(section).data, section


# Whose line it is


def test_backward_passes_name_the_line_that_is_differentiated():
    def cost(x):
        y = jnp.sin(x)
        return (y * 3).sum()

    text = tiles(amdjax.grad(cost), X)
    assert remark("cos", cost) in text and remark("mul", cost, 2) in text


def test_what_the_library_writes_belongs_to_its_caller():
    """Decomposed operations, samplers that are traced once for all callers, and their loops."""

    def first(x):
        return random.normal(random.key(0), x.shape) + lax.logistic(x)

    def second(x):
        y = random.gamma(random.key(0), x)
        return jnp.linalg.norm(y)

    def third(x):
        return random.normal(random.key(0), x.shape) - 1

    for fun, lines in ((first, {1}), (second, {1, 2}), (third, {1})):
        named = re.findall(r"; `\w+`(?: at \S+?:(\d+) \((\w+)\))?", tiles(fun, X))
        assert {name for _, name in named} == {fun.__name__}
        assert {int(line) for line, _ in named} == {line_of(fun, i) for i in lines}


def test_loops_of_arrays_and_of_numbers():
    def body(i, x):
        return jnp.tanh(x) + i

    def loop(x):
        return lax.fori_loop(0, 3, body, x)

    def step(n):
        return n * n + 1

    def count(n):
        return lax.while_loop(lambda n: n < 10, step, n)

    assert remark("tanh", body) in tiles(loop, X)
    text = tiles(count, 2)
    assert remark("mul", step) in text and remark("while", count) in text


ACCESSES = frozenset({
    "load", "store", "load_at", "store_at", "atomic", "reduce", "cumulative", "dot", "contract",
})  # fmt: skip


@pytest.mark.parametrize("machine", [cpu_target(), GFX942], ids=["cpu", "gfx942"])
@pytest.mark.parametrize("name", CASES)
def test_whatever_touches_memory_has_an_origin(name, machine):
    fun, *args = CASES[name]
    for kernel in plan_program(amdjax.jit(fun).trace(*args).jaxpr, machine).kernels():
        text, lines = tile.listing(kernel)
        known = tile.origins(kernel, lines)
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition(" = ")[2] or line.strip()
            assert words.split()[0] not in ACCESSES or number in known, line


# What is shared


def twins():
    """The same program, written twice."""

    def one(x):
        return jnp.sinh(x) * 1.375

    def other(x):
        return jnp.sinh(x) * 1.375

    return one, other


@pytest.mark.parametrize("machine", ["cpu", "gpu", "gpu with lines"])
def test_cache_keys(machine, monkeypatch):
    """Who wrote a program is part of its kernels' identity only where the code says so."""
    cache = type(object_cache())
    asked, get = [], cache.get

    def noted(self, key):
        asked.append(key)
        return get(self, key)

    def keys(fun):
        clear_caches()
        asked.clear()
        lowered = amdjax.jit(fun).lower(X)
        if machine == "cpu":
            lowered.compile()
        else:
            compile_device(lowered.traced.jaxpr, GFX942, debug=machine == "gpu with lines")
        return list(asked)

    monkeypatch.setattr(cache, "get", noted)
    one, other = twins()
    keys(one)  # and what the runtime itself needs
    assert len(keys(one)) == 1 and keys(one) == keys(one)
    assert (keys(one) == keys(other)) == (machine != "gpu with lines")


@pytest.mark.parametrize("debug,kernels", [(False, 1), (True, 2)])
def test_equal_steps_share_a_kernel_that_does_not_say_where_it_comes_from(debug, kernels):
    def loss(x):
        for _ in range(3):
            x = jnp.sort(x, axis=1)[:, ::-1]
        return jnp.sort(x, axis=1)[:, ::-1]

    jaxpr = amdjax.jit(loss).trace(X).jaxpr
    plan, made = compile_device(jaxpr, GFX942, debug=debug)
    sorts = [k for k in plan.kernels() if k.name.startswith("sort")]
    assert len(sorts) == 4 and len({made[id(k)].code for k in sorts}) == kernels
