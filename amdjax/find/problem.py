"""The problems of a program: its steps, each by itself, as text that tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from amdjax.core.dims import Dim, SizedScope
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Opaque,
    Var,
    subjaxprs,
    subjaxprs_of_value,
)
from amdjax.core.parse import JaxprSyntaxError, parse_jaxpr
from amdjax.core.pprint import format_jaxpr
from amdjax.jit.plan import facts_of
from amdjax.jit.schedule import epilogue, is_shaped
from amdjax.jit.updates import readers_first
from amdjax.kernels.shaped import ShapedContext, plan_shaped
from amdjax.passes import prepare
from amdjax.schedule.element_loops import separate_numbers
from amdjax.schedule.equations import is_bitcast
from amdjax.schedule.fusion import Fusion, Region, fuse
from amdjax.schedule.regions import plan_region
from amdjax.schedule.search import Decision, Decisions, deciding
from amdjax.schedule.writer import Machine

#: What the planner plans: an equation with what is fused behind it, or a region of a program.
Step = ShapedContext | tuple[Region, Fusion]

#: Kinds of problems by the names of kernel families; others are called as those.
KINDS = {
    "dot_general": "product",
    "conv_general_dilated": "convolution",
    "cumulative": "scan",
    "top_k": "selection",
}
#: By the name of a loop's body, the parameter that counts its constants.
_CONSTANTS = {"jaxpr": "num_consts", "cond_jaxpr": "cond_nconsts", "body_jaxpr": "body_nconsts"}
#: What parameters are where they say nothing: kernels read dtypes from operands and results.
UNSAID = {"preferred_element_type": None, "weak_type": False}
WIDE = 1 << 20  # columns in which every equation is one line


@dataclass(frozen=True)
class Problem:
    """A step of a program: one equation with what is fused behind it, or a fused region.

    Problems are equal if the same is to be computed, whatever the programs they come from.

    Args:
      kind: `product`, `convolution`, `sort`, `selection`, `scan`, `scatter`, …; `map` and `rows`
        are fused regions without and with reductions.
      program: what is computed, a program in its printed form.

        >>> from amdjax import find
        >>> problem, = find.problems(jnp.tanh, jnp.ones((64, 64)))
        >>> print(problem)
        map: { lambda ; a:f32[64,64]. let b:f32[64,64] = tanh a in (b,) }
    """

    kind: str
    program: str

    def __str__(self) -> str:
        return f"{self.name}: {self.program}"

    @cached_property
    def name(self) -> str:
        """The kind; of a convolution with its direction, which follows from where axes lie.

        `convolution weights` is the gradient of a kernel: features and images of its operand have
        changed places. `convolution data`, that of an operand or a transposed convolution, has a
        dilated operand, or input and output features of its kernel have changed places, seen from
        the usual orders (HWIO, OIHW, OHWI), or its kernel is read reversed. All others are
        `convolution forward`. As these are the same operation, solvers and results do not depend
        on it.
        """
        params = self._convolution if self.kind == "convolution" else None
        if params is None:
            return self.kind
        _, features, *_ = params["dimension_numbers"].lhs_spec
        out, inputs, *space = params["dimension_numbers"].rhs_spec
        if features == 0 or params["batch_group_count"] > 1:
            return f"{self.kind} weights"
        turned = inputs == 0 or (bool(space) and min(space) == 0 and out < inputs)
        turned = turned or "window_reversal" in params
        if turned or any(n > 1 for n in params["lhs_dilation"] or ()):
            return f"{self.kind} data"
        return f"{self.kind} forward"

    @property
    def _convolution(self) -> dict[str, Any] | None:
        """Parameters of the convolution; None if the text, of another version, has no such."""
        try:
            eqns = list(_equations(self.closed))
        except JaxprSyntaxError:
            return None
        return next((e.params for e in eqns if "lhs_dilation" in e.params), None)

    @cached_property
    def closed(self) -> ClosedJaxpr:
        """The program.

        Raises:
          JaxprSyntaxError: the text is no program.
        """
        return parse_jaxpr(self.program)

    @cached_property
    def is_whole(self) -> bool:
        """Whether the text tells all of the program, which has no functions in its parameters."""
        return not any(_opaque(eqn.params) for eqn in _equations(self.closed))

    def to_json(self) -> dict[str, str]:
        """The problem as plain data.

        Returns:
          A dictionary of strings, from which `Problem(**data)` is the problem.
        """
        return {"kind": self.kind, "program": self.program}


def _equations(program: Jaxpr | ClosedJaxpr) -> Iterator[JaxprEqn]:
    yield from program.eqns
    for inner in subjaxprs(program):
        yield from _equations(inner)


def _opaque(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_opaque, value.values()))
    return (
        any(map(_opaque, value)) if isinstance(value, (tuple, list)) else isinstance(value, Opaque)
    )


def problem_of(step: Step) -> Problem:
    """The problem that a step is."""
    if isinstance(step, ShapedContext):
        return _of_equation(step)
    return _of_region(*step)


def equation_of(step: Step) -> Problem | None:
    """The problem of a step without what is fused behind it; None where that is all of it."""
    if isinstance(step, ShapedContext) and step.epilogue is not None:
        return _of_equation(step, fused=False)
    return None


def _of_equation(ctx: ShapedContext, fused: bool = True) -> Problem:
    epilogue = ctx.epilogue if fused else None
    around = {**epilogue.producers} if epilogue else {}
    around |= ctx.computed.producers if ctx.computed else {}
    results = epilogue.stored if epilogue else ctx.eqn.outvars
    own = dict.fromkeys(ctx.eqn.outvars, ctx.eqn)
    program = _program([v for v in results if v.aval.size], lambda v: own.get(v) or around.get(v))
    name = ctx.rule.name
    return Problem(KINDS.get(name, name), program)


def _of_region(region: Region, fusion: Fusion) -> Problem:
    own = {v: r.eqn for r in region.roots for v in r.vars}
    results = [v for r in region.roots for v in r.vars if v in fusion.stored]

    def producer(v: Var) -> JaxprEqn | None:
        return own.get(v) or (fusion.producers.get(v) if v not in fusion.roots else None)

    return Problem("map" if region.axes is None else "rows", _program(results, producer))


def _program(results: list[Var], producer: Callable[[Var], JaxprEqn | None]) -> str:
    """The equations that make results, as they are needed, and what they read as arguments."""
    inputs: dict[Var, None] = {}
    eqns: dict[JaxprEqn, None] = {}

    def visit(v: Any) -> None:
        eqn = None if isinstance(v, Literal) else producer(v)
        if eqn is None:
            if not isinstance(v, Literal):
                inputs.setdefault(v)
        elif eqn not in eqns:
            for operand in eqn.invars:
                visit(operand)
            eqns.setdefault(eqn)

    results = [v for v in results if not isinstance(v, DropVar)]
    for v in results:
        visit(v)
    plain = tuple(map(_plainly, eqns))
    return format_jaxpr(_at_hand(Jaxpr((), tuple(inputs), tuple(results), plain)), width=WIDE)


def _at_hand(jaxpr: Jaxpr) -> Jaxpr:
    """The program at the sizes at hand, if it has others: problems are of single sizes."""
    dims = (d for v in (*jaxpr.invars, *jaxpr.outvars) for d in _symbolic(v.aval.shape))
    scope = next((d.scope for d in dims), None)
    if not isinstance(scope, SizedScope):
        return jaxpr
    return instantiate(ClosedJaxpr(jaxpr, ()), scope.sizes).jaxpr


def _symbolic(shape: Sequence[Any]) -> list[Dim]:
    return [d for d in shape if isinstance(d, Dim)]


def sizes_of(step: Step) -> list[Dim]:
    """The symbolic sizes that a step goes over, or writes."""
    if isinstance(step, ShapedContext):
        return [d for v in (*step.eqn.invars, *step.eqn.outvars) for d in _symbolic(v.aval.shape)]
    return _symbolic(step[0].domain)


def _plainly(eqn: JaxprEqn) -> JaxprEqn:
    """An equation whose parameters do not say what holds anyway: equal steps print alike."""
    params = dict(eqn.params)
    for name, usual in UNSAID.items():
        if params.get(name, usual) != usual:
            params[name] = usual
            if not _makes_the_same(eqn, params):
                params[name] = eqn.params[name]
    return eqn if params == eqn.params else eqn.replace(params=params)


def _makes_the_same(eqn: JaxprEqn, params: dict[str, Any]) -> bool:
    """Whether results have the same shapes and dtypes with other parameters."""
    assert eqn.primitive.abstract_eval is not None
    try:
        found = eqn.primitive.abstract_eval(*(x.aval for x in eqn.invars), **params)
    except (TypeError, ValueError):  # operands that no dtype of the result is usual for
        return False
    avals = found if eqn.primitive.multiple_results else [found]
    return all(
        (a.shape, a.dtype) == (v.aval.shape, v.aval.dtype)
        for a, v in zip(avals, eqn.outvars, strict=True)
    )


def decided(
    step: Step, machine: Machine, wanted: Sequence[Decision | None] = (), *, listing: bool = False
) -> Decisions:
    """What is decided for a step, planning by `wanted`; with `listing`, what could have been."""
    with deciding(wanted, listing=listing) as decisions:
        if isinstance(step, ShapedContext):
            plan_shaped(step)
        else:
            plan_region(*step, machine)
    return decisions


def is_independent(step: Step) -> bool:
    """Whether a step takes the same time anywhere.

    In a loop, what is computed of its constants alone, as the packing of a matrix, is done before
    it: alone, such a step takes longer, and other plans may suit it.
    """
    return not (isinstance(step, ShapedContext) and any(x in step.fixed for x in step.inputs))


def steps(
    closed: ClosedJaxpr, machine: Machine, fixed: Sequence[bool] = (), outermost: bool = True
) -> Iterator[Step]:
    """The steps of a program that kernels compute, those of loops and branches included.

    Args:
      closed: the program.
      machine: what it is planned for.
      fixed: which of its arguments the loop around does not change.
      outermost: whether it is no body of a loop or branch.
    """
    closed = prepare(closed, replace(facts_of(machine), is_whole=outermost))
    constant = {v for v, is_fixed in zip(closed.jaxpr.invars, fixed, strict=False) if is_fixed}
    fusion = readers_first(fuse(separate_numbers(closed.jaxpr), machine))
    for step in fusion.steps:
        if isinstance(step, Region):
            if 0 not in step.domain:
                yield step, fusion
        elif is_shaped(step.eqn):
            yield ShapedContext(
                step.eqn, machine, epilogue(step, fusion), constant, computed=step.computed
            )
        elif not is_bitcast(step.eqn):
            for name, value in step.eqn.params.items():
                for body in subjaxprs_of_value(value):
                    if isinstance(body, ClosedJaxpr):
                        count = step.eqn.params.get(_CONSTANTS.get(name, ""), 0)
                        yield from steps(body, machine, [True] * count, False)
