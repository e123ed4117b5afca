"""Calls of the functions of `jax.lax.linalg`."""

from __future__ import annotations

from tests.support.jax_calls import Call, Draw, Family

PREFIX = "lax.linalg"
DTYPES = ["float32", "float32", "float64", "complex64", "int32"]
SQUARE = [(2, 2), (3, 3), (1, 1), (2, 3, 3), (0, 0), (0, 2, 2)]


def definite(d: Draw) -> Call:
    x = d.array(d.pick(SQUARE), DTYPES, "definite", plain=True)
    return [x], d.options(symmetrize_input=lambda: False)


def square(d: Draw) -> Call:
    return [d.array(d.pick(SQUARE), DTYPES, plain=True)], {}


def symmetric(d: Draw) -> Call:
    x = d.array(d.pick(SQUARE), DTYPES, "definite", plain=True)
    return [x], d.options(lower=lambda: False)


def any_shape(d: Draw) -> Call:
    shape = d.pick([*SQUARE, (2, 3), (3, 2), (2, 3, 2), (3,)])
    options = {
        "svd": {"full_matrices": lambda: False, "compute_uv": lambda: False},
        "qr": {"full_matrices": lambda: False},
    }
    return [d.array(shape, DTYPES, plain=True)], d.options(**options.get(d.name, {}))


def solving(d: Draw) -> Call:
    dtype = d.pick(DTYPES[:4])
    a = d.array((3, 3), [dtype], "definite", plain=True)
    b = d.array(d.pick([(3, 3), (3, 1), (3, 2)]), [dtype], plain=True)
    flag = lambda: True
    return [a, b], d.options(
        left_side=flag, lower=flag, transpose_a=flag, conjugate_a=flag, unit_diagonal=flag
    )


def reflectors(d: Draw) -> Call:
    dtype = d.pick(DTYPES[:4])
    return [d.array((3, 2), [dtype], plain=True), d.array((2,), [dtype], plain=True)], {}


def diagonals(d: Draw) -> Call:
    lower, middle, upper = (d.array((4,), ["float32"], k, plain=True) for k in ("unit",) * 3)
    return [lower, {"a": ["float32", [4], 7, "sorted"]} if d.chance(0.5) else middle, upper,
            d.array((4, 2), ["float32"], plain=True)], {}  # fmt: skip


def updating(d: Draw) -> Call:
    return [d.array((3, 3), ["float32"], "definite", plain=True),
            d.array((3,), ["float32"], plain=True)], {}  # fmt: skip


def products(d: Draw) -> Call:
    return [d.array((3, 2), ["float32"], plain=True), d.array((3, 3), ["float32"], plain=True)], {
        "symmetrize_output": True
    }


def pivots(d: Draw) -> Call:
    return [{"a": ["int32", [d.pick([2, 3])], d.random.randrange(50), "index"]}, d.pick([3, 4])], {}


FAMILIES: dict[Family, str] = {
    definite: "cholesky",
    square: "lu schur eig",
    symmetric: "eigh",
    any_shape: "svd qr",
    solving: "triangular_solve",
    reflectors: "householder_product",
    diagonals: "tridiagonal_solve",
    updating: "cholesky_update",
    products: "symmetric_product",
    pivots: "lu_pivots_to_permutation",
}
