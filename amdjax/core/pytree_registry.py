"""How types become containers: registering nodes, dataclasses and static values."""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from amdjax.core.container_kinds import Kind
from amdjax.core.key_paths import GetAttrKey
from amdjax.core.treedef import _add_kind, _kind_of, _kinds

T = TypeVar("T")
Typ = TypeVar("Typ", bound=type)


def is_tree_node(typ: type) -> bool:
    """Whether `typ` is a type whose instances are containers.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    if typ is None:
        raise TypeError("is_tree_node: typ must be a class, got None")
    return isinstance(typ, type) and _kind_of(typ) is not None


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Any]:
    """Children and auxiliary data of the root.

    Raises:
      ValueError: `tree` is a leaf.

        >>> flatten_one_level({"b": [1], "a": 2})
        ((2, [1]), ('a', 'b'))
    """
    kind = _kind_of(type(tree))
    if kind is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    children, data = kind.children(tree)
    if kind.label:  # a namedtuple's type is all there is to know about it
        return list(children), kind.type
    return children, data


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Any]:
    """``(key, child)`` pairs and auxiliary data of the root.

    Raises:
      ValueError: `tree` is a leaf.

        >>> flatten_one_level_with_keys({"b": 1})
        (((DictKey(key='b'), 1),), ('b',))
    """
    kind = _kind_of(type(tree))
    if kind is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    pairs, data = kind.children_with_keys(tree)
    return tuple(pairs), kind.type if kind.label else data


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make a type a container of pytrees.

    Args:
      nodetype: the type; its subclasses are not included.
      flatten_func: instance -> (children, auxiliary data). The data is part of the structure;
        it should be hashable and must not hold arrays. Data which compare equal are taken
        to be interchangeable.
      unflatten_func: (auxiliary data, children) -> instance. Must accept any objects as
        children, since transformations put their own there.
      flatten_with_keys_func: instance -> ((key, child) pairs, auxiliary data).

    Raises:
      ValueError: `nodetype` is registered already.
      TypeError: an argument is not a type, or not callable.

        >>> from amdjax.core.pytree import tree_leaves
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, c: Pair(*c))
        >>> tree_leaves([Pair(1, 2), 3])
        [1, 2, 3]
    """
    if not isinstance(nodetype, type):
        raise TypeError(f"nodetype must be a type, got {nodetype!r}.")
    for name, fun in (("flatten_func", flatten_func), ("unflatten_func", unflatten_func)):
        if not callable(fun):
            raise TypeError(f"{name} must be callable, got {fun!r}.")
    _check_unregistered(nodetype)
    _add_kind(Kind(nodetype, flatten_func, unflatten_func, flatten_with_keys_func))


def _check_unregistered(nodetype: type) -> None:
    known = _kinds.get(nodetype)
    # A namedtuple met as such may still get functions of its own.
    if known is not None and not known.label:
        raise ValueError(f"nodetype: {nodetype} is registered as a pytree already.")


def register_pytree_node_class(cls: Typ) -> Typ:
    """Class decorator for containers with ``tree_flatten`` and ``tree_unflatten`` methods.

    Args:
      cls: has ``tree_flatten(self) -> (children, aux_data)`` and the class method
        ``tree_unflatten(cls, aux_data, children)``.

    Returns:
      `cls` itself.

    Raises:
      TypeError: `cls` is no class with these methods.

        >>> from amdjax.core.pytree import tree_leaves
        >>> @register_pytree_node_class
        ... class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        ...     def tree_flatten(self):
        ...         return (self.a, self.b), None
        ...     @classmethod
        ...     def tree_unflatten(cls, aux_data, children):
        ...         return cls(*children)
        >>> tree_leaves(Pair(1, 2))
        [1, 2]
    """
    _check_methods("register_pytree_node_class", cls, "tree_flatten", "tree_unflatten")
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def _check_methods(name: str, cls: Any, *methods: str) -> None:
    missing = [m for m in methods if not callable(getattr(cls, m, None))]
    if missing or not isinstance(cls, type):
        wanted = " and ".join(methods)
        raise TypeError(f"{name}: cls must be a class with {wanted}, got {cls!r}.")


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Make a type a container whose children have keys.

    Args:
      nodetype: the type.
      flatten_with_keys: instance -> ((key, child) pairs, auxiliary data).
      unflatten_func: (auxiliary data, children) -> instance.
      flatten_func: instance -> (children, auxiliary data), if that can be done faster.

        >>> from amdjax.core.pytree import SequenceKey, tree_leaves_with_path
        >>> class Box:
        ...     def __init__(self, x):
        ...         self.x = x
        >>> register_pytree_with_keys(
        ...     Box, lambda b: (((SequenceKey(0), b.x),), None), lambda _, c: Box(*c))
        >>> tree_leaves_with_path(Box(7))
        [((SequenceKey(idx=0),), 7)]
    """
    if not callable(flatten_with_keys):
        raise TypeError(f"flatten_with_keys must be callable, got {flatten_with_keys!r}.")
    if flatten_func is None:

        def flatten_func(tree: T) -> tuple[Iterable[Any], Any]:
            pairs, data = flatten_with_keys(tree)
            return [child for _, child in pairs], data

    register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Class decorator like `register_pytree_node_class`, with ``tree_flatten_with_keys``.

    Args:
      cls: has ``tree_flatten_with_keys(self) -> ((key, child) pairs, aux_data)``, the class
        method ``tree_unflatten``, and perhaps ``tree_flatten``.

    Returns:
      `cls` itself.

    Raises:
      TypeError: `cls` is no class with these methods.

        >>> from amdjax.core.pytree import SequenceKey, tree_leaves_with_path
        >>> @register_pytree_with_keys_class
        ... class Box:
        ...     def __init__(self, x):
        ...         self.x = x
        ...     def tree_flatten_with_keys(self):
        ...         return ((SequenceKey(0), self.x),), None
        ...     @classmethod
        ...     def tree_unflatten(cls, aux_data, children):
        ...         return cls(*children)
        >>> tree_leaves_with_path(Box(7))
        [((SequenceKey(idx=0),), 7)]
    """
    methods = ("tree_flatten_with_keys", "tree_unflatten")
    _check_methods("register_pytree_with_keys_class", cls, *methods)
    register_pytree_with_keys(
        cls,
        operator.methodcaller("tree_flatten_with_keys"),
        cls.tree_unflatten,  # type: ignore[attr-defined]
        operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None,
    )
    return cls


def register_dataclass(
    nodetype: Typ,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Typ:
    """Make a dataclass a container; usable as a decorator.

    Args:
      nodetype: a dataclass, or a class which takes its fields as keyword arguments.
      data_fields: fields which hold children. Default: all but the static ones.
      meta_fields: fields which belong to the structure. Default: those declared with
        ``field(metadata={"static": True})`` or `amdjax.tree.static`.
      drop_fields: fields to leave out; they take their defaults again when rebuilt.

    Returns:
      `nodetype` itself.

    Raises:
      TypeError: only one of `data_fields` and `meta_fields` is given, or none of them and
        `nodetype` is no dataclass.
      ValueError: the fields do not cover the dataclass's exactly, or overlap.

        >>> from amdjax.core.pytree import tree_structure
        >>> @register_dataclass
        ... @dataclasses.dataclass
        ... class Layer:
        ...     weight: object
        ...     name: str = dataclasses.field(metadata={"static": True})
        >>> tree_structure(Layer(1.0, "dense"))
        PyTreeDef(CustomNode(Layer[('dense',)], [*]))
    """
    data, meta = _dataclass_fields(nodetype, data_fields, meta_fields, drop_fields)
    get_data, get_meta = _attributes(data), _attributes(meta)
    keys = tuple(map(GetAttrKey, data))

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return get_data(tree), get_meta(tree)

    def flatten_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], tuple[Any, ...]]:
        return zip(keys, get_data(tree)), get_meta(tree)

    def unflatten(meta_values: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return nodetype(**dict(zip(data, children)), **dict(zip(meta, meta_values)))

    register_pytree_node(nodetype, flatten, unflatten, flatten_with_keys)
    return nodetype


def _dataclass_fields(
    nodetype: type,
    data_fields: Sequence[str] | None,
    meta_fields: Sequence[str] | None,
    drop_fields: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not isinstance(nodetype, type):
        raise TypeError(f"register_dataclass: nodetype must be a class, got {nodetype!r}.")
    for argument, names in (
        *(("data_fields", data_fields), ("meta_fields", meta_fields)),
        ("drop_fields", drop_fields),
    ):
        if names is not None and (isinstance(names, str) or not all(map(_is_name, names))):
            raise TypeError(
                f"register_dataclass: {argument} must be a sequence of field names, got {names!r}."
            )
    is_dataclass = dataclasses.is_dataclass(nodetype)
    if data_fields is None or meta_fields is None:
        if data_fields is not meta_fields:
            raise TypeError(
                "register_dataclass: data_fields and meta_fields must both be specified when "
                f"either is specified. Got {data_fields=} {meta_fields=}."
            )
        if not is_dataclass:
            raise TypeError(
                "register_dataclass: data_fields and meta_fields are required when nodetype is "
                f"not a dataclass. Got {nodetype=}."
            )
        fields = [f for f in dataclasses.fields(nodetype) if f.name not in drop_fields]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    given = {*data_fields, *meta_fields}
    if is_dataclass:
        required = {f.name for f in dataclasses.fields(nodetype) if f.init} - {*drop_fields}
        if given != required:
            missing, unexpected = required - given, given - required
            raise ValueError(
                "data_fields and meta_fields must include all dataclass fields with init=True and "
                "no others."
                + (f" Missing fields: {missing}; drop_fields may list them." if missing else "")
                + (f" Unexpected fields: {unexpected}." if unexpected else "")
            )
    else:
        _check_keywords(nodetype, given)
    if overlap := {*data_fields} & {*meta_fields}:
        raise ValueError(
            f"data_fields and meta_fields must not overlap. Overlapping fields: {overlap}."
        )
    return tuple(data_fields), tuple(meta_fields)


def _is_name(name: Any) -> bool:
    return isinstance(name, str)


def _check_keywords(nodetype: type, fields: set[str]) -> None:
    """Raise TypeError where a class without dataclass fields cannot be rebuilt from `fields`."""
    try:
        parameters = inspect.signature(nodetype).parameters
    except ValueError:  # a type written in C, such as int
        parameters = MappingProxyType({})
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    if unknown := sorted(fields - {*parameters}):
        raise TypeError(
            f"register_dataclass: {nodetype.__name__} does not take its fields {unknown} as "
            "keyword arguments, so it cannot be rebuilt from them."
        )


def _attributes(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an object to the tuple of its attributes `names`."""
    if not names:
        return lambda tree: ()
    get: Any = operator.attrgetter(*names)
    return get if len(names) > 1 else lambda tree: (get(tree),)


def register_static(cls: type[T]) -> type[T]:
    """Class decorator: instances are containers without leaves, part of the structure.

    Args:
      cls: a class whose instances are hashable and compare by value.

    Returns:
      `cls` itself.

        >>> from amdjax.core.pytree import tree_leaves
        >>> @register_static
        ... class Mode(str): pass
        >>> tree_leaves((1, Mode("train")))
        [1]
    """
    register_pytree_with_keys(cls, lambda tree: ((), tree), lambda tree, _: tree)
    return cls
