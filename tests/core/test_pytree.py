import collections
import copy
import dataclasses
import gc
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import tree, tree_util
from amdjax.core import treedef as structures
from amdjax.core.pytree import broadcast_prefix
from amdjax.core.pytree_errors import (
    equality_errors,
    equality_errors_pytreedef,
    flatten_axes,
    prefix_errors,
)
from amdjax.tree_util import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    Partial,
    PyTreeDef,
    SequenceKey,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
)

Point = collections.namedtuple("Point", "x y")


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object = None
    name: object = tree.static(default="dense")


@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)

    def __eq__(self, other):
        return type(other) is Pair and (self.a, self.b) == (other.a, other.b)


@tree_util.register_pytree_with_keys_class
class Keyed:
    def __init__(self, q):
        self.q = q

    def tree_flatten_with_keys(self):
        return ((GetAttrKey("q"), self.q),), ("aux", 1)

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)

    def __eq__(self, other):
        return type(other) is Keyed and self.q == other.q


@tree_util.register_static
class Mode(str):
    pass


class Loose:
    def __init__(self, child, data):
        self.child, self.data = child, data


tree_util.register_pytree_node(
    Loose, lambda t: ((t.child,), t.data), lambda data, children: Loose(*children, data)
)


def keyed(keys, values):
    return st.dictionaries(keys, values, max_size=3)


names = st.text("abcxyz_", max_size=3)
trees = st.recursive(
    st.integers() | st.none() | st.builds(Mode, names),
    lambda sub: st.one_of(
        st.lists(sub, max_size=3),
        st.lists(sub, max_size=3).map(tuple),
        keyed(names, sub),
        keyed(st.integers(0, 9), sub),
        keyed(names, sub).map(collections.OrderedDict),
        keyed(names, sub).map(lambda d: collections.defaultdict(list, d)),
        st.builds(Point, sub, sub),
        st.builds(Layer, sub, sub, names),
        st.builds(Pair, sub, sub),
        st.builds(Keyed, sub),
    ),
    max_leaves=12,
)


@given(trees)
def test_round_trip(t):
    leaves, treedef = tree_flatten(t)
    rebuilt = treedef.unflatten(leaves)
    assert rebuilt == t and type(rebuilt) is type(t)
    assert tree_flatten(rebuilt) == (leaves, treedef)
    assert treedef.num_leaves == len(leaves)
    assert treedef.flatten_up_to(t) == leaves


@given(trees)
def test_structures_are_interned(t):
    a, b = tree_structure(t), tree_structure(copy.deepcopy(t))
    assert a is b and hash(a) == hash(b)
    assert copy.deepcopy(a) is a
    assert (
        PyTreeDef.make_from_node_data_and_children(
            tree_util.default_registry, a.node_data(), a.children()
        )
        is a
    )


@given(trees)
def test_paths_agree_with_leaves(t):
    pairs, treedef = tree_flatten_with_path(t)
    assert ([leaf for _, leaf in pairs], treedef) == tree_flatten(t)
    assert len({keystr(path) for path, _ in pairs}) == len(pairs)
    assert len(treedef.paths()) == len(pairs)


@given(trees)
def test_predicate_flattens_like_the_fast_path(t):
    assert tree_flatten(t, is_leaf=lambda x: False) == tree_flatten(t)
    assert tree_flatten(t, is_leaf=lambda x: True) == ([t], tree_structure(0))


@given(trees)
def test_map_is_unflatten_of_mapped_leaves(t):
    leaves, treedef = tree_flatten(t)
    assert tree_map(lambda x: x + 1, t) == treedef.unflatten([x + 1 for x in leaves])
    assert tree_map(lambda x, y: x + y, t, t) == tree_map(lambda x: 2 * x, t)


@given(trees, trees)
def test_prefix_of_a_composition(outer, inner):
    outer_def, inner_def = tree_structure(outer), tree_structure(inner)
    full = outer_def.unflatten([inner] * outer_def.num_leaves)
    assert outer_def.compose(inner_def) is tree_structure(full)
    assert outer_def.flatten_up_to(full) == [inner] * outer_def.num_leaves
    expected = [x for x in tree_leaves(outer) for _ in range(inner_def.num_leaves)]
    assert broadcast_prefix(outer, full) == expected
    assert flatten_axes("axes", tree_structure(full), outer_def.unflatten(tree_leaves(outer))) or (
        not expected
    )


@given(trees)
def test_no_errors_between_equals(t):
    assert prefix_errors(t, t) == []
    assert list(equality_errors(t, t)) == []


@pytest.mark.parametrize(
    "t,text",
    [
        (1, "*"),
        ((1, 2), "(*, *)"),
        ((1,), "(*,)"),
        ((), "()"),
        ([1, [2]], "[*, [*]]"),
        ({"b": (1, 2), "a": None}, "{'a': None, 'b': (*, *)}"),
        (None, "None"),
        (collections.OrderedDict(b=1, a=2), "CustomNode(OrderedDict[('b', 'a')], [*, *])"),
        (
            collections.defaultdict(list, a=1),
            "CustomNode(defaultdict[(<class 'list'>, ('a',))], [*])",
        ),
        (Point(1, 2), "CustomNode(namedtuple[Point], [*, *])"),
        (Layer(1, None, "x"), "CustomNode(Layer[('x',)], [*, None])"),
        (
            Partial(print, 1, k=2),
            "CustomNode(Partial[<built-in function print>], [(*,), {'k': *}])",
        ),
        (Loose(1, {"a": 1}), "CustomNode(Loose[{'a': 1}], [*])"),
    ],
)
def test_repr(t, text):
    assert repr(tree_structure(t)) == f"PyTreeDef({text})"


def test_node_data_and_counts():
    treedef = tree_structure({"b": (1, 2), "a": None})
    assert treedef.node_data() == (dict, ["a", "b"])
    assert (treedef.num_nodes, treedef.num_leaves) == (5, 2)
    assert tree_structure(1).node_data() is None
    assert tree_structure(Point(1, 2)).node_data() == (Point, None)
    assert treedef.children() == [tree_structure(None), tree_structure((0, 0))]


def test_subclasses_are_leaves():
    class Tuple(tuple):
        pass

    class Dict(dict):
        pass

    for value in (Tuple((1, 2)), Dict(a=1), "text", {1, 2}):
        assert tree_leaves([value]) == [value]


def test_keys_and_data_which_are_equal_but_differ():
    assert str(tree_unflatten(tree_structure({True: 0}), [5])) == "{True: 5}"
    assert str(tree_unflatten(tree_structure({1: 0}), [5])) == "{1: 5}"
    assert str(tree_unflatten(tree_structure({1.0: 0}), [5])) == "{1.0: 5}"
    for data in (1, True, 1.0, -0.0, 0.0, (1, True), (True, 1), (0.0,), (-0.0,), "1"):
        out = tree_map(lambda x: x, Layer(0, 0, data))
        assert repr(out.name) == repr(data)
    assert tree_structure(Layer(0, 0, 1)) != tree_structure(Layer(0, 0, True))


def test_dict_order_does_not_matter():
    a, b = {"x": 1, "y": 2}, {"y": 2, "x": 1}
    assert tree_flatten(a) == tree_flatten(b)
    assert list(tree_map(lambda v: v, b)) == ["x", "y"]


def test_unsortable_keys():
    with pytest.raises(ValueError, match="comparable"):
        tree_flatten({"a": 1, 2: 3})


def test_unhashable_data():
    a, b = tree_structure((Loose(1, {"a": 1}), 2)), tree_structure((Loose(3, {"a": 1}), 4))
    c = tree_structure((Loose(3, {"a": 2}), 4))
    assert a == b and hash(a) == hash(b) and a != c
    assert isinstance(a, PyTreeDef) and a != tree_structure((1, 2))
    assert a.unflatten([7, 8])[0].child == 7


def test_unused_structures_are_collected():
    gc.collect()
    before = len(structures._interned)
    for i in range(100):
        tree_structure((Layer(0, 0, f"name {i}"), i))
    gc.collect()
    assert len(structures._interned) <= before + 5


def test_threads_agree_on_structures():
    names = [f"thread test {i}" for i in range(200)]
    found = []

    def work():
        found.append([tree_structure((Layer(0, 0, name), {name: 0})) for name in names])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for other in found for a, b in zip(found[0], other))


def test_types_made_at_run_time_are_forgotten():
    for _ in range(5000):
        tree_leaves([type("T", (), {})()])
    assert len(structures._LEAF_TYPES) <= 4096
    assert len(structures._FLATTENERS) <= 4096 + len(structures._kinds)
    assert tree_leaves({"a": [1, (2, None)]}) == [1, 2]


def test_registering_a_type_already_seen_as_leaf():
    class Late:
        pass

    value = Late()
    assert tree_leaves((value, value)) == [value, value]
    tree_util.register_pytree_node(Late, lambda _: ((1, 2), None), lambda _, c: Late())
    assert tree_leaves((value, value)) == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="registered as a pytree already"):
        tree_util.register_pytree_node(Late, lambda _: ((1, 2), None), lambda _, c: Late())


def test_registration_errors():
    with pytest.raises(TypeError, match="flatten_func"):
        tree_util.register_pytree_node(type("X", (), {}), None, None)
    with pytest.raises(TypeError, match="nodetype"):
        tree_util.register_pytree_node(3, tuple, tuple)
    with pytest.raises(TypeError, match="not a dataclass"):
        tree_util.register_dataclass(int)
    plain = dataclasses.make_dataclass("Plain", ["x", "y"])
    with pytest.raises(TypeError, match="both"):
        tree_util.register_dataclass(plain, ["x"])
    with pytest.raises(ValueError, match=r"Missing fields: \{'y'\}"):
        tree_util.register_dataclass(plain, ["x"], [])
    with pytest.raises(ValueError, match=r"Unexpected fields: \{'z'\}"):
        tree_util.register_dataclass(plain, ["x", "z"], ["y"])
    with pytest.raises(ValueError, match="overlap"):
        tree_util.register_dataclass(plain, ["x", "y"], ["y"])
    with pytest.raises(TypeError, match="no constructor"):
        PyTreeDef()


def test_dataclass_fields():
    assert tree_leaves(Layer(1, (2, 3), "n")) == [1, 2, 3]
    assert tree_map(lambda x: -x, Layer(1, 2, "n")) == Layer(-1, -2, "n")
    kept = dataclasses.make_dataclass("Kept", ["x", ("y", int, dataclasses.field(default=7))])
    tree_util.register_dataclass(kept, ["x"], [], drop_fields=["y"])
    assert tree_map(lambda x: x, kept(1, 2)) == kept(1, 7)
    with_drop = dataclasses.make_dataclass(
        "Dropped", ["x", ("y", int, dataclasses.field(default=7))]
    )
    tree_util.register_dataclass(with_drop, drop_fields=["y"])
    assert tree_leaves(with_drop(1)) == [1]


def test_custom_nodes_are_rebuilt_from_tuples():
    seen = []

    class Node:
        pass

    tree_util.register_pytree_node(
        Node, lambda _: ((1, 2), None), lambda _, c: seen.append(c) or Node()
    )
    tree_map(lambda x: x, Node())
    assert seen == [(1, 2)]


def test_unflatten_errors():
    treedef = tree_structure((1, [2]))
    with pytest.raises(ValueError, match=r"Too few leaves for PyTreeDef.*expected 2, got 1"):
        treedef.unflatten([1])
    with pytest.raises(ValueError, match="Too many leaves"):
        treedef.unflatten(iter([1, 2, 3]))
    assert treedef.unflatten(iter([5, 6])) == (5, [6])


@pytest.mark.parametrize(
    "structure,other,message",
    [
        ([1, 2], (1, 2), "Expected list, got"),
        ({"a": 1}, {"a": 1, "b": 2}, r"expected keys: \['a'\]; present keys: \['a', 'b'\]"),
        ({"a": 1}, {"b": 1}, "Dict key mismatch"),
        ((1, 2), (3,), "Tuple arity mismatch: 1 != 2"),
        (None, 3, "Expected None"),
        (Layer(1, 1, "a"), Layer(1, 1, "b"), "Mismatch of custom node data"),
        (Pair(1, 1), Point(1, 1), "Custom node type mismatch"),
    ],
)
def test_flatten_up_to_errors(structure, other, message):
    with pytest.raises(ValueError, match=message):
        tree_structure(structure).flatten_up_to(other)


@pytest.mark.parametrize(
    "a,b,message",
    [
        ((1, 2), (1,), "different lengths of tuple at key path\n    tree_map tree\n"),
        ({"a": {"x": 1}}, {"a": {"b": 2}}, r"different pytree metadata at key path\n.*\['a'\]"),
        ({"a": {"x": 1}}, {"a": 3}, r"different types at key path\n    tree_map tree\['a'\]"),
        ({"a": 1}, {"a": 1, "b": 2}, r"different numbers of pytree children(?s:.*)\['b'\]"),
        ([(1, 2)], [(1, 2, 3)], r"tree\[0\]"),
        (None, 3, "NoneType"),
    ],
)
def test_map_errors_name_the_key_path(a, b, message):
    with pytest.raises(ValueError, match=message):
        tree_map(lambda x, y: x, a, b)


def test_map_takes_subtrees_of_the_rest():
    assert tree_map(lambda x, y: y, (1, 2), (3, [4, 5])) == (3, [4, 5])
    assert tree_map(lambda x, y: (x, y), [None], [3], is_leaf=lambda x: x is None) == [(None, 3)]


def test_key_paths():
    t = {"a": [1, Point(2, Pair(3, Keyed(4)))]}
    paths = [path for path, _ in tree_flatten_with_path(t)[0]]
    assert paths == [
        (DictKey("a"), SequenceKey(0)),
        (DictKey("a"), SequenceKey(1), GetAttrKey("x")),
        (DictKey("a"), SequenceKey(1), GetAttrKey("y"), FlattenedIndexKey(0)),
        (DictKey("a"), SequenceKey(1), GetAttrKey("y"), FlattenedIndexKey(1), GetAttrKey("q")),
    ]
    assert keystr(paths[2]) == "['a'][1].y[<flat index 0>]"
    assert keystr(paths[3], simple=True, separator="/") == "a/1/y/1/q"
    assert repr(DictKey("a")) == "DictKey(key='a')"
    assert repr(SequenceKey(1)) == "SequenceKey(idx=1)"
    assert repr(GetAttrKey("x")) == "GetAttrKey(name='x')"
    assert repr(FlattenedIndexKey(1)) == "FlattenedIndexKey(key=1)"


def test_with_path_functions():
    assert tree.map_with_path(lambda p, x, y: keystr(p) + f"{x}{y}", {"a": 1}, {"a": 2}) == {
        "a": "['a']12"
    }
    stop = lambda path, x: len(path) == 1
    pairs = tree.leaves_with_path({"a": (1, 2)}, is_leaf=stop, is_leaf_takes_path=True)
    assert pairs == [((DictKey("a"),), (1, 2))]
    with pytest.raises(ValueError, match="tree_map_with_path tree"):
        tree.map_with_path(lambda p, x, y: x, {"a": 1}, {"b": 1})


def test_transpose():
    outer, inner = tree_structure([0, 0, 0]), tree_structure((0, 0))
    t = [(1, 2), (3, 4), (5, 6)]
    assert tree.transpose(outer, inner, t) == ([1, 3, 5], [2, 4, 6])
    assert tree.transpose(outer, None, t) == ([1, 3, 5], [2, 4, 6])
    with pytest.raises(TypeError, match="Mismatch"):
        tree.transpose(outer, inner, [(1, 2), (3, 4)])


def test_broadcast():
    full = (0, {"a": 0, "b": 0}, (0, 0))
    assert tree.broadcast((1, 2, 3), full) == (1, {"a": 2, "b": 2}, (3, 3))
    with pytest.raises(ValueError, match="different lengths of tuple"):
        tree.broadcast((1, 2), (3, [4], 5))


def test_reductions():
    assert tree.reduce(lambda a, b: a * 10 + b, [1, (2, {"x": 3})]) == 123
    assert tree.reduce(lambda a, b: a + b, [], 7) == 7
    assert tree.reduce_associative(lambda a, b: a + b, [[1, 2], 3]) == 6
    assert tree.reduce_associative(lambda a, b: a + b, [], identity=0) == 0
    assert tree.all((True, 1)) and not tree.all((True, 0)) and tree.all(())
    with pytest.raises(TypeError):
        tree.reduce(lambda a, b: a + b, [])
    with pytest.raises(TypeError, match="identity"):
        tree.reduce_associative(lambda a, b: a + b, [])


def test_queries():
    assert tree_util.all_leaves([1, 2]) and not tree_util.all_leaves([None, 1])
    assert tree_util.all_leaves([(1, 2)], is_leaf=lambda x: isinstance(x, tuple))
    assert tree_util.is_tree_node(Point) and not tree_util.is_tree_node(int)
    assert tree_util.treedef_is_leaf(tree_structure(None))
    assert tree_util.treedef_tuple([tree_structure(1)]) is tree_structure((1,))
    assert tree_util.treedef_children(tree_structure([1])) == [tree_structure(1)]
    assert tree_util.flatten_one_level({"b": [1], "a": 2}) == ((2, [1]), ("a", "b"))
    assert tree_util.flatten_one_level(Point(1, 2)) == ([1, 2], Point)
    assert tree_util.flatten_one_level_with_keys([5]) == (((SequenceKey(0), 5),), None)
    assert tree_util.default_registry.flatten_one_level(1) is None
    with pytest.raises(ValueError, match="can't tree-flatten"):
        tree_util.flatten_one_level(1)


def test_walk_and_iterable_tree():
    treedef = tree_structure((1, {"a": 2}))
    out = treedef.walk(lambda children, data: [data, *children], lambda x: -x, [5, 6])
    assert out == [None, -5, [["a"], -6]]
    assert treedef.from_iterable_tree((1, [2])) == (1, {"a": 2})


def test_partial():
    inner = Partial(max, 1)
    outer = Partial(inner, 2)
    assert outer(0) == 2
    assert tree_leaves(inner) == [1] and tree_leaves(outer) == [2]
    assert tree_structure(Partial(inner, 2)) is tree_structure(Partial(inner, 3))
    assert tree_map(lambda x: x + 5, outer)(0) == 7


def test_pickle_of_a_structure_is_interned_again():
    treedef = tree_structure((1, {"a": [None, 2]}))
    assert pickle.loads(pickle.dumps(treedef)) is treedef


def test_flatten_axes():
    args = tree_structure((0, {"a": 0, "b": (0, 0)}))
    assert flatten_axes("in_axes", args, 0) == [0, 0, 0, 0]
    assert flatten_axes("in_axes", args, None) == [None] * 4
    assert flatten_axes("in_axes", args, (None, {"a": 1, "b": 2})) == [None, 1, 2, 2]
    with pytest.raises(ValueError, match=r"(?s)must be a tree prefix.*3 entries.*2"):
        flatten_axes("vmap in_axes", args, (0, 0, 0), tupled_args=True)
    with pytest.raises(ValueError, match="not as a list"):
        flatten_axes("vmap in_axes", args, [0, 0], tupled_args=True)
    with pytest.raises(ValueError, match=r"vmap in_axes\[1\]"):
        flatten_axes("vmap in_axes", args, (0, {"a": 0, "c": 0}), tupled_args=True)
    call = tree_structure(((0, 0), {"k": 0}))
    with pytest.raises(ValueError, match="3 entries"):
        flatten_axes("vmap in_axes", call, ((0, 0, 0), 0), kws=True, tupled_args=True)


def test_equality_errors():
    a, b = {"x": (1, 2), "y": [1]}, {"x": (1,), "y": 1}
    found = [(keystr(path), why) for path, _, _, why in equality_errors(a, b)]
    assert found == [("['x']", "the lengths do not match"), ("['y']", "their Python types differ")]
    by_structure = equality_errors_pytreedef(tree_structure(a), tree_structure(b))
    assert len(list(by_structure)) == 2


@pytest.mark.parametrize(
    "parts, what",
    [((2, 3, 4), r"tuple, got \(2, 3, 4\)"), ("hello", "tuple, got 'hello'"),
     ((7, 7), r"tuple where 'children' is iterable, got")],
)  # fmt: skip
def test_what_a_container_is_taken_apart_into(parts, what):
    class Box:
        pass

    tree_util.register_pytree_node(Box, lambda box: parts, lambda data, children: Box())
    for use in (tree_flatten, tree_flatten_with_path, lambda t: tree_flatten([t], lambda x: False)):
        with pytest.raises(ValueError, match=rf"\(children, aux_data\) {what}"):
            use(Box())


def test_structures_with_arrays_as_metadata_cannot_be_compared():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Table:
        rows: object = dataclasses.field(metadata={"static": True})

    first, second = (tree_structure(Table(np.arange(4))) for _ in range(2))
    with pytest.raises(ValueError, match="while checking equality of metadata fields of pytree"):
        first == second  # noqa: B015
