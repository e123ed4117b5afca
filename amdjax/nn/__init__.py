"""Layers of neural networks: functions first, modules over them."""

from importlib import import_module as _import_module
from threading import RLock as _RLock
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.nn import _docs, initializers as initializers
from amdjax.nn.functions import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    identity as identity,
    kthvalue as kthvalue,
    leaky_relu as leaky_relu,
    log1mexp as log1mexp,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    logmeanexp as logmeanexp,
    logsumexp as logsumexp,
    mish as mish,
    one_hot as one_hot,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softmax as softmax,
    softplus as softplus,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    standardize as standardize,
    swish as swish,
    tanh as tanh,
)

if _TYPE_CHECKING:
    from amdjax.nn._surface import *  # noqa: F403


def _finish(namespace: dict[str, _Any]) -> None:
    _complete(namespace, _docs.FAMILIES, _docs.PHRASES)
    _public_surface(namespace)


_finish(globals())


_unloaded = ["amdjax.nn._surface"]
_loading = _RLock()
_eager = frozenset(globals())


def __getattr__(name: str) -> _Any:
    """A name that is not there yet: the first loads all that functions of JAX do without."""
    if name[0] != "_" or name == "__all__":
        with _loading:
            _load()
            if name in globals():
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load() -> None:
    """Make all names those of this module; nothing if that is done, or under way above."""
    if not _unloaded:
        return
    surface = _unloaded.pop()
    try:
        # late: many files, which programs that only call functions do without
        found = vars(_import_module(surface))
    except BaseException:
        _unloaded.append(surface)
        raise
    if "_complete" not in found:  # its own import is under way
        _unloaded.append(surface)
        return
    new = {n: x for n, x in found.items() if n[0] != "_" and n not in _eager}
    namespace = {"__name__": __name__, "__all__": list(new), **new}
    _finish(namespace)
    globals().update({n: namespace[n] for n in new})
    globals()["__all__"] = [n for n in globals() if n[0] != "_"]


def __dir__() -> list[str]:
    with _loading:
        _load()
    return sorted(globals())
