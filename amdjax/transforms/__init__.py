"""What can be done to a traced program."""

# ruff: noqa: I001
from amdjax.transforms.zero import (
    SymbolicZero,
    UndefinedPrimal,
    Zero,
    add_any_p,
    add_tangents,
    copy_p,
    instantiate_zeros,
    is_undefined_primal,
    ones_like_aval,
    replace_float0s,
    stop_gradient_p,
    zeros_like_aval,
)
from amdjax.transforms.forward import JVPTrace, jvp_flat, jvp_jaxpr
from amdjax.transforms.linear import Linearized, linearize_flat, linearize_jaxpr
from amdjax.transforms.reverse import backward_pass, transpose_call, transpose_jaxpr
from amdjax.transforms.axes import AxisData, batch_at, move_axis, not_mapped
from amdjax.transforms.batching import (
    CollectivePrimitive,
    batch_flat,
    batch_jaxpr,
    batch_jaxpr_axes,
)
from amdjax.transforms.calls import bind_jit, closed_call_p, give_call_rules, jit_p
from amdjax.transforms.custom_calls import custom_jvp_call_p, custom_vjp_call_p
from amdjax.transforms.custom import custom_jvp, custom_vjp
from amdjax.transforms.vmap import vmap
from amdjax.transforms.differentiate import (
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from amdjax.transforms.jacobians import hessian, jacfwd, jacobian, jacrev

__all__ = [
    "AxisData", "CollectivePrimitive", "JVPTrace", "Linearized", "SymbolicZero", "UndefinedPrimal",
    "Zero", "add_any_p", "add_tangents", "backward_pass", "batch_at", "batch_flat", "batch_jaxpr",
    "batch_jaxpr_axes", "bind_jit", "closed_call_p", "copy_p", "custom_jvp", "custom_jvp_call_p",
    "custom_vjp", "custom_vjp_call_p", "give_call_rules", "grad", "hessian", "instantiate_zeros",
    "is_undefined_primal", "jacfwd", "jacobian", "jacrev", "jit_p", "jvp", "jvp_flat", "jvp_jaxpr",
    "linear_transpose", "linearize", "linearize_flat", "linearize_jaxpr", "move_axis", "not_mapped",
    "ones_like_aval", "replace_float0s", "stop_gradient_p", "transpose_call", "transpose_jaxpr",
    "value_and_grad", "vjp", "vmap", "zeros_like_aval",
]  # fmt: skip
