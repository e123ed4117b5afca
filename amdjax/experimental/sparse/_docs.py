"""What the docstrings of `amdjax.experimental.sparse` say alike."""

from __future__ import annotations

from amdjax.core.docs import Family, Phrases

PHRASES = Phrases(
    {
        "dimensions": "the axes.",
        "dtype": "that of its data.",
        "operand": "a `BCOO`.",
        "sparse_format": '"bcoo", "bcsr", "coo", "csr" or "csc".',
        "unique_indices": "promise that no place comes twice.",
        "B": "the other matrix.",
        "argnums": "which positional arguments to differentiate by.",
        "arr": "an array or a sparse array.",
        "broadcast_dimensions": "where each axis of `mat` comes to lie.",
        "dimension": "along which.",
        "dimension_numbers": "the axes that are contracted and those that are batches.",
        "fun": "a function of pytrees of arrays and sparse arrays.",
        "has_aux": "whether `fun` returns a pair of which only the first is differentiated.",
        "index_dtype": "that of the indices.",
        "kwargs": "as for the function of this name in `amdjax`.",
        "mat": "a `BCOO`.",
        "n_batch": "leading axes that are batches.",
        "n_dense": "trailing axes that are not sparse.",
        "nse": "how many entries there can be; as many as needed by default.",
        "out_sharding": "accepted.",
        "precision": "accepted.",
        "preferred_element_type": "the dtype of the result.",
        "shape": "the new shape.",
        "sharding": "accepted.",
        "transpose": "whether the matrix is transposed.",
        "v": "the vector.",
    },
    returns={"BCOO": "A `BCOO`.", "BCSR": "A `BCSR`.", "Array": "An array."},
)

FAMILIES = (
    Family("grad value_and_grad jacfwd jacrev", "A function of the arguments of `fun`."),
    Family("bcsr_broadcast_in_dim bcsr_concatenate bcsr_sum_duplicates bcsr_todense",
           mat="a `BCSR`.", operands="`BCSR`s of the same numbers of batch and dense axes."),
    Family("bcsr_fromdense", mat="an array."),
    Family("bcsr_dot_general", "An array.", lhs="a `BCSR`.", rhs="an array."),
    Family("coo_todense coo_matvec coo_matmat csr_todense csr_matvec csr_matmat", "An array.",
           mat="the matrix."),
)  # fmt: skip
