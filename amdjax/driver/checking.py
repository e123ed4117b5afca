"""The command `verify`: compiled programs beside NumPy, as a whole and operation by operation."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.dtypes import issubdtype
from amdjax.core.jaxpr import JaxprEqn
from amdjax.driver.compiling import device_of
from amdjax.driver.errors import BadUsage
from amdjax.driver.inputs import arguments, shapes
from amdjax.driver.output import Answer, Table, progress
from amdjax.driver.precision import chosen, runnable
from amdjax.driver.programs import Flat, compiled_results, flat_program, node_of, shown
from amdjax.driver.reading import read_model
from amdjax.driver.reference import Reference


class Tolerance(NamedTuple):
    """What may differ: the root of the mean square, relative to the largest number; elements."""

    rms: float
    atol: float
    rtol: float


#: MIGraphX's, by the narrowest floats that are computed in.
TOLERANCES = {32: Tolerance(1e-3, 1e-3, 1e-3), 16: Tolerance(8e-2, 4e-2, 4e-2),
              8: Tolerance(2.5e-1, 1.25e-1, 1.25e-1), 4: Tolerance(8e-1, 4e-1, 4e-1)}  # fmt: skip
#: Bits of what products are computed of, by flag.
PRECISIONS = {"": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4_weights": 4}


class Difference(NamedTuple):
    """How two arrays differ.

    Args:
      rms: root of the mean square of the differences, over the largest number.
      most: the largest difference.
      place: where it is; None where nothing differs.
      found, wanted: the numbers there.
      is_within: whether it is tolerated.
    """

    rms: float
    most: float
    place: tuple[int, ...] | None
    found: float
    wanted: float
    is_within: bool


def difference(found: Any, wanted: Any, tolerance: Tolerance) -> Difference:
    """How an array differs from another of its shape."""
    x, y = (_numbers(a) for a in (found, wanted))
    if x.shape != y.shape:
        return Difference(np.inf, np.inf, None, np.nan, np.nan, False)
    if not x.size:
        return Difference(0.0, 0.0, None, 0.0, 0.0, True)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(x - y))
        apart = np.where(np.isnan(apart), np.inf, apart)
        largest = max(_largest(x), _largest(y), np.finfo(np.float64).tiny)
        rms = float(np.sqrt(np.mean((apart / largest) ** 2)))
        fits = same | (apart <= tolerance.atol + tolerance.rtol * np.abs(y))
    at = np.unravel_index(int(np.argmax(apart)), apart.shape)
    place = tuple(map(int, at)) if apart[at] else None
    is_within = bool(fits.all()) and rms <= tolerance.rms
    number = lambda a: float(np.real(a[at]))
    return Difference(rms, float(apart[at]), place, number(x), number(y), is_within)


def _numbers(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _largest(x: np.ndarray) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max()) if finite.size else 0.0


def verify(options: argparse.Namespace) -> Answer:
    """Whether a compiled model gives what NumPy gives."""
    subject = read_model(options)
    if options.each and options.bisect:
        raise BadUsage("--each and --bisect exclude each other")
    precision = chosen(options)
    if precision and (options.each or options.bisect):
        raise BadUsage(
            "--each and --bisect compare operations of one program, not another precision"
        )
    given = arguments(subject, options, shapes(subject, options))
    with device_of(options) as device:
        flat = flat_program(subject, given)
        tolerance = _tolerance(flat, options, precision)
        reference = Reference(options.ref_use_double)
        seen: dict[Any, np.ndarray] = {}
        keeps = options.each or options.bisect
        operands: dict[int, Sequence[np.ndarray]] = {}

        with progress("NumPy", len(flat.eqns)) as step:

            def see(i: int, eqn: JaxprEqn, given: Any, made: Any) -> None:
                step(node_of(eqn))
                if keeps:
                    operands[i] = given
                    seen.update(zip(eqn.outvars, made))

            wanted = reference.run(flat.closed, flat.leaves, see)
        if precision:
            found = runnable(subject, options).call(**given)
        else:
            found = flat.outputs(compiled_results(flat.closed, flat.leaves))
        rows = _outputs(found, flat.outputs(wanted), tolerance)
        data: dict[str, Any] = {
            "file": str(subject.path), "device": str(device), "tolerance": tolerance._asdict(),
            "outputs": rows, "operations": len(flat.eqns), "unchecked": sorted(reference.unchecked),
        }  # fmt: skip
        text: list[str | Table] = [_table("output", rows)]
        is_right = all(r["within"] for r in rows)
        if options.each:
            each = _each(flat, operands, seen, tolerance)
            wrong = [r for r in each if not r["within"]]
            data["each"] = each
            text.append(_table("operation", each if options.detailed else wrong))
            text.append(f"{len(each)} operations alone, {len(wrong)} of them differ")
            is_right = is_right and not wrong
        if options.bisect:
            first = _bisected(flat, operands, seen, tolerance)
            data["first"] = first
            text += _told(first)
            is_right = is_right and first is None
    data["equal"] = is_right
    if reference.unchecked:
        text.append(f"no rule of NumPy's, run by amdjax alone: {', '.join(data['unchecked'])}")
    limits = f"rms {tolerance.rms:g}, atol {tolerance.atol:g}, rtol {tolerance.rtol:g}"
    said = f"within {limits}" if is_right else f"differs by more than {limits}"
    if not is_right and not (options.bisect or options.each):
        said += "; --bisect finds the first operation that differs"
    return Answer(data, [*text, said], 0 if is_right else 1)


def _tolerance(flat: Flat, options: argparse.Namespace, precision: str) -> Tolerance:
    """As flags say; of what they do not say, by the narrowest type of the program."""
    atoms = [x for e in flat.eqns for x in (*e.invars, *e.outvars)]
    narrowest = min((_bits(x.aval.dtype) for x in atoms), default=32)
    narrowest = min(narrowest, PRECISIONS[precision])
    usual = TOLERANCES[narrowest]
    given = (options.rms_tol, options.atol, options.rtol)
    return Tolerance(*(u if g is None else g for u, g in zip(usual, given)))


def _bits(dtype: Any) -> int:
    if np.dtype(dtype).name.startswith(("float4", "int4", "uint4")):
        return 4
    return 16 if issubdtype(dtype, np.floating) and np.dtype(dtype).itemsize <= 2 else 32


def _row(name: str, d: Difference) -> dict[str, Any]:
    return {
        "name": name, "rms": d.rms, "most": d.most, "place": d.place and list(d.place),
        "found": d.found, "wanted": d.wanted, "within": d.is_within,
    }  # fmt: skip


def _outputs(
    found: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: Tolerance
) -> list[dict[str, Any]]:
    return [_row(name, difference(found[name], wanted[name], tolerance)) for name in found]


def _table(what: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    cells = [
        [
            r["name"], f"{r['rms']:.3g}", f"{r['most']:.3g}",
            "" if r["place"] is None else str(r["place"]), f"{r['found']:.6g}",
            f"{r['wanted']:.6g}", "yes" if r["within"] else "NO",
        ]
        for r in rows
    ]  # fmt: skip
    headings = (what, "rms", "largest difference", "at", "compiled", "reference", "within")
    return Table(headings, cells)


def _each(flat: Flat, operands: Any, seen: Any, tolerance: Tolerance) -> list[dict[str, Any]]:
    """Each operation alone, on what NumPy computed before it."""
    rows = []
    with progress("alone", len(flat.eqns)) as step:
        for i, eqn in enumerate(flat.eqns):
            name = f"{i} {node_of(eqn)} {eqn.primitive.name}".replace("  ", " ")
            rows.append({**_row(name, _alone(eqn, operands[i], seen, tolerance)), "number": i,
                         "node": node_of(eqn), "operation": eqn.primitive.name})  # fmt: skip
            step(node_of(eqn) or eqn.primitive.name)
    return rows


def _alone(eqn: JaxprEqn, operands: Any, seen: Any, tolerance: Tolerance) -> Difference:
    """An operation that is compiled alone: the result that differs most."""
    arrays = [jnp.asarray(x.astype(v.aval.dtype)) for x, v in zip(operands, eqn.invars)]
    made = eqn.primitive.bind(*arrays, **eqn.params)
    results = made if eqn.primitive.multiple_results else [made]
    return _worst(zip(results, (seen[v] for v in eqn.outvars)), tolerance)


def _worst(pairs: Any, tolerance: Tolerance) -> Difference:
    found = [difference(x, y, tolerance) for x, y in pairs]
    nothing = Difference(0.0, 0.0, None, 0.0, 0.0, True)
    return max(found, key=lambda d: (not d.is_within, d.rms), default=nothing)


def _bisected(flat: Flat, operands: Any, seen: Any, tolerance: Tolerance) -> dict[str, Any] | None:
    """The first operation with which a compiled beginning of the program differs."""
    count = len(flat.eqns)
    known: dict[int, Difference] = {}

    def at(k: int) -> Difference:
        if k not in known:
            part = flat.prefix(k)
            results = compiled_results(part, flat.leaves) if part.jaxpr.outvars else []
            wanted = [seen[v] for v in part.jaxpr.outvars]
            known[k] = _worst(zip(results, wanted), tolerance)
        return known[k]

    if at(count).is_within:
        return None
    right, wrong = 0, count
    with progress("bisecting", max(count.bit_length(), 1)) as step:
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if at(middle).is_within:
                right = middle
            else:
                wrong = middle
            step(f"between operations {right} and {wrong - 1} of {count}")
    eqn, i = flat.eqns[wrong - 1], wrong - 1
    alone = _alone(eqn, operands[i], seen, tolerance)
    return {
        **_row(node_of(eqn) or eqn.primitive.name, at(wrong)), "number": i, "node": node_of(eqn),
        "operation": eqn.primitive.name, "types": shown(eqn), "source": str(eqn.source),
        "alone": not alone.is_within, "compiled": len(known),
    }  # fmt: skip


def _told(first: Mapping[str, Any] | None) -> list[str | Table]:
    if first is None:
        return ["no beginning of the program differs"]
    where = f"node {first['node']!r}" if first["node"] else first["source"]
    how = "alone, too" if first["alone"] else "within the program only, not alone"
    return [
        f"first operation that differs: {first['number']}, {first['operation']} of {where}",
        f"  {first['types']}",
        f"  at {first['place']}: {first['found']:.6g}, not {first['wanted']:.6g}; it differs {how}",
    ]
