"""Functions with derivatives of their own."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.transforms.closures import closure_convert, custom_gradient
from amdjax.transforms.custom import (
    CustomVJPPrimal,
    custom_jvp,
    custom_vjp,
    custom_vjp_primal_tree_values,
)
from amdjax.transforms.custom_calls import (
    CustomJVPException,
    CustomVJPException,
    custom_jvp_call_p,
    custom_vjp_call_p,
)
from amdjax.transforms.linear_call import linear_call
from amdjax.transforms.zero import SymbolicZero, zero_from_primal

__all__ = [
    "CustomJVPException", "CustomVJPException", "CustomVJPPrimal", "SymbolicZero",
    "closure_convert", "custom_gradient", "custom_jvp", "custom_jvp_call_p", "custom_vjp",
    "custom_vjp_call_p", "custom_vjp_primal_tree_values", "linear_call", "zero_from_primal",
]  # fmt: skip

_public_surface(globals())
