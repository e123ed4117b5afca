"""What the tests of the compiler share: programs as text, plans, fresh processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amdjax
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun

if TYPE_CHECKING:  # it loads LLVM
    from amdjax.jit.stages import Compiled

ROOT = Path(__file__).parents[2]


def compiled(fun: Callable[..., Any], *args: Any, **options: Any) -> Compiled:
    return amdjax.jit(fun, **options).lower(*args).compile()


def results_and_schedule(fun: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """Results, and how they were computed."""
    found = compiled(lambda *xs: fun(*xs), *args)
    return amdjax.tree.map(np.asarray, found(*args)), found.as_text("schedule")


def on_machine(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Programs are made for a CPU like this one, but for some of its facts."""
    from amdjax.jit.cpu import program  # late: loads LLVM

    machine = replace(program.cpu_target(), **changes)
    monkeypatch.setattr(program, "cpu_target", lambda: machine)


def small_integers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def stage(fun: Callable[..., Any], *args: Any, name: str, **options: Any) -> str:
    return compiled(fun, *args, **options).as_text(name)


def fusion_lines(fun: Callable[..., Any], *args: Any) -> list[str]:
    """The steps of a program, a line each: `results = contents (operands)`."""
    return stage(fun, *args, name="fusion").splitlines()


def contents(fun: Callable[..., Any], *args: Any) -> list[str]:
    """What each step computes, without the names of values."""
    return [re.sub(r"^.* = (.*) \(.*\)$", r"\1", line) for line in fusion_lines(fun, *args)]


def opcodes(fun: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """The opcodes of a program's plan, in order."""
    lines = stage(fun, *args, name="plan", **options).splitlines()[1:]
    return [re.sub(r"^@\d+:", "", line).split()[0] for line in lines]


def loop_part(names: list[str]) -> list[str]:
    """The opcodes from the first instruction of a counted loop to the jump back."""
    start = names.index("SET") + 1
    return names[start : names.index("REPEAT")]


def primitives(closed: ClosedJaxpr) -> list[str]:
    return [e.primitive.name for e in closed.jaxpr.eqns]


def run_jaxpr(closed: ClosedJaxpr, *args: Any) -> list[np.ndarray]:
    """The results of a program, operation by operation."""
    with amdjax.disable_jit():
        outs = jaxpr_as_fun(closed)(*args)
    return [np.asarray(x) for x in outs]


def run_python(code: str, timeout: float = 120, **environment: str) -> str:
    """Output of `code` in a new interpreter; fails if that fails."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def python_frames(f, *args, **kwargs):
    """The names of amdjax's functions that a call enters, and what it gives."""
    names = []

    def note(frame, event, arg):
        if event == "call" and "amdjax" in frame.f_code.co_filename:
            names.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        result = f(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return names, result
