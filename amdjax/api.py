"""The transforms and tools that users call, gathered; `amdjax` offers them all."""

from amdjax.core.trace import find_current_trace
from amdjax.transforms.callbacks import io_callback, pure_callback
from amdjax.transforms.closures import closure_convert, custom_gradient
from amdjax.transforms.custom import custom_jvp, custom_vjp
from amdjax.transforms.differentiate import (
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from amdjax.transforms.jacobians import hessian, jacfwd, jacobian, jacrev
from amdjax.transforms.remat import checkpoint, remat
from amdjax.transforms.staging import (
    ShapeDtypeStruct,
    block_until_ready,
    ensure_compile_time_eval,
    eval_shape,
    make_jaxpr,
    named_call,
    named_scope,
    typeof,
)
from amdjax.transforms.vmap import vmap

__all__ = [
    "ShapeDtypeStruct", "block_until_ready", "checkpoint", "closure_convert", "custom_gradient",
    "custom_jvp", "custom_vjp", "ensure_compile_time_eval", "eval_shape", "find_current_trace",
    "grad", "hessian", "io_callback", "jacfwd", "jacobian", "jacrev", "jvp", "linear_transpose",
    "linearize", "make_jaxpr", "named_call", "named_scope", "pure_callback", "remat", "typeof",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip
