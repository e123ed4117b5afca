"""The table of passes: names, switches, what is shown of them, and what the documentation says."""

import re
from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.config import config, disabled_passes
from amdjax.passes import PASSES, Changed, Facts, changes_text, prepare
from tests.support.jit_helpers import on_machine, run_python

ROOT = Path(__file__).parents[2]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
SWITCHED = list(dict.fromkeys(p.name for p in PASSES if not p.is_needed))


def f(x):
    return jnp.sin(x + 0.0) * jnp.sin(x)


def primitives(closed):
    return [e.primitive.name for e in closed.eqns]


def test_the_documentation_lists_the_passes_in_order():
    text = (ROOT / "docs" / "passes.md").read_text()
    table = text[text.index("## Passes in order") :]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| `(\S+)` \|", table, re.M)
    assert rows == [(p.name, p.does, p.file) for p in PASSES]


def test_passes_are_where_the_table_says():
    for p in PASSES:
        text = (ROOT / "amdjax" / p.file).read_text()
        wanted = f"def {p.name}(" if p.run is not None else f'is_on("{p.name}")'
        assert wanted in text, p.name


def test_one_name_is_one_pass():
    by_name = {}
    for p in PASSES:
        assert by_name.setdefault(p.name, p) is p


def test_a_pass_that_is_off_does_not_run():
    closed = amdjax.make_jaxpr(f)(X)
    assert primitives(prepare(closed)) == ["sin", "mul"]
    with disabled_passes("simplify"):
        assert primitives(prepare(closed)) == ["add", "sin", "sin", "mul"]
    with disabled_passes("eliminate_common_subexpressions"):
        assert primitives(prepare(closed)) == ["sin", "sin", "mul"]


def test_names_are_given_in_any_form():
    with disabled_passes(" simplify,color_memory ,simplify"):
        assert config.disabled_passes == ("color_memory", "simplify")
    with disabled_passes(["simplify"]):
        assert config.disabled_passes == ("simplify",)
    with pytest.raises(ValueError, match="disabled_passes takes names, got 3"):
        disabled_passes(3)


def test_the_environment_switches_passes_off():
    code = "from amdjax.core.config import config; print(config.disabled_passes)"
    done = run_python(code, AMDJAX_DISABLED_PASSES="simplify,run_together")
    assert done.strip() == "('run_together', 'simplify')"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("simplfy", r"there is no pass 'simplfy'. Did you mean 'simplify'\?"),
        ("fuse_region", "Did you mean 'fuse_regions'"),
        ("qqq", "there is no pass 'qqq'.\n"),
        ("flatten_calls", "no program is compiled without 'flatten_calls'"),
    ],
)
def test_other_names_raise(name, message):
    lowered = amdjax.jit(f).lower(X)
    with pytest.raises(ValueError, match=message):
        lowered.compile(compiler_options={"disabled_passes": name})
    with pytest.raises(ValueError, match=message), disabled_passes(name):
        jnp.sin(jnp.asarray(X))


def test_programs_of_other_switches_are_other_programs():
    traces = []

    @amdjax.jit
    def g(x):
        traces.append(config.disabled_passes)
        return f(x)

    first = g(X)
    with disabled_passes("inline_elementwise"):
        second = g(X)
        g(X)
    g(X)
    np.testing.assert_array_equal(first, second)
    assert traces == [(), ("inline_elementwise",)]


def steps(name):
    compiled = amdjax.jit(f).lower(X).compile(compiler_options={"disabled_passes": name})
    return compiled.as_text("plan").count("CALL ")


def test_without_fusion_each_equation_is_a_kernel():
    assert steps("") == 1
    assert steps("inline_elementwise,fuse_regions") == 2
    assert steps(SWITCHED) == 4


def test_long_rows_are_split_unless_that_is_off(monkeypatch):
    on_machine(monkeypatch, threads=4)
    lowered = amdjax.jit(lambda x: x.sum()).lower(np.ones(1 << 20, np.float32))
    texts = [
        lowered.compile(target, compiler_options={"disabled_passes": name}).as_text("schedule")
        for target in (None, "gfx942")
        for name in ("", "split_reductions")
    ]
    assert [" ways along" in text for text in texts] == [True, False] * 2


@pytest.mark.parametrize("target", [None, "gfx942", "gfx1100"])
def test_reductions_of_the_same_rows_are_one_kernel_unless_that_is_off(target):
    moments = lambda x: (x.sum(1), x.max(1), (x * x).sum(1))
    lowered = amdjax.jit(moments).lower(np.ones((64, 96), np.float32))
    calls = [
        lowered.compile(target, compiler_options={"disabled_passes": name})
        .as_text("plan")
        .count("CALL ")
        for name in ("", "fuse_regions,run_together")
    ]
    assert calls == [1, 3]


def test_memory_is_shared_unless_that_is_off():
    def g(x):
        for _ in range(6):
            x = x @ x
        return x

    lowered = amdjax.jit(g).lower(np.eye(64, dtype=np.float32))
    used = [
        lowered.compile(compiler_options={"disabled_passes": name})
        .memory_analysis()
        .temp_size_in_bytes
        for name in ("", "color_memory", "color_memory,update_in_place")
    ]
    assert used[0] < used[1] <= used[2]


def test_what_passes_changed_is_shown():
    compiled = amdjax.jit(f).lower(X).compile()
    ran = [p.name for p in PASSES if p.run is not None and p.only != "gpu"]
    assert [c.name for c in compiled.passes] == ran
    text = compiled.as_text("passes")
    assert text.startswith(
        "# simplify: 4 equations → 3 equations\n"
        "@@ -1,6 +1,5 @@\n"
        " { lambda ; a:f32[2,3]. let\n"
        "-    b:f32[2,3] = add a 0.0:f32[]\n"
        "-    c:f32[2,3] = sin b\n"
        "+    c:f32[2,3] = sin a\n"
        "     d:f32[2,3] = sin a\n"
        "     e:f32[2,3] = mul c d\n"
        "   in (e,) }\n\n"
        "# eliminate_common_subexpressions: 3 equations → 2 equations\n"
    )
    assert "nothing to do" in text  # passes over kernels follow


def test_passes_that_change_nothing_are_not_shown():
    closed = amdjax.make_jaxpr(jnp.sin)(X)
    changes = []
    prepare(closed, Facts(), lambda *change: changes.append(Changed(*change)))
    assert changes and changes_text(changes) == "# no pass changed anything"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fast_math": "maybe"}, "INVALID_ARGUMENT: While setting option fast_math: .*'maybe'"),
        ({"memory_limit": -1}, "INVALID_ARGUMENT: While setting option memory_limit: .*-1"),
        ({"fast_mth": 1}, "No such compile option: 'fast_mth'.*Did you mean 'fast_math'?"),
    ],
)
def test_wrong_options_are_told_from_wrong_values(options, message):
    with pytest.raises(amdjax.errors.JaxRuntimeError, match=message):
        amdjax.jit(f).lower(X).compile(compiler_options=options)


def migraphx_rows():
    """For each row of the comparison, passes of MIGraphX and what stands for them here."""
    text = (ROOT / "docs" / "passes.md").read_text()
    part = text[text.index("## MIGraphX's passes here") : text.index("## What is not a pass")]
    rows = re.findall(r"^\| (?!MIGraphX|---)(.*?) \| (.*) \|$", part, re.M)
    assert len(rows) > 30
    return rows


def test_the_comparison_names_passes_that_exist():
    known = {p.name for p in PASSES} | {"rnn", "amdjax.quantize", "verify", "enable_x64"}
    known |= {"constants_limit", "lax.cond"}
    for theirs, ours in migraphx_rows():
        for name in re.findall(r"`([^`]+)`", ours):
            exists = name in known or (ROOT / "amdjax" / name).exists()
            assert exists, (theirs, name)
        for page in re.findall(r"\((\w+\.md)\)", ours):
            assert (ROOT / "docs" / page).exists(), page


def test_the_documentation_says_where_passes_are_tested():
    text = (ROOT / "docs" / "passes.md").read_text()
    table = text[text.index("## Passes in order") :]
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(\S+)` \|$", table, re.M)
    assert [name for name, _ in rows] == [p.name for p in PASSES]
    for name, file in rows:
        assert (ROOT / "tests" / file).is_file(), (name, file)
