"""The command `run`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from amdjax.driver.building import FOREVER, tune_steps
from amdjax.driver.compiling import described, device_of
from amdjax.driver.errors import BadUsage
from amdjax.driver.inputs import arguments, shapes
from amdjax.driver.output import Answer, Table
from amdjax.driver.precision import runnable
from amdjax.driver.reading import read_model

SHOWN = 8  # elements of an output


def run(options: argparse.Namespace) -> Answer:
    """The outputs of a model for one set of inputs."""
    subject = read_model(options)
    given = arguments(subject, options, shapes(subject, options))
    if options.output and not options.output.endswith(".npz"):
        raise BadUsage(f"run --output: outputs are written as .npz, not {options.output!r}")
    with device_of(options) as device:
        model = runnable(subject, options)
        if options.exhaustive_tune:
            tune_steps(model, given, device, FOREVER, exhaustive=True, quiet=True)
        made = {n: np.asarray(x) for n, x in model.call(**given).items()}
    data: dict[str, Any] = {"file": str(subject.path), "device": str(device)}
    data["outputs"] = [_summary(name, value) for name, value in made.items()]
    rows = [_row(d, made[d["name"]]) for d in data["outputs"]]
    shown: list[str | Table] = [Table(("output", "type", "least", "most", "mean", "first"), rows)]
    if options.output:
        np.savez(Path(options.output), **made)  # type: ignore[arg-type]
        shown.append(f"written to {options.output}")
        data["output"] = options.output
    return Answer(data, shown)


def _summary(name: str, value: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "dtype": described(value.dtype)}
    found["shape"] = list(value.shape)
    if value.size and value.dtype.kind not in "OSUc":
        wide = value.astype(np.float64)
        found |= {"least": float(wide.min()), "most": float(wide.max()), "mean": float(wide.mean())}
        found["not finite"] = int(value.size - np.isfinite(wide).sum())
    if value.size <= SHOWN**2 and value.dtype.kind not in "c":
        found["values"] = value.tolist()
    return found


def _row(summary: dict[str, Any], value: np.ndarray) -> list[str]:
    numbers = [f"{summary[k]:.6g}" if k in summary else "" for k in ("least", "most", "mean")]
    first = " ".join(_short(x) for x in value.reshape(-1)[:SHOWN].tolist())
    type_of = f"{summary['dtype']}[{','.join(map(str, value.shape))}]"
    return [summary["name"], type_of, *numbers, first + (" …" if value.size > SHOWN else "")]


def _short(x: Any) -> str:
    return f"{x:.4g}" if isinstance(x, float) else str(x)
