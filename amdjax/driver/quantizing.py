"""The command `quantize`."""

from __future__ import annotations

import argparse
import math
from typing import Any

from amdjax.driver.building import save
from amdjax.driver.compiling import device_of, open_constraints
from amdjax.driver.errors import BadUsage
from amdjax.driver.inputs import arguments, samples, shapes
from amdjax.driver.output import Answer, Table, in_bytes, in_time
from amdjax.driver.precision import Runnable, calibration, chosen, quantized
from amdjax.driver.reading import Subject, read_model

REPORTED = 2  # sets of inputs that the report is made of


def quantize_model(options: argparse.Namespace) -> Answer:
    """What quantization costs, product by product."""
    subject = read_model(options)
    name = chosen(options, "int8")
    ending = (options.output or ".amdjax").rpartition(".")[2]
    if ending not in ("onnx", "amdjax"):
        raise BadUsage(f"quantize --output takes .onnx (QDQ) or .amdjax, got {options.output!r}")
    if ending == "onnx" and (subject.kind != "onnx" or name in ("fp16", "bf16")):
        raise BadUsage(
            "quantize --output x.onnx: of ONNX models, with --int8, --fp8 or --int4-weights"
        )
    if options.method and name not in ("int8", "fp8"):
        raise BadUsage("--method is for --int8 and --fp8, whose scales come from calibration")
    settings = {"exclude": options.exclude or (), "calibration": options.method or "minmax"}
    with device_of(options):
        try:
            model = quantized(subject, options, name, **settings)
        except ValueError as e:
            raise BadUsage(str(e)) from e
        data = [d for d, _ in zip(calibration(subject, options), range(REPORTED))]
        report = model.quantized.report(dict(subject.params), data, repeats=3)
        if options.output:
            _write(subject, options, model, ending)
    rows = sorted(report.rows, key=lambda r: math.inf if math.isnan(r.alone) else r.alone)
    cells = [
        [
            r.name, r.operation, r.recipe or "-", _db(r.own), _db(r.alone), _db(r.accumulated),
            in_bytes(r.bytes_before), in_bytes(r.bytes_after),
        ]
        for r in rows
    ]  # fmt: skip
    headings = ("product", "operation", "as", "own dB", "alone dB", "all dB", "bytes", "after")
    title = f"{subject.name} as {name.replace('_', ' ')}, the products that hurt most first"
    shown: list[str | Table] = [
        Table(headings, cells, title),
        f"outputs: {report.sqnr:.1f} dB, largest error {report.error:.3g}; "
        f"{in_bytes(report.bytes_before)} -> {in_bytes(report.bytes_after)}; "
        f"{in_time(report.seconds_before)} -> {in_time(report.seconds_after)}",
    ]
    found: dict[str, Any] = {
        "file": str(subject.path), "precision": name, **report.as_dict(),
        "worst": report.worst(3),
    }  # fmt: skip
    if options.output:
        found["output"] = options.output
        shown.append(f"written to {options.output}")
    return Answer(found, shown)


def _db(x: float) -> str:
    return "" if math.isnan(x) else f"{x:.1f}"


def _write(subject: Subject, options: argparse.Namespace, model: Runnable, ending: str) -> None:
    if ending == "onnx":
        # late: loads where it is asked for
        from amdjax.driver.qdq import write_qdq

        write_qdq(subject.path, options.output, model.quantized)
        return
    sizes = shapes(subject, options)
    examples = [arguments(subject, options, at) for at in samples(sizes)]
    constraints = open_constraints(subject, sizes)
    save(model, options.output, options.targets or ["cpu"], examples, constraints)
