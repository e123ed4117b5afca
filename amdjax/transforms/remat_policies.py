"""What `checkpoint` keeps: names of values, and policies that go by names and operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from amdjax.core.lowering import Pointwise
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_map
from amdjax.core.sharding import KINDS, space_of_kind

name_p = Primitive("name")
name_p.lowering = Pointwise(lambda b, x, **_: x, copies=True)
name_p.def_abstract_eval(lambda x, **_: x)
name_p.def_jvp(lambda primals, tangents, name: (name_p.bind(*primals, name=name), tangents[0]))
name_p.def_batch(lambda axis, args, dims, name: (name_p.bind(*args, name=name), dims[0]))


def checkpoint_name(x: Any, name: str) -> Any:
    """Name a value for the policies of `checkpoint`.

    Args:
      x: pytree of arrays.
      name: what `save_only_these_names` and the like refer to.

    Returns:
      `x`.

        >>> from amdjax.ad_checkpoint import checkpoint_name
        >>> print(checkpoint_name(2.0, "width"))
        2.0
    """
    return tree_map(
        lambda leaf: leaf if isinstance(leaf, bool) else name_p.bind(leaf, name=name), x
    )


# Policies say of an operation, `policy(primitive, *avals, **params)`, whether its results are kept.

Policy = Callable[..., Any]


class Saveable(NamedTuple):
    """A policy's verdict: keep the result."""


class Recompute(NamedTuple):
    """A policy's verdict: compute the result again."""


class Offloadable(NamedTuple):
    """A policy's verdict: keep the result in another memory, and copy it back when it is needed.

    Attributes:
      src, dst: the kinds of memory it is computed in and kept in.
    """

    src: str
    dst: str


def everything_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Keep every intermediate result.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.everything_saveable)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """
    return True


def nothing_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Compute every intermediate result again; the default.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.nothing_saveable)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """
    return False


def dots_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Keep results of matrix products and convolutions.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.dots_saveable)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """
    return prim.name in ("dot_general", "conv_general_dilated")


checkpoint_dots = dots_saveable


def dots_with_no_batch_dims_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Keep results of matrix products without batch dimensions.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.dots_with_no_batch_dims_saveable)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """
    if prim.name != "dot_general":
        return False
    _, (lhs_batch, rhs_batch) = params["dimension_numbers"]
    return not lhs_batch and not rhs_batch


checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def save_anything_except_these_names(*names: str) -> Policy:
    """Keep everything but the values given these names by `checkpoint_name`.

    >>> from amdjax import checkpoint_policies as policies
    >>> policy = policies.save_anything_except_these_names("scratch")
    >>> f = amdjax.checkpoint(jnp.sin, policy=policy)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """

    def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
        return prim is not name_p or params["name"] not in names

    return policy


def save_any_names_but_these(*names: str) -> Policy:
    """Keep the values named by `checkpoint_name`, those with these names excepted.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.save_any_names_but_these("scratch"))
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """

    def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
        return prim is name_p and params["name"] not in names

    return policy


def save_only_these_names(*names: str) -> Policy:
    """Keep only the values given these names by `checkpoint_name`.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.save_only_these_names("width"))
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """

    def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
        return prim is name_p and params["name"] in names

    return policy


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Keep what either policy keeps.

    >>> from amdjax import checkpoint_policies as policies
    >>> f = amdjax.checkpoint(jnp.sin, policy=policies.save_from_both_policies(
    ...     policies.dots_saveable, policies.save_only_these_names("width")))
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """

    def policy(prim: Primitive, *avals: Any, **params: Any) -> bool | Offloadable:
        found = [verdict(p, prim, avals, params) for p in (policy_1, policy_2)]
        return True in found or found[0] or found[1]

    return policy


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Keep results of matrix products without batch dimensions in another memory.

    >>> from amdjax import checkpoint_policies as policies
    >>> policy = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    >>> f = amdjax.checkpoint(jnp.sin, policy=policy)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """
    offloaded = _offloadable(offload_src, offload_dst)

    def policy(prim: Primitive, *avals: Any, **params: Any) -> Any:
        keep = dots_with_no_batch_dims_saveable(prim, *avals, **params)
        return offloaded if keep else Recompute()

    return policy


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Keep values with the first names, and those with the second in another memory.

    >>> from amdjax import checkpoint_policies as policies
    >>> policy = policies.save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["width"], names_which_can_be_offloaded=["depth"],
    ...     offload_src="device", offload_dst="pinned_host")
    >>> f = amdjax.checkpoint(jnp.sin, policy=policy)
    >>> print(amdjax.grad(f)(0.0))
    1.0
    """
    offloaded = _offloadable(offload_src, offload_dst)

    def policy(prim: Primitive, *_: Any, **params: Any) -> Any:
        if prim is name_p and params["name"] in names_which_can_be_saved:
            return Saveable()
        if prim is name_p and params["name"] in names_which_can_be_offloaded:
            return offloaded
        return Recompute()

    return policy


def _offloadable(src: str, dst: str) -> Offloadable:
    for name, kind in (("offload_src", src), ("offload_dst", dst)):
        if kind not in KINDS:
            raise ValueError(f"{name} must be one of the memory kinds {KINDS}, got {kind!r}")
    return Offloadable(src, dst)


def verdict(
    policy: Policy, prim: Primitive, avals: Any, params: dict[str, Any]
) -> bool | Offloadable:
    """A policy's verdict: whether a result is kept, or where, if that is another memory."""
    found = policy(prim, *avals, **params)
    if isinstance(found, Offloadable):
        return True if space_of_kind(found.src) is space_of_kind(found.dst) else found
    return isinstance(found, Saveable) or (not isinstance(found, Recompute) and bool(found))
