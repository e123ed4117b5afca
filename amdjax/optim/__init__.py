"""Optimizers as pairs of pure functions, in the manner of optax.

An optimizer is a `GradientTransformation(init, update)`. `init(params)` makes its state, a pytree;
`update(grads, state, params)` returns what to add to the parameters and the next state. `chain`
builds larger ones from smaller ones.

    >>> from amdjax import optim
    >>> optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-1))
    >>> params = {"w": jnp.array([3.0, 4.0])}
    >>> state = optimizer.init(params)
    >>> for _ in range(100):
    ...     grads = amdjax.grad(lambda p: jnp.sum(p["w"] ** 2))(params)
    ...     updates, state = optimizer.update(grads, state, params)
    ...     params = optim.apply_updates(params, updates)
    >>> bool(optim.global_norm(params) < 0.5)
    True
"""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.optim import _docs
from amdjax.optim.adaptive import *  # noqa: F403
from amdjax.optim.base import *  # noqa: F403
from amdjax.optim.clipping import *  # noqa: F403
from amdjax.optim.lbfgs import *  # noqa: F403
from amdjax.optim.optimizers import *  # noqa: F403
from amdjax.optim.scaling import *  # noqa: F403
from amdjax.optim.schedules import *  # noqa: F403
from amdjax.optim.wrappers import *  # noqa: F403

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_public_surface(globals())
