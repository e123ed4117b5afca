"""Small programs that recorded calls name: where a public function takes or returns functions.

Each takes the package first. `programs.NAME` is its path in a call (`recorded_calls.find`).
"""

from __future__ import annotations

import importlib
from typing import Any


def initializer(package: Any, kind: str, key: Any, shape: Any, options: Any, *dtype: Any) -> Any:
    """An initializer of `nn.initializers`, made and called."""
    return getattr(package.nn.initializers, kind)(**options)(key, shape, *dtype)


def plain_initializer(package: Any, kind: str, *args: Any) -> Any:
    """`ones` and `zeros`, which need not be made."""
    return getattr(package.nn.initializers, kind)(*args)


def sample(package: Any, kind: str, seed: Any, impl: str, *args: Any, **kwargs: Any) -> Any:
    """Samples by a typed key of a generator, or what is derived from the key, as words."""
    random = package.random
    out = getattr(random, kind)(random.key(seed, impl=impl), *args, **kwargs)
    typed = package.numpy.issubdtype(out.dtype, package.dtypes.prng_key)
    return random.key_data(out) if typed else out


# Control flow, each way with a carry whose types the call varies.


def fori_loop(package: Any, lower: Any, upper: Any, x: Any, y: Any) -> Any:
    return package.lax.fori_loop(lower, upper, lambda i, c: c + i * y, x)


def while_loop(package: Any, limit: Any, x: Any) -> Any:
    body = lambda c: (c[0] + 1, c[1] * 2)
    return package.lax.while_loop(lambda c: c[0] < limit, body, (0, x))


def scan(package: Any, init: Any, xs: Any, options: Any) -> Any:
    return package.lax.scan(lambda c, x: (c + x, c * x), init, xs, **options)


def cond(package: Any, which: Any, x: Any, y: Any) -> Any:
    return package.lax.cond(which, lambda a, b: a + b, lambda a, b: a * b, x, y)


def cond_without_operands(package: Any, which: Any, x: Any, y: Any) -> Any:
    return package.lax.cond(which, lambda: x, lambda: y)


def switch(package: Any, index: Any, x: Any) -> Any:
    branches = [lambda a: a, package.lax.neg, lambda a: a * a]
    return package.lax.switch(index, branches, x)


def map_rows(package: Any, xs: Any, options: Any) -> Any:
    return package.lax.map(lambda x: (x * 2, package.numpy.sum(x)), xs, **options)


def associative_scan(package: Any, kind: str, xs: Any, options: Any) -> Any:
    return package.lax.associative_scan(getattr(package.lax, kind), xs, **options)


def custom_root(package: Any, a: Any) -> Any:
    newton = lambda f, x: package.lax.fori_loop(0, 40, lambda _, x: x - f(x) / (2 * x), x)
    solve = lambda g, y: y / g(package.numpy.ones_like(y))
    return package.lax.custom_root(lambda x: x * x - a, a + 1, newton, solve)


def custom_linear_solve(package: Any, a: Any, b: Any) -> Any:
    solve = lambda matvec, y: package.numpy.linalg.solve(a, y)
    return package.lax.custom_linear_solve(lambda x: a @ x, b, solve, symmetric=True)


# Transforms of functions.


def transformed(package: Any, transform: str, kind: str, x: Any, options: Any) -> Any:
    """`grad`, `hessian`, `jacfwd` … of a function of one argument."""
    return getattr(package, transform)(_function(package, kind), **options)(x)


def of_two(package: Any, transform: str, kind: str, x: Any, y: Any, options: Any) -> Any:
    """Transforms of a function of two arguments."""
    function = {"product": lambda a, b: (a * b).sum(), "dot": lambda a, b: a @ b}[kind]
    return getattr(package, transform)(function, **options)(x, y)


def jvp(package: Any, kind: str, x: Any, t: Any) -> Any:
    return package.jvp(_function(package, kind), (x,), (t,))


def vjp(package: Any, kind: str, x: Any, ct: Any) -> Any:
    y, back = package.vjp(_function(package, kind), x)
    return y, back(ct)


def linearize(package: Any, kind: str, x: Any, t: Any) -> Any:
    y, linear = package.linearize(_function(package, kind), x)
    return y, linear(t)


def linear_transpose(package: Any, x: Any, ct: Any) -> Any:
    return package.linear_transpose(lambda v: v[::-1] * 3, x)(ct)


def eval_shape(package: Any, kind: str, x: Any) -> Any:
    out = package.eval_shape(_function(package, kind), x)
    return out.shape, str(out.dtype), out.weak_type


def collective(package: Any, kind: str, x: Any, options: Any) -> Any:
    """A collective over the axis of a vmap."""
    function = getattr(package.lax, kind)
    return package.vmap(lambda v: function(v, axis_name="i", **options), axis_name="i")(x)


def _function(package: Any, kind: str) -> Any:
    numpy = package.numpy
    return {
        "square": lambda x: x * x,
        "sum of sin": lambda x: numpy.sin(x).sum(),
        "norm": lambda x: numpy.sqrt((x * x).sum()),
        "softmax": lambda x: package.nn.softmax(x),
        "pair": lambda x: {"a": x.sum(), "b": (x, 2 * x)},
        "take": lambda x: x[::-1],
        "cast": lambda x: x.astype("float32").sum(),
        "real": lambda x: numpy.abs(x).sum(),
        "constant": lambda x: 1.0,
    }[kind]


# Classes of scipy.


def interpolator(package: Any, points: Any, table: Any, xi: Any, options: Any) -> Any:
    make = package.scipy.interpolate.RegularGridInterpolator
    return make(points, table, **options)(xi)


def minimum(package: Any, x0: Any) -> Any:
    quadratic = lambda x: ((x - 1) ** 2).sum() + 2 * (x**4).sum()
    found = package.scipy.optimize.minimize(quadratic, x0, method="BFGS")
    return package.numpy.round(found.x, 2), found.success, found.status


def rotation(package: Any, make: str, args: Any, use: str, more: Any) -> Any:
    """A `Rotation` made in one way, and what one of its methods gives."""
    made = getattr(package.scipy.spatial.transform.Rotation, f"from_{make}")(*args)
    found = getattr(made, use)(*more)
    return found.as_quat() if hasattr(found, "as_quat") else found


def kde(package: Any, data: Any, use: str, more: Any, options: Any) -> Any:
    """What a method of a `gaussian_kde` gives."""
    return getattr(package.scipy.stats.gaussian_kde(data, **options), use)(*more)


def krylov(package: Any, kind: str, a: Any, b: Any, options: Any) -> Any:
    """An iterative solution, without what tells how it was found."""
    x, _ = getattr(package.scipy.sparse.linalg, kind)(lambda v: a @ v, b, **options)
    return x


def funm(package: Any, a: Any) -> Any:
    return package.scipy.linalg.funm(a, package.numpy.exp, disp=False)[0]


# Rules that users write, which return what the call gives for it.


def custom_jvp(package: Any, x: Any, out: Any, tangent: Any) -> Any:
    f = package.custom_jvp(lambda x: 2 * x)
    f.defjvp(lambda primals, tangents: (out, tangent))
    return package.jvp(f, (x,), (x,))


def custom_vjp(package: Any, x: Any, out: Any, residuals: Any, cotangents: Any) -> Any:
    f = package.custom_vjp(lambda x: 2 * x)
    f.defvjp(lambda x: (out, residuals), lambda residuals, ct: cotangents)
    return package.grad(lambda x: package.numpy.sum(f(x)))(x)


def custom_vmap(package: Any, x: Any, out: Any, batched: Any) -> Any:
    f = package.custom_batching.custom_vmap(lambda x: 2 * x)
    f.def_vmap(lambda axis_size, in_batched, x: (out, batched))
    return package.vmap(f)(x)


def linear_solve(package: Any, b: Any, solution: Any) -> Any:
    return package.lax.custom_linear_solve(lambda x: 2 * x, b, lambda matvec, b: solution)


def root(package: Any, guess: Any, solution: Any) -> Any:
    solve = lambda f, guess: solution
    return package.lax.custom_root(lambda x: x * x - 2, guess, solve, lambda g, y: y / g(1.0))


def checked(package: Any, pred: Any, message: Any, x: Any) -> Any:
    checkify = importlib.import_module(f"{package.__name__}.experimental.checkify")

    def f(x: Any) -> Any:
        checkify.check(pred, message, x=x)
        return x

    return checkify.checkify(f)(x)[1]


def sparse(package: Any, x: Any, operand: Any, options: Any) -> Any:
    BCOO = importlib.import_module(f"{package.__name__}.experimental.sparse").BCOO
    return BCOO.fromdense(x, **options) @ operand
