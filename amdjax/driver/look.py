"""Commands that look: `read`, `params`, `ops`, `targets`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from amdjax.core.config import State
from amdjax.core.dims import Dim
from amdjax.driver.compiling import check_passes, check_targets, described, traced
from amdjax.driver.errors import BadUsage
from amdjax.driver.output import Answer, Table, in_bytes
from amdjax.driver.reading import Subject, read_model


def read(options: argparse.Namespace) -> Answer:
    """The graph of a model, or the program that it is traced to."""
    subject = read_model(options)
    text = _text(subject, options)
    data = {**summary(subject), "text": text}
    return written(Answer(data, [text]), options, text)


def _text(subject: Subject, options: argparse.Namespace) -> str:
    forms = ("jaxpr", "text", "optimize", "passes", "python", "svg", "graphviz")
    chosen = [f"--{name}" for name in forms if getattr(options, name)]
    if len(chosen) > 1:
        raise BadUsage(f"{' and '.join(chosen)} exclude each other")
    if options.svg or options.graphviz:
        # late: loads where something is drawn
        from amdjax.driver.drawing import graphviz, svg
        from amdjax.driver.graphs import graph_of

        if options.svg and options.output is None:
            raise BadUsage("--svg: name the file: -o graph.svg")
        graph = graph_of(subject, options)
        return svg(graph) if options.svg else graphviz(graph)
    if options.python:
        if not hasattr(subject.model, "to_python"):
            raise BadUsage(f"--python: {subject.path} cannot be written as Python source")
        return str(subject.model.to_python(options.output))
    if options.optimize or options.passes:
        return _after_passes(traced(subject, options).jaxpr, options.passes, options.target)
    if options.target:
        raise BadUsage("--target goes with --optimize or --passes, which it shows for a machine")
    if options.jaxpr:
        return str(traced(subject, options).jaxpr)
    if subject.kind == "amdjax":
        targets = ", ".join(subject.model.targets)
        return f"{subject.model!r}\n# for {targets}\n{subject.model.exported.program}"
    return str(subject.model)


def _after_passes(closed: Any, names: Sequence[str] | None, target: str | None = None) -> str:
    """What passes change in a program; or the program after those that were named.

    Those for one kind of machine are those of this computer, or of a target.
    """
    # late: they load with the compiler
    from amdjax.find.machines import default_machine
    from amdjax.jit.cpu.program import cpu_target
    from amdjax.jit.plan import facts_of
    from amdjax.passes import PASSES, Changed, Facts, changes_text, prepare
    from amdjax.targets import get

    sizes = (
        n for aval in (*closed.in_avals, *closed.out_avals) for n in getattr(aval, "shape", ())
    )
    is_sized = not any(isinstance(n, Dim) for n in sizes)
    machine: Any = default_machine()
    if target is not None:
        check_targets([target], "--target")
        machine = cpu_target() if target == "cpu" else get(target)
        if not is_sized:
            raise BadUsage("--target: what passes do for it depends on sizes that flags leave open")
    facts = replace(facts_of(machine) if is_sized else Facts(), is_whole=True)
    if names is None:
        changes: list[Changed] = []
        after = prepare(closed, facts, lambda *changed: changes.append(Changed(*changed)))
        return f"{changes_text(changes)}\n\n# after all passes\n{after}"
    check_passes(names, "--passes")
    others = {p.name for p in PASSES if not p.is_needed} - set(names)
    with State("disabled_passes")(",".join(sorted(others))):
        return str(prepare(closed, facts))


def written(answer: Answer, options: argparse.Namespace, text: str) -> Answer:
    """The answer, of which the text goes to a file if one was named."""
    if options.output is None:
        return answer
    Path(options.output).write_text(text + "\n", encoding="utf-8")
    data = {k: v for k, v in answer.data.items() if k != "text"} | {"output": options.output}
    return Answer(data, [f"written to {options.output}"], answer.code)


def summary(subject: Subject) -> dict[str, Any]:
    """What is said of a model, as data."""
    return {
        "file": str(subject.path),
        "kind": subject.kind,
        "inputs": [_value(v) for v in subject.inputs],
        "outputs": [_value(v) for v in subject.outputs],
        "parameters": len(subject.params),
        "bytes": sum(x.nbytes for x in subject.params.values()),
    }


def _value(value: Any) -> dict[str, Any]:
    shape = None if value.shape is None else list(value.shape)
    dtype = None if value.dtype is None else described(value.dtype)
    return {"name": value.name, "dtype": dtype, "shape": shape}


def params(options: argparse.Namespace) -> Answer:
    """Inputs, outputs and weights."""
    subject = read_model(options)
    weights = [
        {"name": name, "dtype": described(x.dtype), "shape": list(x.shape), "bytes": x.nbytes}
        for name, x in subject.params.items()
    ]
    data = summary(subject)
    rows = [
        *(_row("input", v) for v in data["inputs"]),
        *(_row("output", v) for v in data["outputs"]),
        *(_row("weight", v) for v in weights),
    ]
    count = sum(math.prod(w["shape"]) for w in weights)
    last = f"{len(weights)} weights, {count} numbers, {in_bytes(data['bytes'])}"
    shown: list[str | Table] = [Table(("", "name", "dtype", "shape", "bytes"), rows), last]
    return Answer({**data, "weights": weights, "numbers": count}, shown)


def _row(kind: str, value: Mapping[str, Any]) -> list[str]:
    shape = value["shape"]
    shown = "?" if shape is None else f"[{', '.join('?' if n is None else str(n) for n in shape)}]"
    size = in_bytes(value["bytes"]) if "bytes" in value else ""
    return [kind, value["name"], value["dtype"] or "?", shown, size]


def ops(options: argparse.Namespace) -> Answer:
    """The operators that are read."""
    data: dict[str, Any] = {}
    shown: list[str | Table] = []
    if options.onnx or not options.tf:
        # late: loads with the first model
        from amdjax import onnx

        found: dict[tuple[str, str], list[int]] = {}
        for domain, name, since in onnx.operators():
            found.setdefault((domain, name), []).append(since)
        data["onnx"] = [
            {"domain": d or "ai.onnx", "name": n, "since": s} for (d, n), s in found.items()
        ]
        rows = [[r["name"], r["domain"], " ".join(map(str, r["since"]))] for r in data["onnx"]]
        shown += [Table(("operator", "domain", "since"), rows), f"{len(rows)} operators of ONNX"]
    if options.tf or not options.onnx:
        # late: loads with the first model
        from amdjax import tf

        data["tf"] = list(tf.operators())
        shown += [*data["tf"], f"{len(data['tf'])} operators of TensorFlow"]
    return Answer(data, shown)


def targets(options: argparse.Namespace) -> Answer:
    """What programs are compiled for, and what is here."""
    # late: they load what looks for GPUs
    from amdjax.emulator.isa import is_emulated
    from amdjax.runtime.devices import devices, platforms
    from amdjax.targets import get, names

    here = [d for platform in platforms() for d in devices(platform)]
    found: list[dict[str, Any]] = []
    for name in ("cpu", *names()):
        target = None if name == "cpu" else get(name)
        mine = [str(d) for d in here if getattr(d, "target", None) == target]
        found.append({
            "name": name,
            "device": here_name(here) if target is None else target.device.name,
            "family": "" if target is None else target.family,
            "devices": mine,
            "emulated": target is not None and is_emulated(name),
        })  # fmt: skip
    rows = [
        [r["name"], r["family"], r["device"], ", ".join(r["devices"]) or
         ("emulated where it has to run" if r["emulated"] else "compiled for only")]
        for r in found
    ]  # fmt: skip
    return Answer({"targets": found}, [Table(("target", "family", "device", "here"), rows)])


def here_name(devices: Any) -> str:
    """What the CPU is called."""
    return next((d.device_kind for d in devices if d.platform == "cpu"), "")
