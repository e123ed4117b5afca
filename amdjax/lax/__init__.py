"""Primitives, each with all its rules in one place."""

# ruff: noqa: F403, I001
from amdjax.core.dtypes import dtype as dtype
from amdjax.transforms.zero import copy_p as copy_p
from amdjax.lax.accuracy import *
from amdjax.lax.comparison import *
from amdjax.lax.bitwise import *
from amdjax.lax.casting import *
from amdjax.lax.elementwise import *
from amdjax.lax.magnitude import *
from amdjax.lax.roots import *
from amdjax.lax.powers import *
from amdjax.lax.rounding import *
from amdjax.lax.selection import *
from amdjax.lax.elementary import *
from amdjax.lax.complexes import *
from amdjax.lax.shape import *
from amdjax.lax.reductions import *
from amdjax.lax.general_reductions import *
from amdjax.lax.special import *
from amdjax.lax.zeta import *
from amdjax.lax.gamma import *
from amdjax.lax.incomplete_gamma import *
from amdjax.lax.incomplete_beta import *
from amdjax.lax.index_vectors import *
from amdjax.lax.gather import *
from amdjax.lax.slicing import *
from amdjax.lax.dynamic_slicing import *
from amdjax.lax.joining import *
from amdjax.lax.filling import *
from amdjax.lax.dot import *
from amdjax.lax.scaled_dot import *
from amdjax.lax.padding import *
from amdjax.lax.windows import *
from amdjax.lax.general_windows import *
from amdjax.lax.conv import *
from amdjax.lax.conv_forms import *
from amdjax.lax.staging import *
from amdjax.lax.scatter import *
from amdjax.lax.sorting import *
from amdjax.lax.cumulative import *
from amdjax.lax.ragged_dot import *
from amdjax.lax.fft import *
from amdjax.lax.counter_blocks import *
from amdjax.lax.rng import *
from amdjax.lax.control_flow import *
from amdjax.lax.parallel import *
from amdjax.lax.ragged import *
from amdjax.lax.constraints import *
from amdjax.lax.tokens import *
from amdjax.lax import linalg as linalg
from amdjax.lax import _transform_ops as _transform_ops
from amdjax.lax import _param_types as _param_types
from amdjax.lax import attention as attention  # primitives that the compiler looks for
from amdjax.core.docs import complete as _complete
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.lax import _docs

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_public_surface(globals())
