"""Flags: their defaults, their environment variables and thread-local overrides.

Each flag is one row of `FLAGS`. Its effective value for the running thread is a plain
attribute of `config`, so that reading one on the dispatch path is a single attribute look-up.

    >>> config.enable_x64
    False
    >>> with enable_x64(True):
    ...     config.enable_x64
    True
"""

from __future__ import annotations

import contextlib
import operator
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from amdjax.core.flags import FLAGS, MISSING, checked, from_environment, resolved, spellings

#: When this process loaded the package: sources that are newer may not be what runs.
LOADED_AT = time.time()

_SPELLINGS = spellings()
_TRACED = tuple(flag.name for flag in FLAGS.values() if flag.traced)


class TraceKey(tuple):
    """What a trace depends on besides its arguments: traced flags, named axes, the current mesh.

    Interned: equal keys are one object, hashed by identity.

    Cheap to hash inside a cache key; not stable between processes.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def differences(self, other: TraceKey) -> list[tuple[str, Any, Any]]:
        """The names of what differs in another key, with both values."""
        flags = len(_TRACED)
        names = ("mapped axes, mesh or contexts", *_TRACED)
        mine, others = ((tuple(k[:-flags]), *k[-flags:]) for k in (self, other))
        rows = zip(names, mine, others, strict=True)
        return [row for row in rows if row[1] is not row[2] and row[1] != row[2]]


_traced = operator.itemgetter(*_TRACED)
_lock = threading.RLock()
_trace_keys: dict[tuple[Any, ...], TraceKey] = {}
_global_values = from_environment()
_threads: weakref.WeakSet[_ThreadView] = weakref.WeakSet()
_hooks: dict[str, list[Callable[[Any], None]]] = {}
_on_use: dict[str, Callable[[], None]] = {}  # called when a flag's context manager is first made


_user_contexts: list[UserContext] = []


def _intern_trace_key(
    values: dict[str, Any], axes: dict[Hashable, int], mesh: Any, contexts: dict[UserContext, Any]
) -> TraceKey:
    # Of those that have their first value nothing is said: a new one changes no key.
    values_of_users = ((c, contexts.get(c, c._global)) for c in _user_contexts)
    users = [(c, value) for c, value in values_of_users if value != c._default]
    key = (mesh, *axes.items(), *users, *_traced(values))
    return _trace_keys.get(key) or _trace_keys.setdefault(key, TraceKey(key))


class _ThreadView:
    """What one thread sees: its attribute dictionary and the names it overrides."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = attributes
        self.overrides: dict[str, Any] = {}
        self.axes: dict[Hashable, int] = {}
        self.mesh: Any = None
        self.contexts: dict[UserContext, Any] = {}

    def refresh(self) -> None:
        for name, value in (_global_values | self.overrides).items():
            self.show(name, value)
        self.renew_key()

    def renew_key(self) -> None:
        self.attributes["_trace_key"] = _intern_trace_key(
            self.attributes, self.axes, self.mesh, self.contexts
        )

    def show(self, name: str, value: Any) -> None:
        for spelling in _SPELLINGS[name]:
            self.attributes[spelling] = value


class Config(threading.local):
    """The flags as the running thread sees them; see `FLAGS` for the list.

    Read a flag as an attribute, with or without JAX's ``jax_`` prefix; set it for the whole
    process with `update`, or for a block with the context managers of this module.

    >>> config.update("jax_numpy_rank_promotion", "warn")
    >>> config.jax_numpy_rank_promotion, config.numpy_rank_promotion
    ('warn', 'warn')
    >>> config.update("jax_numpy_rank_promotion", "allow")
    """

    def __init__(self) -> None:
        # Runs once in every thread which touches `config`. Reads must stay one look-up in the
        # thread's own dictionary, so `update` pushes new values to all of these.
        view = _ThreadView(self.__dict__)
        self.__dict__["_view"] = view
        with _lock:
            _threads.add(view)
            view.refresh()

    # JAX's spellings are attributes of their own: a class with __getattr__ would make every
    # read, also those which never need it, three times slower.

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"config.{name} cannot be assigned; call config.update({name!r}, {value!r})."
        )

    def update(self, name: str, val: Any) -> None:
        """Set a flag for the whole process.

        Args:
          name: the flag, with or without the prefix ``jax_``.
          val: its new value. Threads inside a context manager keep their override.

        Raises:
          AttributeError: there is no such flag.
          ValueError: the flag does not take this value.
        """
        flag_name, mapping = resolved(name)
        prepare = _on_use.pop(flag_name, None)
        if prepare is not None:
            prepare()
        new = checked(FLAGS[flag_name], _mapped(mapping, val), name)
        with _lock:
            _global_values[flag_name] = new
            for view in list(_threads):
                view.refresh()
            hooks = list(_hooks.get(flag_name, ()))
        for hook in hooks:
            hook(new)

    def read(self, name: str) -> Any:
        """The flag's value as this thread sees it."""
        return self.__dict__[resolved(name)[0]]

    @property
    def values(self) -> dict[str, Any]:
        """All flags under JAX's names, as this thread sees them."""
        return {f"jax_{name}": self.__dict__[name] for name in FLAGS}

    def trace_key(self) -> TraceKey:
        """All that changes what tracing produces, as one interned hashable object."""
        return self._trace_key

    def traced(self) -> dict[str, Any]:
        """The flags that change what tracing produces."""
        return {name: self.__dict__[name] for name in _TRACED}

    @property
    def is_plain(self) -> bool:
        """Whether tracing depends on flags alone: nothing is mapped here, and there is no mesh."""
        return len(self._trace_key) == 1 + len(_TRACED) and self._trace_key[0] is None

    @property
    def axis_env(self) -> dict[Hashable, int]:
        """Names and sizes of the axes being mapped in this thread; not to be altered."""
        return self._view.axes

    def set_axis_env(self, axes: dict[Hashable, int]) -> None:
        """Make these the named axes of this thread."""
        with _lock:  # another thread's update renews this thread's key too
            self._view.axes = axes
            self._view.renew_key()

    @property
    def mesh(self) -> Any:
        """The current mesh of this thread; None if none was set."""
        return self._view.mesh

    def set_mesh(self, mesh: Any) -> None:
        """Make this the current mesh of this thread."""
        with _lock:
            self._view.mesh = mesh
            self._view.renew_key()

    def on_use(self, name: str, prepare: Callable[[], None]) -> None:
        """Call `prepare()` once before the flag `name` is first set."""
        _on_use[name] = prepare

    def on_update(self, name: str, hook: Callable[[Any], None]) -> None:
        """Call ``hook(value)`` after each process-wide update of the flag `name`."""
        with _lock:
            _hooks.setdefault(resolved(name)[0], []).append(hook)


def _mapped(mapping: dict[Any, Any], value: Any) -> Any:
    return mapping.get(value, value) if mapping else value


config = Config()


class _Override(contextlib.ContextDecorator):
    """Sets one flag in the running thread for a block or for the calls of a function."""

    def __init__(self, name: str, value: Any) -> None:
        self._name = name
        self._value = value
        # One stack per thread: a decorated function may run in several at once.
        self._saved = threading.local()

    def __enter__(self) -> None:
        view = config._view
        saved = self._saved.__dict__.setdefault("stack", [])
        saved.append(view.overrides.get(self._name, MISSING))
        self._set(view, self._value)

    def __exit__(self, *exc_info: object) -> None:
        self._set(config._view, self._saved.stack.pop())

    def _set(self, view: _ThreadView, value: Any) -> None:
        with _lock:  # another thread's config.update refreshes this view too
            if value is MISSING:
                view.overrides.pop(self._name, None)
                value = _global_values[self._name]
            else:
                view.overrides[self._name] = value
            view.show(self._name, value)
            if FLAGS[self._name].traced:
                view.renew_key()


_STATE_DOC = """Context manager for the flag `{name}` in this thread.

{help}

Args:
  new_val: the flag's value inside the block.

Returns:
  A context manager, which also decorates functions.

Raises:
  ValueError: for a value that the flag cannot have.
  TypeError: without a value, unless the flag has one for this.

Example:
  >>> print(amdjax.config.{name})
  {default}
"""


class State:
    """A flag's context manager: ``with enable_x64(True): ...``; also decorates functions.

    >>> @numpy_rank_promotion("raise")
    ... def strict():
    ...     return config.numpy_rank_promotion
    >>> strict(), config.numpy_rank_promotion
    ('raise', 'allow')
    """

    def __init__(self, name: str) -> None:
        flag = FLAGS[name]
        self.__name__ = self.name = name
        self.__doc__ = _STATE_DOC.format(name=name, help=flag.help, default=flag.default)
        self._flag = flag

    def __call__(self, new_val: Any = MISSING) -> _Override:
        if new_val is MISSING:
            new_val = self._flag.context_default
            if new_val is MISSING:
                raise TypeError(
                    f"{self.name}() needs the new value of the flag, for example "
                    f"`with {self.name}({(self._flag.choices or (self._flag.default,))[0]!r}):`."
                )
        prepare = _on_use.pop(self.name, None)
        if prepare is not None:
            prepare()
        return _Override(self.name, checked(self._flag, new_val, self.name))

    @property
    def value(self) -> Any:
        """The flag's value as this thread sees it."""
        return config.__dict__[self.name]

    def __repr__(self) -> str:
        return f"<config flag {self.name}={self.value!r}>"


class UserContext:
    """A value that functions may read while they are traced; made by `make_user_context`.

    Calling it with a value gives a context manager in which it has this value in this thread.
    """

    def __init__(self, default_value: Any) -> None:
        self._global = self._default = default_value

    @property
    def value(self) -> Any:
        """What it is in this thread."""
        return config._view.contexts.get(self, self._global)

    def get_global(self) -> Any:
        """What it is in threads that are in none of its contexts."""
        return self._global

    def set_global(self, value: Any) -> None:
        """Let it be `value`, which is hashable, in threads that are in none of its contexts."""
        hash(value)
        with _lock:
            self._global = value
            for view in list(_threads):
                view.renew_key()

    @contextlib.contextmanager
    def __call__(self, value: Any) -> Iterator[None]:
        hash(value)
        before = config._view.contexts.get(self, MISSING)
        self._set(value)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, value: Any) -> None:
        view = config._view
        with _lock:
            if value is MISSING:
                view.contexts.pop(self, None)
            else:
                view.contexts[self] = value
            view.renew_key()


def make_user_context(default_value: Any = None) -> UserContext:
    """A value of your own that traced functions may read: another value, another trace.

    Args:
      default_value: what it is outside of its contexts; hashable.

    Returns:
      Something with `value`, `get_global` and `set_global`, and to be called with a value for a
      context in which it has this value.

        >>> scale = make_user_context(1.0)
        >>> with scale(2.0):
        ...     scale.value
        2.0
    """
    hash(default_value)
    context = UserContext(default_value)
    with _lock:
        _user_contexts.append(context)
        for view in list(_threads):
            view.renew_key()
    return context


enable_x64 = State("enable_x64")
explicit_x64_dtypes = State("explicit_x64_dtypes")
numpy_dtype_promotion = State("numpy_dtype_promotion")
numpy_rank_promotion = State("numpy_rank_promotion")
default_matmul_precision = State("default_matmul_precision")
default_prng_impl = State("default_prng_impl")
default_device = State("default_device")
threefry_partitionable = State("threefry_partitionable")
enable_custom_prng = State("enable_custom_prng")
legacy_prng_key = State("legacy_prng_key")
softmax_custom_jvp = State("softmax_custom_jvp")
allow_f16_reductions = State("allow_f16_reductions")
debug_nans = State("debug_nans")
debug_infs = State("debug_infs")
debug_key_reuse = State("debug_key_reuse")
enable_checks = State("check")
check_tracer_leaks = State("check_tracer_leaks")
checking_leaks = check_tracer_leaks
fast_math = State("fast_math")
disabled_passes = State("disabled_passes")
memory_limit = State("memory_limit")
offload_copy = State("offload_copy")
constants_limit = State("constants_limit")
log_compiles = State("log_compiles")
explain_cache_misses = State("explain_cache_misses")
no_tracing = State("no_tracing")
no_execution = State("no_execution")
thread_guard = State("thread_guard")
array_garbage_collection_guard = State("array_garbage_collection_guard")
transfer_guard_host_to_device = State("transfer_guard_host_to_device")
transfer_guard_device_to_device = State("transfer_guard_device_to_device")
transfer_guard_device_to_host = State("transfer_guard_device_to_host")
_disable_jit = State("disable_jit")
_transfer_guard = State("transfer_guard")


def refuse_execution(name: str) -> None:
    """Raise RuntimeError under `no_execution`; `name` is what would run."""
    if config.no_execution:
        raise RuntimeError(f"{name} would be executed, but the no_execution flag is set")


def disable_jit(disable: bool = True) -> _Override:
    """Run jitted functions as plain Python inside the block.

    Args:
      disable: False turns compilation back on inside a disabled block.

        >>> with disable_jit():
        ...     config.disable_jit
        True
    """
    return _disable_jit(disable)


def transfer_guard(new_val: str) -> contextlib.AbstractContextManager[None]:
    """Guard every kind of transfer inside the block.

    Args:
      new_val: 'allow', 'log', 'disallow', 'log_explicit' or 'disallow_explicit'.

    Raises:
      ValueError: it is none of these.

        >>> with transfer_guard("log"):
        ...     config.transfer_guard_host_to_device
        'log'
    """
    return _guarding(checked(FLAGS["transfer_guard"], new_val, "transfer_guard"))


@contextlib.contextmanager
def _guarding(new_val: str) -> Iterator[None]:
    with (
        transfer_guard_host_to_device(new_val),
        transfer_guard_device_to_device(new_val),
        transfer_guard_device_to_host(new_val),
        _transfer_guard(new_val),
    ):
        yield
