"""Commands that work on programs: `compile` and `tune`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import amdjax
import amdjax.numpy as jnp
from amdjax.core.dims import scope_of
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.core.pytree import tree_leaves
from amdjax.driver.compiling import check_targets, device_of, open_constraints, open_sizes, traced
from amdjax.driver.errors import BadUsage
from amdjax.driver.inputs import arguments, samples, shapes
from amdjax.driver.output import Answer, Table, in_bytes, in_time, progress
from amdjax.driver.precision import Runnable, runnable
from amdjax.driver.reading import read_model

BUDGET = 60.0  # seconds
FOREVER = 1e9


def compile_model(options: argparse.Namespace) -> Answer:
    """What a model is compiled to."""
    subject = read_model(options)
    sizes = shapes(subject, options)
    examples = [arguments(subject, options, at) for at in samples(sizes)]
    given = examples[0]
    check_saving(options)
    with device_of(options) as device:
        model = runnable(subject, options)
        is_open = any(isinstance(n, str) for shape in sizes.values() for n in shape)
        for example in examples if options.exhaustive_tune else []:
            tune_steps(model, example, device, FOREVER, exhaustive=True, quiet=True)
        targets = options.targets or [target_of(device)]
        check_targets(targets, "--targets")
        rows, texts = [], []
        start = time.perf_counter()
        lowered = (
            traced(subject, options, model.model).lower() if is_open else model.lower(**given)[0]
        )
        traced_in = time.perf_counter() - start
        with progress("compiling", len(targets)) as step:
            for target in targets:
                step(target)
                compiled, seconds = compiled_for(lowered, target)
                formulas = {}
                if is_open:
                    formulas = _formulas(compiled) | {"at": open_sizes(subject, sizes, given)}
                    start = time.perf_counter()
                    compiled = compiled.at(formulas["at"])
                    seconds += time.perf_counter() - start
                facts = _facts(compiled) | formulas
                rows.append({"target": target, "seconds": seconds, **facts})
                texts += _stages(compiled, target, options)
        data: dict[str, Any] = {"file": str(subject.path), "traced": traced_in, "targets": rows}
        if texts:
            data["text"] = "\n\n".join(texts)
        cells = [
            [
                r["target"], in_time(r["seconds"]), str(r["kernels"]), in_bytes(r["constants"]),
                _number(r["arguments"], in_bytes), _number(r["results"], in_bytes),
                in_bytes(r["workspace"]), _number(r["operations"], "{:.3g}".format),
                *([in_bytes(r.get("in host", 0))] if options.enable_offload_copy else []),
            ]
            for r in rows
        ]  # fmt: skip
        headings = (
            "target", "compiled in", "kernels", "constants", "arguments", "results", "workspace",
            "operations", *(["in host"] if options.enable_offload_copy else []),
        )  # fmt: skip
        title = f"{subject.name}, traced in {in_time(traced_in)}"
        if is_open:
            at = ", ".join(f"{name} = {n}" for name, n in rows[0]["at"].items())
            title += f"; kernels and workspace at {at}"
            scope = scope_of(lowered.traced.jaxpr.in_avals)
            data["constraints"] = [] if scope is None else list(scope.constraints)
            title += "".join(f"; {told}" for told in data["constraints"])
        shown: list[str | Table] = [*texts, Table(headings, cells, title)]
        if options.output:
            constraints = open_constraints(subject, sizes) if is_open else ()
            save(model, options.output, targets, examples, constraints)
            data["output"] = options.output
            shown.append(f"written to {options.output}")
    return Answer(data, shown)


def target_of(device: Any) -> str:
    """The name of what a device is compiled for."""
    target = getattr(device, "target", None)
    return "cpu" if target is None else target.name


def compiled_for(lowered: Any, target: str) -> tuple[Any, float]:
    """A program compiled for a target, and in how many seconds."""
    start = time.perf_counter()
    if target != "cpu":
        return lowered.compile(target), time.perf_counter() - start
    with amdjax.default_device("cpu"):
        return lowered.compile(), time.perf_counter() - start


def _facts(compiled: Any) -> dict[str, Any]:
    memory = compiled.memory_analysis()
    return {
        "kernels": len({id(k) for k in compiled.executable.plan.kernels()}),
        "constants": memory.constant_size_in_bytes,
        "arguments": memory.argument_size_in_bytes, "results": memory.output_size_in_bytes,
        "workspace": memory.temp_size_in_bytes, "operations": compiled.cost_analysis()["flops"],
        "in host": memory.host_argument_size_in_bytes + memory.host_temp_size_in_bytes,
    }  # fmt: skip


def _formulas(compiled: Any) -> dict[str, Any]:
    """What a program of open sizes takes."""
    memory = compiled.memory_analysis()
    return {
        "arguments": str(memory.argument_size_in_bytes),
        "results": str(memory.output_size_in_bytes),
        "operations": str(compiled.cost_analysis()["flops"]),
    }


def _number(x: Any, shown: Callable[[Any], str]) -> str:
    """A number, or a formula as it is."""
    return x if isinstance(x, str) else shown(x)


def _stages(compiled: Any, target: str, options: argparse.Namespace) -> list[str]:
    """The stages that are asked for, as text."""
    stages = [options.stage] if options.stage else []
    if options.detailed:
        stages += ["passes", *(["resources"] if target != "cpu" else [])]
    texts = []
    for stage in dict.fromkeys(stages):
        try:
            texts.append(f"# {target}: {stage}\n{compiled.as_text(stage)}")
        except ValueError as e:
            raise BadUsage(f"--stage: {e}") from None
    return texts


# Saving


def check_saving(options: argparse.Namespace) -> None:
    """Raise BadUsage unless the output can be a saved program."""
    if options.output is None:
        if options.binary:
            raise BadUsage("--binary: name the file: -o m.amdjax")
        return
    if not options.output.endswith(".amdjax"):
        raise BadUsage(f"compile --output: programs are saved as .amdjax, not {options.output!r}")


def save(
    model: Runnable, path: str, targets: Sequence[str], examples: Sequence[Mapping[str, Any]],
    constraints: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a compiled program, of sizes of which constraints hold, with code for some inputs'."""
    given = list(map(dict, examples))
    model.model.save(path, targets=tuple(targets), example=given, constraints=constraints)


# Tuning


def tune_model(options: argparse.Namespace) -> Answer:
    """What searching for faster plans gains."""
    subject = read_model(options)
    sizes = shapes(subject, options)
    examples = [arguments(subject, options, at) for at in samples(sizes)]
    budget = BUDGET if options.budget is None else options.budget
    budget /= len(examples)
    told: list[dict[str, Any]] = []
    shown: list[str | Table] = []
    with device_of(options) as device:
        model = runnable(subject, options)
        quiet = options.json or not sys.stdout.isatty()
        for given in examples:
            found = tune_steps(
                model, given, device, budget, exhaustive=options.exhaustive, quiet=quiet
            )
            at = open_sizes(subject, sizes, given)
            told.append({"at": at, **_tuned(found)})
            rows = told[-1]["solutions"]
            cells = [[r["problem"], in_time(r["seconds"]), r["solver"], r["plan"]] for r in rows]
            title = ", ".join(f"{name} = {n}" for name, n in at.items())
            shown += [Table(("problem", "time", "solver", "plan"), cells, title)]
            shown += [str(found)] if quiet else []
    data = {"file": str(subject.path), "device": str(device), **told[0]}
    return Answer(data if len(told) == 1 else {**data, "sizes": told}, shown)


def _tuned(found: Any) -> dict[str, Any]:
    """What a search found, as data."""
    rows = [
        {"problem": s.problem.name, "seconds": s.time, "solver": s.solver, "plan": s.plan}
        for s in found.solutions
    ]
    return {
        "before": found.before, "after": found.after, "speedup": found.speedup, "solutions": rows,
        "unsolved": [{"problem": p.name, "reason": reason} for p, reason in found.unsolved],
    }  # fmt: skip


def tune_steps(
    model: Runnable, given: Mapping[str, Any], device: Any, budget: float, *, exhaustive: bool,
    quiet: bool,
) -> Any:  # fmt: skip
    """Search the steps of a model's program; what is found goes to the user's database."""
    # late: loads where it is asked for
    from amdjax import find

    arrays = {n: jnp.asarray(x) for n, x in given.items()}
    lowered, before = model.lower(**arrays)
    f = amdjax.jit(jaxpr_as_fun(lowered.traced.jaxpr))
    is_emulated = str(device).startswith("emulated")
    return find.tune(
        f, *tree_leaves((before, arrays)), budget=budget, exhaustive=exhaustive, quiet=quiet,
        target=target_of(device), model=is_emulated,
    )  # fmt: skip
