"""A model of the estimates that GPUs have, which are as rough as they may be."""

from amdjax.codegen import llvm
from amdjax.codegen.llvm import F32, F64, I32
from amdjax.codegen.math import MATH

NAMES = ("exp2", "log2", "rcp", "rsqrt")


def roughly(module, ulps):
    """Give a module functions in place of a GPU's instructions, off by some ulp."""
    module.estimates = {name: estimate(module, name, ulps) for name in NAMES}


def estimate(module, name, ulps):
    """A function as GPUs estimate it, but for some ulp: subnormal numbers are zeros."""
    f = module.function(f"estimate.{name}", [("x", F32)], F32, linkage="internal")
    x = flushed(f, f.args[0])
    wide = f.cast("fpext", x, "double")
    if name == "rcp":
        y = f.fdiv(llvm.const(F64, 1.0), wide)
    else:
        y = MATH[name](f, wide)
    if name == "log2":  # an absolute error too
        y = f.add(y, llvm.const(F64, ulps / 3 * 2.0**-22))
    y = f.cast("fptrunc", y, "float")
    moved = f.bitcast(f.add(f.bitcast(y, I32), llvm.const(I32, ulps)), F32)
    magnitude = f.intrinsic("fabs", F32, y)
    ordinary = f.and_(
        f.fcmp("olt", magnitude, llvm.const(F32, float("inf"))),
        f.fcmp("ogt", magnitude, llvm.const(F32, 2.0**-125)),
    )
    f.ret(flushed(f, f.select(ordinary, moved, y)))
    return f.name


def flushed(f, x):
    small = f.fcmp("olt", f.intrinsic("fabs", F32, x), llvm.const(F32, 2.0**-126))
    return f.select(small, f.intrinsic("copysign", F32, llvm.const(F32, 0.0), x), x)
