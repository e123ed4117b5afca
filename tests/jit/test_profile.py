"""Counters of whole programs, on the emulator."""

import re
from collections import Counter

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.emulator import operations_table

TARGETS = ("gfx942", "gfx1100")


def compiled(fun, *args, target, **options):
    return amdjax.jit(fun, **options).lower(*args).compile(target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_map_moves_each_byte_once_in_whole_lines(target):
    x = jnp.arange(4096.0)
    counted = compiled(lambda x: x * 2 + 1, x, target=target).profile(x)
    assert [c.kernel for c in counted] == ["map_add"]
    total = counted.total
    assert (total.bytes_read, total.bytes_written) == (4 * 4096, 4 * 4096)
    assert total.coalescing == 1.0 and total.lds_accesses == 0


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_reads_its_rows_once(target):
    x = jnp.ones((16, 1024))
    counted = compiled(nn.softmax, x, target=target).profile(x)
    assert len(counted) == 1
    assert counted.total.bytes_read == x.nbytes and counted.total.bytes_written == x.nbytes
    assert counted.total.bank_conflicts == 0


def test_products_run_on_the_matrix_unit():
    x = jnp.ones((128, 128), jnp.float16)
    counted = compiled(lambda x: x @ x, x, target="gfx942").profile(x)
    assert counted.total.matrix_flops == 2 * 128**3
    assert "product" in str(counted) and "emulated gfx942" in counted._repr_html_()


def test_donated_arguments_stay():
    x = jnp.arange(8.0)
    compiled(lambda x: x + 1, x, target="gfx942", donate_argnums=0).profile(x)
    np.testing.assert_array_equal(np.asarray(x), np.arange(8.0))


def test_loops_count_every_launch():
    def power(x):
        inner = lambda y: amdjax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y @ x), y)
        return amdjax.lax.fori_loop(0, 5, lambda i, y: inner(y) + i, x)

    x = jnp.eye(16)
    counted = compiled(power, x, target="gfx1100").profile(x)
    assert sum(c.kernel == "persistent_product" for c in counted) == 5


def test_a_loop_that_is_one_launch_counts_once():
    power = lambda x: amdjax.lax.fori_loop(0, 5, lambda i, y: jnp.sin(y @ x), x)
    counted = compiled(power, jnp.eye(16), target="gfx1100").profile(jnp.eye(16))
    (loop,) = [c for c in counted if c.kernel == "persistent_product"]
    assert loop.barriers >= 5 * loop.waves


def layer(x):
    y = jnp.exp(x - 1)
    return y / y.sum(1, keepdims=True)


@pytest.mark.parametrize("target", TARGETS)
def test_operations_of_the_user(target):
    x = jnp.ones((16, 512))
    counted = compiled(layer, x, target=target).profile(x)
    found, first = counted.total.by_operation, layer.__code__.co_firstlineno
    line = {op.function: op.line - first for op in found if op is not None and op.line}
    assert line == {"sub": 1, "exp": 1, "reduce_sum": 2, "div": 2}
    by_name = {op.function if op else "": c for op, c in found.items()}
    assert by_name["sub"].bytes_read == x.nbytes and by_name["div"].bytes_written == x.nbytes
    assert by_name["reduce_sum"].lds_accesses and not by_name["exp"].lds_accesses
    assert by_name["exp"].flops > 4 * by_name["sub"].flops


@pytest.mark.parametrize("target", TARGETS)
def test_operations_add_up(target):
    """What the launches did is shared out among the operations."""
    x = jnp.ones((64, 64))
    counted = compiled(lambda x: jnp.sort(layer(x @ x)), x, target=target).profile(x)
    assert len(counted) > 2
    total, parts = counted.total, counted.total.by_operation.values()
    for name in ("instructions", "flops", "matrix_flops", "bytes_read", "bytes_written", "lines_64",
                 "accesses", "lds_accesses", "lds_bytes", "bank_cycles", "bank_ideal"):  # fmt: skip
        assert getattr(total, name) == sum(getattr(c, name) for c in parts), name
    assert sum((c.by_mnemonic for c in parts), Counter()) == total.by_mnemonic


def test_table_of_operations():
    x = jnp.ones((16, 512))
    counted = compiled(layer, x, target="gfx942").profile(x)
    kernels, operations, *_ = str(counted).split("\n\n")
    assert "rows_" in kernels and "made from" not in kernels
    rows = [re.split(r"  +", row) for row in operations.splitlines()]
    assert rows[0][:3] == ["made from", "share", "instructions"]
    assert len({len(row) for row in rows}) == 1
    line = layer.__code__.co_firstlineno + 1
    assert f"exp at test_profile.py:{line} (layer)" in [row[0] for row in rows]
    counts = [int(row[2].replace(",", "")) for row in rows[1:]]
    assert counts == sorted(counts, reverse=True) and sum(counts) == counted.total.instructions
    assert operations_table(counted.launches) == operations and operations_table([]) == ""


def test_what_cannot_be_counted():
    x = jnp.ones(4)
    with pytest.raises(ValueError, match="compile with a target"):
        compiled(lambda x: x + 1, x, target=None).profile(x)
    with pytest.raises(ValueError, match="not on sm_90a"):
        compiled(lambda x: x + 1, x, target="sm_90a").profile(x)
    with pytest.raises(ValueError, match="gfx1250 is not emulated; these are: gfx908"):
        compiled(lambda x: x + 1, x, target="gfx1250").profile(x)
    with pytest.raises(TypeError, match="Argument 'x' compiled with"):
        compiled(lambda x: x + 1, x, target="gfx942").profile(jnp.ones(5))


def test_few_instructions_besides_what_is_computed():
    """Arguments are in registers, and one offset in bytes serves all arrays."""
    x = jnp.zeros(1 << 20, jnp.float32)
    counted = amdjax.jit(lambda x, y: x + y).lower(x, x).compile("gfx942").profile(x, x).total
    assert counted.by_class["smem"] == 0 and counted.instructions <= 15 * x.size / (8 * 64)


@pytest.mark.parametrize("target,waves", [("gfx942", 4), ("gfx1100", 8)])
def test_waves_of_a_few_long_rows(target, waves):
    """As many as a SIMD needs to issue something all the time: others share what it issues."""
    x = np.random.default_rng(0).standard_normal((16, 4096)).astype(np.float32)
    profile = amdjax.jit(amdjax.nn.softmax).lower(x).compile(target).profile(x)
    assert profile.total.waves == waves * profile.total.workgroups == waves * 16
    (got,) = profile.results
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(np.asarray(got), e / e.sum(1, keepdims=True), rtol=2e-6)
