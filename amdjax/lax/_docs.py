"""What the docstrings of `amdjax.lax` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

PHRASES = Phrases(
    {
        "a": "array of a floating-point dtype.",
        "accuracy": "accepted for compatibility; results are within 2 ulp in any case.",
        "aggregate_to_topk": "accepted for JAX's sake; results are always of size `k`.",
        "allow_negative_indices": "whether a negative index counts from the end.",
        "axes": "the axes to reduce, none of them twice.",
        "axis": "the axis, not negative.",
        "axis_name": "a mapped axis, or several.",
        "dimension": "the axis along which to sort.",
        "dimension_numbers": "how operand, indices and updates fit together.",
        "dtype": "a numeric dtype.",
        "fill_value": "the value, a scalar.",
        "filter_shape": "n sizes of the window.",
        "group_offset": "must be None.",
        "index": "an integer scalar, clamped to the axis.",
        "index_dtype": "integer dtype of the result.",
        "indices_are_sorted": "a promise that the index vectors ascend.",
        "init_val": "the first carry, a pytree of arrays.",
        "k": "how many, at least one.",
        "keepdims": "whether the axis stays, with size 1.",
        "lhs": "input, array of rank n + 2.",
        "lhs_dilation": "n distances that neighbors in the input are moved apart; 1 where omitted.",
        "lhs_shape": "shape of the input.",
        "mode": "what becomes of a slice that leaves the operand; `None` drops it.",
        "operand": "an array.",
        "operand_batching_dims": "dimensions of the operand that run along with dimensions of "
        "the\n    indices; sorted.",
        "out_sharding": "sharding of the result over a mesh's explicit axes.",
        "padding": "as in `conv_general_dilated`.",
        "precision": "how exactly to multiply float32 where hardware offers a choice.",
        "preferred_element_type": "dtype of the result and of the sums.",
        "recall_target": "the share of true results that would do; exact results always do.",
        "reduction_dimension": "the axis along which to look.",
        "reduction_input_size_override": "accepted for JAX's sake; of no effect.",
        "reverse": "whether to run from the end.",
        "rhs": "kernel of shape (output feature, input feature, *space).",
        "rhs_dilation": "n distances between neighbors in a window; 1 where omitted.",
        "rhs_shape": "shape of the kernel.",
        "scatter_indices": "integers, as in `scatter`.",
        "shape": "the shape of the result.",
        "sharding": "sharding of the result.",
        "start_index": "an integer scalar.",
        "start_indices": "n integer scalars, or an integer array of shape `(n,)`.",
        "unique_indices": "a promise that no element is updated twice.",
        "updates": "an array of the operand's dtype, as in `scatter`.",
        "window_dilation": "n distances between neighbors in a window; 1 where omitted.",
        "window_dimensions": "n sizes of the window.",
        "window_strides": "steps between windows.",
        "x": "array of a floating-point or complex dtype.",
        "y": "array of the same dtype; shapes equal up to axes of size one, or scalars.",
    }
)

_ACCURACY = "NotImplementedError: if `accuracy` is neither an `AccuracyMode` nor a `Tolerance`."
_OTHER = "TypeError: for an operand of another dtype."
_MISMATCH = "TypeError: for an operand of another dtype, or shapes that do not match."
_SAME = "Array of the shape and dtype of the operand."
_COMMON = "Array of the common shape and of the operands' dtype."
_LIKE = "An array of `operand`'s shape and dtype."
_AXES = "ValueError: if an axis is out of bounds or named twice."
_COLLECTIVE = {"axis_index_groups": "not supported.", "x": "pytree of arrays."}

FAMILIES = (
    Family("acos acosh asin asinh atan atanh cosh sinh", _SAME, _OTHER),
    Family("cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh", _SAME, _OTHER,
           _ACCURACY),
    Family("cbrt", _SAME, _OTHER, _ACCURACY, x="array of a floating-point dtype."),
    Family("add div sub", _COMMON, _MISMATCH, x="array of a numeric dtype."),
    Family("approx_max_k approx_min_k",
           "Values, and their int32 indices along the axis; both have size `k` there.",
           "TypeError: if the operand is not floating.",
           "ValueError: if `k` or the axis is out of range.",
           operand="an array of a floating dtype."),
    Family("argmax argmin", "Array of `index_dtype` without that axis.",
           "TypeError: if `index_dtype` is not an integer dtype.",
           "ValueError: if the axis is empty or out of bounds.",
           axis="the axis to search, not empty.", operand="array of a real or boolean dtype."),
    Family("bessel_i0e bessel_i1e ceil digamma erf erf_inv erfc floor lgamma", _SAME, _OTHER,
           x="array of a floating-point dtype."),
    Family("bitwise_and bitwise_or bitwise_xor", _COMMON, _MISMATCH,
           x="array of an integer or boolean dtype."),
    Family("clz population_count", _SAME, _OTHER, x="array of an integer dtype."),
    Family("cummax cummin cumprod cumsum", _LIKE, "TypeError: for a boolean operand.",
           "ValueError: if `axis` is out of range.", operand="an array of a numeric dtype."),
    Family("eq ne", "Boolean array of the common shape.", _MISMATCH, x="array of any dtype."),
    Family("ge gt le lt", "Boolean array of the common shape.", _MISMATCH,
           x="array of a real or boolean dtype."),
    Family("igamma igamma_grad_a igammac random_gamma_grad", _COMMON, _MISMATCH,
           x="array of the same dtype; shapes equal up to axes of size one, or scalars."),
    Family("imag real", "Array of the shape of the operand and of its component dtype.", _OTHER,
           x="array of a complex dtype."),
    Family("max min", _COMMON, _MISMATCH, x="array of any dtype."),
    Family("mulhi rem shift_left shift_right_arithmetic shift_right_logical", _COMMON, _MISMATCH,
           x="array of an integer dtype."),
    Family("neg sign square", _SAME, _OTHER, x="array of a numeric dtype."),
    Family("reduce_and reduce_max reduce_min reduce_prod", "", "TypeError: for another dtype.",
           _AXES),
    Family("reduce_or reduce_xor",
           "Array of the operand's dtype without these axes; 0 for no elements.",
           "TypeError: for another dtype.", _AXES, operand="array of an integer or boolean dtype."),
    Family("scatter_add scatter_max scatter_min scatter_mul scatter_sub", _LIKE,
           "TypeError: as `scatter`."),
    Family("atan2 mul nextafter polygamma zeta", _COMMON, _MISMATCH),
    Family("pmax pmean pmin", "A pytree like `x`, the same for all elements of the axis.",
           "NameError: for an axis that is not mapped.",
           axis_name="name of the axis, or a tuple of names.", **_COLLECTIVE),
    Family("psum all_to_all pswapaxes", axis_name="name of the axis, or a tuple of names.",
           **_COLLECTIVE),
    Family("all_gather pbroadcast ppermute pshuffle psum_scatter", axis_name="name of the axis.",
           **_COLLECTIVE),
    Family("cond switch", "The result of the chosen function."),
    Family("abs is_finite", "", _OTHER),
    Family("bitwise_not", _SAME, _OTHER),
    Family("betainc pow", "", _MISMATCH),
    Family("integer_pow round reciprocal", "Array of the shape and dtype of `x`."),
    Family("conv_general_dilated conv_general_dilated_local conv_transpose",
           "Array of rank n + 2."),
    Family("conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple",
           "The shape of the result."),
    Family("cumlogsumexp dynamic_update_slice scatter_apply", _LIKE),
    Family("dynamic_slice_in_dim slice_in_dim", "The slice, of the same rank as `operand`."),
    Family("dynamic_index_in_dim index_in_dim", "`operand` at `index` of `axis`."),
    Family("concatenate stack", "The joined array."),
    Family("select select_n", "Array of the shape and dtype of the cases."),
    Family("custom_root custom_linear_solve", "What `solve` returns."),
    Family("dce_sink optimization_barrier", "", "TypeError: if a leaf is not an array."),
    Family("conv conv_with_general_padding", "Array of shape (batch, output feature, *space).",
           "ValueError: if sizes do not fit."),
    Family("dynamic_update_index_in_dim dynamic_update_slice_in_dim", _LIKE,
           "TypeError: as `dynamic_update_slice`."),
    Family("batch_matmul broadcast broadcast_in_dim broadcasted_iota conv_dimension_numbers "
           "conv_general_dilated_patches dot dot_general dynamic_slice empty fori_loop full "
           "full_like iota ragged_dot ragged_dot_general reduce reduce_sum reduce_window "
           "reduce_window_shape_tuple reshape rng_uniform sort sort_key_val while_loop"),
)  # fmt: skip

_NO_EFFECT = "accepted for JAX's sake; of no effect."
LINALG = (
    Family("eigh cholesky hessenberg tridiagonal", "",
           "ValueError: if the matrices are not square.", x="matrices of shape `(..., n, n)`.",
           a="matrices of shape `(..., n, n)`.", implementation=_NO_EFFECT),
    Family("eig schur", x="matrices of shape `(..., n, n)`.", implementation=_NO_EFFECT),
    Family("lu qr", "", "TypeError: if `x` has fewer than two dimensions.",
           x="matrices of shape `(..., m, n)`."),
    Family("svd", x="matrices of shape `(..., m, n)`."),
    Family("lu_solve triangular_solve", "The solutions, of the shape of `b`."),
)  # fmt: skip
