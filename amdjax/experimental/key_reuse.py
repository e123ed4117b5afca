"""Checks that no key is used twice; `debug_key_reuse` has them made wherever keys are used."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.random.key_reuse import (
    Forward,
    KeyReuseSignature,
    Sink,
    Source,
    assert_consumed,
    assert_unconsumed,
    check_key_reuse,
    check_key_reuse_jaxpr,
    consume,
    function_type_signature,
    jaxpr_type_signature,
)

__all__ = [
    "Forward", "KeyReuseSignature", "Sink", "Source", "assert_consumed", "assert_unconsumed",
    "check_key_reuse", "check_key_reuse_jaxpr", "consume", "function_type_signature",
    "jaxpr_type_signature",
]  # fmt: skip

_public_surface(globals())
