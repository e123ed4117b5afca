"""Errors inside compiled programs, as values: checks that `jit`, `vmap` and loops carry along.

`checkify(f)` returns an `Error` beside the results of `f`. It holds the first check that failed,
whether written with `check` or added to operations (`nan_checks`, `div_checks`, `index_checks`).

    >>> from amdjax.experimental import checkify
    >>> def root(x):
    ...     checkify.check(x >= 0, "{x} has no root", x=x)
    ...     return jnp.sqrt(x)
    >>> error, y = amdjax.jit(checkify.checkify(root))(-1.0)
    >>> print(error.get())
    -1.0 has no root (`check` failed)
"""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.experimental.checkify.checks import (
    check as check,
    check_error as check_error,
    debug_check as debug_check,
)
from amdjax.experimental.checkify.error import (
    DivisionByZeroError as DivisionByZeroError,
    Error as Error,
    ErrorCategory as ErrorCategory,
    ErrorEffect as ErrorEffect,
    FailedCheckError as FailedCheckError,
    JaxException as JaxException,
    JaxRuntimeError as JaxRuntimeError,
    NaNError as NaNError,
    OOBError as OOBError,
    init_error as init_error,
)
from amdjax.experimental.checkify.transform import (
    all_checks as all_checks,
    automatic_checks as automatic_checks,
    checkify as checkify,
    div_checks as div_checks,
    float_checks as float_checks,
    index_checks as index_checks,
    nan_checks as nan_checks,
    user_checks as user_checks,
)

_complete(globals(), (), _Phrases())
_public_surface(globals())
