"""Programs and what they are made of: for custom primitives and interpreters of jaxprs.

>>> import amdjax
>>> closed = amdjax.make_jaxpr(lambda x: x * 2 + 1)(3.0)
>>> isinstance(closed, ClosedJaxpr), [str(eqn.primitive) for eqn in closed.jaxpr.eqns]
(True, ['mul', 'add'])
"""

from typing import Any as _Any

from amdjax.core.array import ConcreteArray as _ConcreteArray
from amdjax.core.aval import AbstractToken as AbstractToken, get_aval as _get_aval
from amdjax.core.check import check_jaxpr as check_jaxpr
from amdjax.core.effects import Effect as Effect, Effects as Effects, no_effects as no_effects
from amdjax.core.errors import (
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    JaxprTypeError as JaxprTypeError,
)
from amdjax.core.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    DebugInfo as DebugInfo,
    DropVar as DropVar,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    Var as Var,
    jaxpr_as_fun as jaxpr_as_fun,
    subjaxprs as subjaxprs,
)
from amdjax.core.primitive import Primitive as Primitive
from amdjax.core.trace import concrete_or_error as concrete_or_error, set_trace as _set_trace
from amdjax.extend.core import primitives as primitives
from amdjax.extend.core.programs import (
    Token as Token,
    TraceTag as TraceTag,
    call_impl as call_impl,
    find_top_trace as find_top_trace,
    gensym as gensym,
    get_opaque_trace_state as get_opaque_trace_state,
    jaxprs_in_params as jaxprs_in_params,
    mapped_aval as mapped_aval,
    new_jaxpr_eqn as new_jaxpr_eqn,
    nonempty_axis_env_DO_NOT_USE as nonempty_axis_env_DO_NOT_USE,
    primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    take_current_trace as take_current_trace,
    unmapped_aval as unmapped_aval,
    unsafe_am_i_under_a_jit_DO_NOT_USE as unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE as unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE as unsafe_get_axis_names_DO_NOT_USE,
)


def valid_jaxtype(x: _Any) -> bool:
    """Whether operations take `x`.

    Args:
      x: anything.

    Returns:
      Whether it is an array, of a dtype that arrays have, or a scalar.

        >>> valid_jaxtype(np.zeros(2)), valid_jaxtype(np.zeros(2, object))
        (True, False)
    """
    try:
        _get_aval(x)
    except TypeError:
        return False
    return True


set_current_trace = _set_trace
array_types = {_ConcreteArray}
