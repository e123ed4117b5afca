"""Control flow over scalars as one kernel.

A loop whose values are single numbers would spend its time between kernels. Such a program is
written as a single kernel instead, with the tile language's own loops and branches, so that a step
costs what its arithmetic costs. `scan` may read and write one number of an array at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.codegen import tile
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from amdjax.core.lowering import Control
from amdjax.jit.calls import Call
from amdjax.jit.element import El, ElementBuilder, short_dtype
from amdjax.jit.equations import is_inlinable
from amdjax.jit.index import Index, LoopVar
from amdjax.jit.passes import prepare_body

SCALAR_CONTROL = ("cond", "while", "scan")
STEP_LIMIT = 400  # equations; a longer body is cut into kernels as usual


def scalar_call(eqn: JaxprEqn) -> Call | None:
    """The kernel for a control equation over scalars, or None if it is not one."""
    rule = eqn.primitive.lowering
    if not isinstance(rule, Control) or rule.name not in SCALAR_CONTROL or not _is_scalar(eqn):
        return None
    return _ScalarKernel(eqn).build()


def _sub_jaxprs(eqn: JaxprEqn) -> list[ClosedJaxpr]:
    params = eqn.params
    if "branches" in params:
        return [prepare_body(b, eqn) for b in params["branches"]]
    if "body_jaxpr" in params:
        return [prepare_body(params[name], eqn) for name in ("cond_jaxpr", "body_jaxpr")]
    return [prepare_body(params["jaxpr"], eqn)]


def _scalars(atoms: Sequence[Any]) -> bool:
    return all(x.aval.shape == () for x in atoms)


def _is_scalar(eqn: JaxprEqn) -> bool:
    """Whether every value in the equation and below it is a single number."""
    if eqn.effects:
        return False
    inputs, outputs = list(eqn.invars), list(eqn.outvars)
    if eqn.primitive.lowering.name == "scan":  # type: ignore[union-attr]
        kept = eqn.params["num_consts"] + eqn.params["num_carry"]
        inputs, outputs = inputs[:kept], outputs[: eqn.params["num_carry"]]
    if not _scalars([*inputs, *outputs]):
        return False
    return all(_is_scalar_program(c) for c in _sub_jaxprs(eqn))


def _is_scalar_program(closed: ClosedJaxpr) -> bool:
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) > STEP_LIMIT or not _scalars([*jaxpr.invars, *jaxpr.constvars]):
        return False
    for eqn in jaxpr.eqns:
        rule = eqn.primitive.lowering
        if isinstance(rule, Control) and rule.name in SCALAR_CONTROL:
            if (
                rule.name == "scan"
                and len(eqn.invars) > eqn.params["num_consts"] + eqn.params["num_carry"]
            ):
                return False  # nested scans over arrays: their slices would be arrays
            if not _scalars(eqn.outvars) or not _is_scalar(eqn):
                return False
        elif not is_inlinable(eqn) or not _scalars([*eqn.invars, *eqn.outvars]):
            return False
    return True


class _ScalarKernel:
    def __init__(self, eqn: JaxprEqn):
        self.eqn = eqn
        self.k = tile.Builder("scalar_" + eqn.primitive.name)
        self.args: list[Any] = []
        self.buffers: dict[Any, tile.Buffer] = {}
        self.env: dict[Var, El] = {}
        self.b = ElementBuilder(self.k, {}, self._buffer, lambda var, index: self.env.get(var))

    def _buffer(self, var: Var, role: str = "in") -> tile.Buffer:
        if var not in self.buffers:
            name = f"p{len(self.args)}"
            self.buffers[var] = self.k.param(name, short_dtype(var.aval.dtype), role)
            self.args.append(var)
        return self.buffers[var]

    def build(self) -> Call:
        outs = self.equation(self.eqn)
        with self.k.made_from(self.eqn.origin):
            for v, x in zip(self.eqn.outvars, outs, strict=True):
                if x is not None:
                    self.b.store(self._buffer(v, "out"), Index(0), x)
        return Call(self.k.finish(1), self.args, 1, 1000.0)

    # Equations

    def read(self, atom: Any) -> El:
        return self.b.value(atom, ())

    def program(self, closed: ClosedJaxpr, args: Sequence[El]) -> list[El]:
        """The results of a program on scalar values, written at the current place."""
        outer = self.env
        self.env = dict(zip(closed.jaxpr.invars, args, strict=True))
        for v, c in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            self.env[v] = self.b.const(np.asarray(c)[()], v.aval.dtype)
        for eqn in closed.jaxpr.eqns:
            self.env.update(zip(eqn.outvars, self.equation(eqn), strict=True))
        results = [
            self.read(v) if isinstance(v, Literal) else self.env[v] for v in closed.jaxpr.outvars
        ]
        self.env = outer
        return results

    def equation(self, eqn: JaxprEqn) -> list[Any]:
        rule = eqn.primitive.lowering
        if not isinstance(rule, Control):
            return self.b._apply(eqn, ())
        write = {"cond": self.cond, "while": self.while_, "scan": self.scan}[rule.name]
        with self.k.made_from(eqn.origin):
            return write(eqn)

    def cond(self, eqn: JaxprEqn) -> list[El]:
        index = self.b.convert(self.read(eqn.invars[0]), "i32")
        args = [self.read(x) for x in eqn.invars[1:]]
        programs = _sub_jaxprs(eqn)
        like = [El(short_dtype(v.aval.dtype)) for v in eqn.outvars]

        def branch(i: int) -> list[tile.Value]:
            if i == len(programs) - 1:
                return _parts(self.b.nested(self.program)(programs[i], args))
            here = self.k.op("le", index.value, self.k.const("i32", i))
            then = lambda: _parts(self.b.nested(self.program)(programs[i], args))
            return list(self.k.if_(here, then, lambda: branch(i + 1)))

        return _group(like, branch(0))

    def while_(self, eqn: JaxprEqn) -> list[El]:
        n_cond, n_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        values = [self.read(x) for x in eqn.invars]
        cond_consts, body_consts, inits = (
            values[:n_cond],
            values[n_cond : n_cond + n_body],
            values[n_cond + n_body :],
        )
        cond, body = _sub_jaxprs(eqn)

        def test(*flat: tile.Value) -> tile.Value:
            (keep,) = self.program(cond, [*cond_consts, *_group(inits, flat)])
            return keep.value

        def step(*flat: tile.Value) -> list[tile.Value]:
            return _parts(self.program(body, [*body_consts, *_group(inits, flat)]))

        final = self.k.while_(self.b.nested(test), self.b.nested(step), _parts(inits))
        return _group(inits, final)

    def scan(self, eqn: JaxprEqn) -> list[Any]:
        params = eqn.params
        n, m, length = params["num_consts"], params["num_carry"], params["length"]
        consts = [self.read(x) for x in eqn.invars[:n]]
        inits = [self.read(x) for x in eqn.invars[n : n + m]]
        xs: Sequence[Any] = eqn.invars[n + m :]
        ys = eqn.outvars[m:]
        (body,) = _sub_jaxprs(eqn)
        for x in xs:
            self._buffer(x)
        for y in ys:
            self._buffer(y, "out")
        step_var = LoopVar("t", max(length, 1))

        def step(i: tile.Value, *flat: tile.Value) -> list[tile.Value]:
            self.b.scalars[step_var] = i
            at = Index.of(step_var) * -1 + (length - 1) if params["reverse"] else Index.of(step_var)
            slices = [self.b.load(x, at) for x in xs]
            outs = self.program(body, [*consts, *_group(inits, flat), *slices])
            for y, value in zip(ys, outs[m:], strict=True):
                self.b.store(self.buffers[y], at, value)
            return _parts(outs[:m])

        if length == 1:
            step_var = LoopVar("t", 2)  # a variable of one value would fold away
        final = self.k.for_(0, length, 1, self.b.nested(step), _parts(inits))
        return [*_group(inits, final), *(None for _ in ys)]


def _parts(els: Sequence[El]) -> list[tile.Value]:
    return [p for x in els for p in x.parts]


def _group(like: Sequence[El], flat: Sequence[tile.Value]) -> list[El]:
    it = iter(flat)
    return [
        El(x.dtype, *(next(it) for _ in range(2 if x.dtype in ("c64", "c128") else 1)))
        for x in like
    ]
