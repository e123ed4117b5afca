"""Functions to programs, and programs cut down to what is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from amdjax.core.aval import get_aval
from amdjax.core.context import context
from amdjax.core.dead_code import dce_closed_call, dce_jaxpr as dce_jaxpr, dce_rules as dce_rules
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    convert_constvars_jaxpr as convert_constvars_jaxpr,
)
from amdjax.core.jaxpr_trace import (
    JaxprTrace as DynamicJaxprTrace,
    JaxprTracer as DynamicJaxprTracer,
    trace_to_jaxpr,
)
from amdjax.core.trace import set_trace
from amdjax.extend.linear_util import WrappedFun
from amdjax.transforms.linear import SplitTrace

JaxprTracer = DynamicJaxprTracer

__all__ = [
    "DynamicJaxprTrace", "DynamicJaxprTracer", "JaxprTracer", "PartialVal", "close_jaxpr",
    "convert_constvars_jaxpr", "custom_partial_eval_rules", "dce_jaxpr", "dce_jaxpr_call_rule",
    "dce_jaxpr_closed_call_rule", "dce_jaxpr_consts", "dce_rules",
    "partial_eval_jaxpr_custom_rules", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits",
]  # fmt: skip

custom_partial_eval_rules: dict[Any, Any] = {}
partial_eval_jaxpr_custom_rules: dict[Any, Any] = {}
"""Kept and never asked: linearization splits every primitive by its derivative."""


class PartialVal(NamedTuple):
    """A value that is known, or the type of one that is not.

    Args:
      aval: the type, None if the value is known.
      const: the value, None if it is not known.
    """

    aval: Any
    const: Any

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """A value."""
        return cls(None, const)

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        """A type."""
        return cls(aval, None)

    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.aval is None

    def get_known(self) -> Any:
        """The value, or None."""
        return self.const if self.is_known() else None

    def get_aval(self) -> Any:
        """The type."""
        return get_aval(self.const) if self.is_known() else self.aval


class _KnownTrace(SplitTrace):
    """Computes what depends on nothing unknown. A loop or call of an unknown value is recorded
    whole, since it need not be linear in it.
    """

    __slots__ = ()

    def _process_program(
        self, primitive: Any, linearize: Any, args: Sequence[Any], params: dict[str, Any]
    ) -> Any:
        return self.linear.process_primitive(primitive, args, params)


def trace_to_jaxpr_dynamic(
    fun: WrappedFun, in_avals: Sequence[Any], **options: Any
) -> tuple[Jaxpr, list[Any], list[Any]]:
    """The program of a function of flat arguments.

    Args:
      fun: returns a list.
      in_avals: the types of its arguments.
      **options: accepted.

    Returns:
      The program, the types of its results, and the values of its constvars.

        >>> from amdjax.core.aval import get_aval
        >>> from amdjax.extend import linear_util as lu
        >>> fun = lu.wrap_init(lambda x: [x * 2])
        >>> jaxpr, types, consts = trace_to_jaxpr_dynamic(fun, [get_aval(1.0)])
        >>> types
        [ShapedArray(float32[], weak_type=True)]
    """
    closed = trace_to_jaxpr(lambda *xs: list(fun.call_wrapped(*xs)), list(in_avals))
    return closed.jaxpr, closed.out_avals, closed.consts


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """The program of what a function does with its unknown arguments.

    Args:
      fun: takes flat arguments, returns a list.
      pvals: for each argument its value, or its type if that is unknown.
      instantiate: which results shall be the program's though they are known.

    Returns:
      The program of the unknown arguments, whose results are the unknown ones; for each result
      its value or type; and the values of the program's constvars.

        >>> from amdjax.core.aval import get_aval
        >>> from amdjax.extend import linear_util as lu
        >>> fun = lu.wrap_init(lambda x: [x * 2])
        >>> jaxpr, values, consts = trace_to_jaxpr_nounits(fun, [PartialVal.unknown(get_aval(1.0))])
        >>> values[0].is_known()
        False
    """
    program = DynamicJaxprTrace(context.trace)
    splitter = _KnownTrace(context.trace, program)
    args = [p.const if p.is_known() else program.new_arg(p.aval) for p in pvals]
    with set_trace(splitter):
        outs = list(fun.call_wrapped(*args))
    flags = [instantiate] * len(outs) if isinstance(instantiate, bool) else instantiate
    unknown = [keep or splitter.is_tangent(x) for x, keep in zip(outs, flags)]
    closed = program.finish([x for x, u in zip(outs, unknown) if u])
    found = [
        PartialVal.unknown(get_aval(x)) if u else PartialVal.known(x) for x, u in zip(outs, unknown)
    ]
    return closed.jaxpr, found, closed.consts


def close_jaxpr(jaxpr: Jaxpr) -> ClosedJaxpr:
    """A program without constvars, closed.

    Args:
      jaxpr: the program.

    Returns:
      A `ClosedJaxpr`.

        >>> closed = amdjax.make_jaxpr(jnp.sin)(1.0)
        >>> close_jaxpr(closed.jaxpr).consts
        []
    """
    return ClosedJaxpr(jaxpr, ())


def dce_jaxpr_consts(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool], list[bool]]:
    """As `dce_jaxpr`, and says which constvars are left.

    Args:
      jaxpr: the program.
      used_outputs: which results are wanted.
      instantiate: which arguments are kept in any case.

    Returns:
      The program; which constvars, and which arguments, it kept.

        >>> closed = amdjax.make_jaxpr(lambda x, y: (x, y + 1))(1.0, 2.0)
        >>> dce_jaxpr_consts(closed.jaxpr, [True, False])[1:]
        ([], [True, False])
    """
    flags = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else instantiate
    count = len(jaxpr.constvars)
    flat, used = dce_jaxpr(
        convert_constvars_jaxpr(jaxpr), used_outputs, [False] * count + list(flags)
    )
    kept = sum(used[:count])
    new = flat.replace(constvars=flat.invars[:kept], invars=flat.invars[kept:])
    return new, used[:count], used[count:]


def dce_jaxpr_closed_call_rule(used: Sequence[bool], eqn: JaxprEqn) -> Any:
    """Dead code of an equation that calls the closed program in `params["jaxpr"]`.

    Args:
      used: which results are wanted.
      eqn: the equation.

    Returns:
      Which operands are, and the equation without the rest.

        >>> closed = amdjax.make_jaxpr(amdjax.jit(lambda x, y: (x, y + 1)))(1.0, 2.0)
        >>> dce_jaxpr_closed_call_rule([False, True], closed.jaxpr.eqns[0])[0]
        [False, True]
    """
    return dce_closed_call("jaxpr" if "jaxpr" in eqn.params else "call_jaxpr")(used, eqn)


dce_jaxpr_call_rule = dce_jaxpr_closed_call_rule
