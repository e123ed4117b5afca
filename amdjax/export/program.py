"""Programs apart from the functions that they were traced from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

from amdjax.core.aval import get_aval
from amdjax.core.config import config, enable_x64
from amdjax.core.dims import SymbolicScope, scope_of, symbolic_shape
from amdjax.core.dims.polynomial import of
from amdjax.core.jaxpr import ClosedJaxpr, jaxpr_as_fun
from amdjax.core.pytree import (
    PyTreeDef,
    broadcast_prefix,
    tree_flatten,
    tree_unflatten,
)
from amdjax.core.trace import Tracer
from amdjax.transforms.staging import ShapeDtypeStruct
from amdjax.transforms.symbolic_calls import Sizes, bind_at_sizes

from .container import write, write_file
from .parts import parts
from .written import with_constants

__all__ = [
    "PLATFORMS", "Exported", "checked_platforms", "export", "symbolic_args_specs", "types_text",
]  # fmt: skip

PLATFORMS = ("cpu", "hip", "cuda", "rocm", "gpu")


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:  # fmt: skip
    """Descriptions of arguments of which some dimensions are symbolic.

    Args:
      args: a pytree of arrays or `ShapeDtypeStruct`s.
      shapes_specs: a pytree of texts as for `symbolic_shape`, or a prefix of one; None where
        shapes are fixed.
      constraints, scope: as for `symbolic_shape`; one scope serves all.

    Returns:
      A pytree of `ShapeDtypeStruct` as `args`.

    Raises:
      ValueError: as `symbolic_shape`; the trees do not match.

    Example:
      >>> x, w = np.zeros((2, 8), np.float32), np.zeros((8, 4), np.float32)
      >>> amdjax.export.symbolic_args_specs((x, w), ("b, _", None))[0]
      ShapeDtypeStruct(shape=(b, 8), dtype=float32)
    """
    if scope is not None and constraints:
        raise ValueError("symbolic_args_specs: give constraints to the scope when it is made")
    scope = SymbolicScope(constraints) if scope is None else scope
    leaves, tree = tree_flatten(args)
    try:
        specs = broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None)
    except ValueError as e:
        raise ValueError(f"symbolic_args_specs: shapes_specs is no prefix of args: {e}") from None
    found: list[Any] = []
    for leaf, spec in zip(leaves, specs):
        aval = get_aval(leaf)
        text = "..." if spec is None else spec
        try:
            shape = symbolic_shape(text, scope=scope, like=aval.shape)
        except ValueError as e:
            raise ValueError(
                f"symbolic_args_specs: leaf {len(found)} of args, of shape {aval.shape}: {e}"
            ) from None
        found.append(ShapeDtypeStruct(shape, aval.dtype, weak_type=aval.weak_type))
    return tree.unflatten(found)


@dataclass(frozen=True)
class Exported:
    """A program apart from the function that it was traced from.

    Args:
      fun_name: the function's name.
      in_tree: the structure of the arguments, `(args, kwargs)`.
      in_avals: the types of their leaves.
      out_tree: the structure of the results.
      out_avals: the types of their leaves.
      program: the program.
      platforms: where it is meant to run.
      enable_x64: whether types of 64 bits were enabled as it was traced, as they are where it runs.
      settings: a context in which it is compiled.
      apart: programs for sizes that the program does not serve, by the types of their arguments.
      again: traces the function for other types; None where it is not there.
    """

    fun_name: str
    in_tree: PyTreeDef
    in_avals: tuple[Any, ...]
    out_tree: PyTreeDef
    out_avals: tuple[Any, ...]
    program: ClosedJaxpr = field(repr=False)
    platforms: tuple[str, ...]
    enable_x64: bool = False
    settings: Callable[[], AbstractContextManager[Any]] = field(
        default=nullcontext, repr=False, compare=False
    )
    apart: dict[str, Exported] = field(default_factory=dict, repr=False, compare=False)
    again: Callable[[Sequence[Any]], tuple[ClosedJaxpr, PyTreeDef]] | None = field(
        default=None, repr=False, compare=False
    )
    _compiled: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of_traced(cls, traced: Any, platforms: Sequence[str] = PLATFORMS) -> Exported:
        """What `Wrapped.trace` made, apart from the function."""
        program = traced.jaxpr
        ins, outs = tuple(program.in_avals), tuple(program.out_avals)
        return cls(
            traced.fun_name, traced.in_tree, ins, traced.out_tree, outs, program, tuple(platforms),
            config.enable_x64, again=traced.again,
        )  # fmt: skip

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the program, which is compiled for the default device.

        Other functions may call it where they are traced, differentiated or vectorized.

        Args:
          *args: arguments of the structure that was exported, of any sizes that it serves.
          **kwargs: those by name.

        Raises:
          TypeError: they have another structure, or other dtypes.
          ValueError: sizes do not fit, violate a constraint, or are such that the function would
            have to be traced for them alone.
        """
        with ExitStack() as stack:
            if config.enable_x64 != self.enable_x64:
                stack.enter_context(enable_x64(self.enable_x64))
            stack.enter_context(self.settings())
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # late: loads the compiler
        from amdjax.jit.after_tracing import check_types, leaves_of
        from amdjax.jit.symbolic_stages import SymbolicCompiled

        compiled = self.compiled()
        leaves, program = leaves_of(compiled.traced, args, kwargs), self.program
        is_traced = any(isinstance(x, Tracer) for x in leaves)
        if isinstance(compiled, SymbolicCompiled):
            sizes = compiled.sizes(leaves)
            other = self.serving(sizes) if compiled.scope.is_apart(sizes) else None
            if other is not None:
                return other.call(*args, **kwargs)
            if not is_traced:
                return compiled(*args, **kwargs)
            if program.effects or compiled.scope.is_apart(sizes):
                program = compiled.traced_at(sizes).jaxpr
            else:
                at = Sizes(compiled.scope, tuple(sorted(sizes.items())))
                outs = bind_at_sizes(program, leaves, at, self.fun_name)
                return tree_unflatten(self.out_tree, outs)
        elif not is_traced:
            return compiled(*args, **kwargs)
        else:
            check_types(compiled.traced, leaves)
        return tree_unflatten(self.out_tree, jaxpr_as_fun(program)(*leaves))

    def serving(self, sizes: Mapping[str, Any]) -> Exported | None:
        """The most general program for sizes, which may have to be traced; None without any.

        Args:
          sizes: of all dimension variables.
        """
        # late: loads the compiler
        from amdjax.jit.symbolic import SymbolicTypes

        scope = scope_of(self.in_avals)
        if scope is None or not scope.is_apart(sizes):
            return self
        types = SymbolicTypes(list(self.in_avals), sizes, scope)
        while True:
            while types.sizes and scope.is_apart(types.sizes):
                # Where nothing tells which sizes are apart, all are numbers.
                case = scope.special_case(types.sizes)
                types = types.where(case or {name: of(n) for name, n in types.sizes.items()})
            found = self.apart.get(types_text(types.avals)) or self._traced_apart(types)
            if found is not None or not (types.sizes and scope.is_apart(types.sizes)):
                return found

    def _traced_apart(self, types: Any) -> Exported | None:
        """The program for some types, if the function is there; None where it does not serve."""
        if self.again is None:
            return None
        try:
            program, out_tree = self.again(types.avals)
        except Exception:
            if types.sizes and types.scope.is_apart(types.sizes):
                return None  # tracing told what it took for unequal
            raise
        if types.sizes and types.scope.is_apart(types.sizes):
            return None
        found = self.with_program(program, out_tree)
        self.apart[types_text(types.avals)] = found
        return found

    def with_program(self, program: ClosedJaxpr, out_tree: PyTreeDef) -> Exported:
        """The same function for arguments of other types."""
        ins, outs = tuple(program.in_avals), tuple(program.out_avals)
        return Exported(
            self.fun_name, self.in_tree, ins, out_tree, outs, program, self.platforms,
            self.enable_x64, self.settings,
        )  # fmt: skip

    def with_parameters(self, values: Sequence[Any], digest: str) -> Exported:
        """The program of a model, `f(params, **inputs)`, as one of its inputs alone.

        What it computes of parameters is then done once, such as packing them for products.

        Args:
          values: the parameters, in the order of leaves.
          digest: equal only where these are.
        """
        _, inputs = tree_unflatten(self.in_tree, range(self.in_tree.num_leaves))
        in_tree = tree_flatten(((), inputs))[1]

        def bound(e: Exported) -> Exported:
            program = with_constants(e.program, values, digest)
            return Exported(
                e.fun_name, in_tree, tuple(program.in_avals), e.out_tree, e.out_avals, program,
                e.platforms, e.enable_x64, e.settings,
            )  # fmt: skip

        made = bound(self)
        others = map(bound, self.apart.values())
        made.apart.update((types_text(e.in_avals), e) for e in others)
        return made

    def compiled(self) -> Any:
        """The program compiled for the default device, as `Lowered.compile` does."""
        # late: loads the compiler
        from amdjax.jit.stages import Lowered, Traced
        from amdjax.runtime.devices import default_device

        device = default_device()
        if device not in self._compiled:
            flags = (False,) * len(self.in_avals)
            traced = Traced(self.program, self.in_tree, self.out_tree, self.fun_name, flags)
            self._compiled[device] = Lowered(traced).compile()
        return self._compiled[device]

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The program as bytes, which `deserialize` reads: those of the file that `save` writes.

        Args:
          vjp_order: accepted; what is read back can be differentiated as often as the function.

        Raises:
          ValueError: the program calls Python functions, works on references, takes random keys, or
            its arguments or results are in containers other than tuples, lists and dictionaries.
        """
        return bytearray(write(*parts(self)))

    def save(
        self, path: Any, *, targets: Sequence[str] = (), example: Any = None, key: Any = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Write the program to a file, with machine code, which `load_artifact` reads.

        Args:
          path: the file, mostly `*.amdjax`. It is written beside it and renamed.
          targets: what machine code is made for: "cpu" for this computer, names of GPUs that need
            not be there. By default none: all is compiled where it is loaded.
          example: of a program of symbolic shapes, sizes by dimension variable that machine code is
            made for, or several such; see docs/artifacts.md.
          key: None, or a name and bytes, by which the file is signed (HMAC-SHA256).
          metadata: texts by name.

        Raises:
          ValueError: as `serialize`; there is no such target; no sizes are known that fit.

        Example:
          >>> import tempfile
          >>> exported = amdjax.export.export(amdjax.jit(jnp.sin))(jnp.zeros(3))
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     exported.save(folder + "/sin.amdjax")
          ...     amdjax.load_artifact(folder + "/sin.amdjax")(np.zeros(3, np.float32))
          Array([0., 0., 0.], dtype=float32)
        """
        told = {"metadata": dict(metadata or {})}
        write_file(path, *parts(self, told, targets=targets, example=example), key=key)


def export(
    fun_jit: Any, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[Any] = ()
) -> Callable[..., Exported]:
    """Trace a jitted function for descriptions of arguments, and keep the program apart from it.

    Args:
      fun_jit: a function made by `jit`.
      platforms: where it is meant to run, some of `cpu hip cuda rocm gpu`; all by default, since a
        program is compiled where it is called.
      disabled_checks: accepted; there is nothing to disable.

    Returns:
      A function of `ShapeDtypeStruct`s, whose shapes may be symbolic, or arrays, that returns an
      `Exported`.

    Raises:
      ValueError: the function is not jitted, or there is no such platform.

    Example:
      >>> spec = amdjax.ShapeDtypeStruct(amdjax.export.symbolic_shape("b, 3"), jnp.float32)
      >>> exported = amdjax.export.export(amdjax.jit(lambda x: x.sum(1)))(spec)
      >>> again = amdjax.export.deserialize(exported.serialize())
      >>> again.call(np.ones((2, 3), np.float32)), again.out_avals
      (Array([3., 3.], dtype=float32), (ShapedArray(float32[b]),))
    """
    if not hasattr(fun_jit, "trace"):
        raise ValueError(f"export: the function must be made by jit, got {fun_jit!r}")
    chosen = checked_platforms("export", PLATFORMS if platforms is None else platforms)

    def exported(*args: Any, **kwargs: Any) -> Exported:
        return Exported.of_traced(fun_jit.trace(*args, **kwargs), chosen)

    return exported


def types_text(avals: Sequence[Any]) -> str:
    """The types of arguments as the key of the program for them."""
    return "; ".join(map(str, avals))


def checked_platforms(whose: str, platforms: Sequence[str]) -> tuple[str, ...]:
    """Platforms, if there are such; `whose` is what errors call what names them."""
    if isinstance(platforms, str) or not set(platforms).issubset(PLATFORMS):
        raise ValueError(f"{whose}: platforms must be some of {PLATFORMS}, got {platforms!r}")
    return tuple(platforms)
