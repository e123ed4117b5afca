"""What docstrings of transforms, pytrees and tools say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

_SECOND = "NotImplementedError: for `reduce_axes` other than none."
_NO_FUNCTION = "TypeError: for `fun` that cannot be called."

TRANSFORM = Phrases(
    {
        "allow_int": "whether integer arguments are allowed; their gradients are float0.",
        "argnums": "which positional arguments to differentiate by; an int or a tuple.",
        "fun": "a function of pytrees of arrays.",
        "has_aux": "whether `fun` returns a pair of which only the first is differentiated.",
        "holomorphic": "whether `fun` is holomorphic, with complex arguments and result.",
        "reduce_axes": "accepted for compatibility; must be empty.",
    }
)
TRANSFORMS = (
    Family("checkpoint", "", _NO_FUNCTION, "NotImplementedError: for a true `concrete`."),
    Family("closure_convert", "",
           "TypeError: when the converted function is called with another structure."),
    Family("custom_gradient", "", _NO_FUNCTION),
    Family("linear_transpose value_and_grad vjp", "", _SECOND),
    Family("make_jaxpr", "", _NO_FUNCTION),
    Family("named_call", "", _NO_FUNCTION),
    Family("named_scope", "A context manager, which also decorates functions.",
           "TypeError: for a name that is no text."),
    Family("ensure_compile_time_eval", "A context manager."),
    Family("typeof", "A `ShapedArray`.", x="array or number."),
    Family("disable_jit", "A context manager, which also decorates functions."),
    Family("transfer_guard", "A context manager."),
    Family("set_mesh", "A context manager; without `with` the mesh stays."),
)  # fmt: skip

_LEAF = "called with each subtree; a true result makes it a leaf."

TREES = Phrases(
    {
        "tree": "the pytree.",
        "is_leaf": _LEAF,
        "is_leaf_takes_path": "call `is_leaf(path, subtree)` instead of `is_leaf(subtree)`.",
        "treedef": "the structure.",
        "leaves": "as many values as the structure has leaves.",
    },
    returns={"bool": "A bool.", "PyTreeDef": "A `PyTreeDef`."},
)

_LIKE = "A pytree of the structure of `tree`."

TREE_UTIL = (
    Family("tree_all all_leaves treedef_is_leaf tree_structure tree_flatten"),
    Family("tree_map tree_map_with_path", _LIKE),
    Family("tree_broadcast", "A pytree of the structure of `full_tree`.",
           "ValueError: if the structures do not fit."),
    Family("tree_leaves", "List of the leaves."),
    Family("tree_leaves_with_path", "List of pairs `(path, leaf)`."),
    Family("tree_reduce tree_reduce_associative", "The value that all leaves make."),
    Family("tree_transpose", "A tree of the inner structure, of trees of the outer one."),
    Family("tree_unflatten", "The pytree.", "TypeError: for `treedef` that is no structure."),
    Family("treedef_children", "List of structures."),
    Family("treedef_tuple", treedefs="structures."),
    Family("flatten_one_level", "Children, and what belongs to the structure."),
    Family("flatten_one_level_with_keys",
           "Pairs `(key, child)`, and what belongs to the structure."),
    Family("is_tree_node", "", "TypeError: for what is no type.", typ="a type."),
    Family("register_pytree_with_keys", "", "TypeError: for functions that cannot be called.",
           "ValueError: for a type that is registered already."),
    Family("keystr", "A str."),
)  # fmt: skip

SHARDING = (
    Family("get_abstract_mesh", "The mesh; an empty one if there is none."),
    Family("get_mesh", "The mesh."),
    Family("make_mesh", "The mesh."),
    Family("set_mesh", "A context manager; without `with` the mesh stays."),
    Family("use_abstract_mesh", "A context manager.", "ValueError: for what is no such mesh."),
    Family("make_single_device_sharding", "The sharding."),
    Family("reshard", "A pytree of arrays like `xs`."),
    Family("auto_axes explicit_axes", "The function, or a decorator."),
)

_REFUSED = "NotImplementedError: always."

PROFILER = (
    Family("trace", "A context manager.", "RuntimeError: if a trace is being recorded."),
    Family("device_memory_profile save_device_memory_profile", "", _REFUSED,
           filename="ignored.", backend="ignored."),
    Family("start_server stop_server register_subprocess", "", _REFUSED, port="ignored.",
           requires_backend="ignored.", pid="ignored."),
)  # fmt: skip

POLICIES = (
    Family("everything_saveable nothing_saveable dots_saveable dots_with_no_batch_dims_saveable",
           "Whether the result of the operation is kept.", prim="the operation.",
           params="its parameters."),
    Family("save_anything_except_these_names save_any_names_but_these save_only_these_names",
           names="names that `checkpoint_name` gave."),
    Family("save_from_both_policies", policy_1="a policy.", policy_2="another."),
    Family("offload_dot_with_no_batch_dims save_and_offload_only_these_names",
           offload_src="the memory values are in.", offload_dst="the memory to keep them in.",
           names_which_can_be_saved="names of values to keep where they are.",
           names_which_can_be_offloaded="names of values to keep in the other memory."),
)  # fmt: skip
POLICY = Phrases(returns={"Policy": "A policy, for `checkpoint`."})

SEGMENTS = (
    Family("segment_sum segment_prod segment_max segment_min",
           "Array with a row for each segment, of the dtype of `data`.",
           "ValueError: for a negative `num_segments`, and ids that do not fit `data`.",
           data="rows.", segment_ids="the segment of each row; numbers out of range are dropped.",
           num_segments="how many segments; needed under `jit`.",
           indices_are_sorted="promise that the ids ascend.",
           unique_indices="promise that no id occurs twice.",
           bucket_size="combine buckets of this many rows apart first.",
           mode="treatment of ids out of range, as in `x.at`.",
           out_sharding="sharding of the result."),
)  # fmt: skip
