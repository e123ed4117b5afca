"""What networks are built and trained of: all names of `nn` but JAX's functions.

Loaded with the first of them that is asked for.
"""

from amdjax.nn import data as data, losses as losses
from amdjax.nn.accumulation import *  # noqa: F403
from amdjax.nn.activations import *  # noqa: F403
from amdjax.nn.adaptive_pooling import *  # noqa: F403
from amdjax.nn.applying import *  # noqa: F403
from amdjax.nn.attention import dot_product_attention as dot_product_attention
from amdjax.nn.block_scaling import *  # noqa: F403
from amdjax.nn.checkpoints import *  # noqa: F403
from amdjax.nn.convolution import *  # noqa: F403
from amdjax.nn.grid_sampling import *  # noqa: F403
from amdjax.nn.interop import *  # noqa: F403
from amdjax.nn.kv_cache import *  # noqa: F403
from amdjax.nn.layers import *  # noqa: F403
from amdjax.nn.lifted import *  # noqa: F403
from amdjax.nn.linear import *  # noqa: F403
from amdjax.nn.local_response import *  # noqa: F403
from amdjax.nn.losses import *  # noqa: F403
from amdjax.nn.module import *  # noqa: F403
from amdjax.nn.normalization import *  # noqa: F403
from amdjax.nn.pooling import *  # noqa: F403
from amdjax.nn.precision import *  # noqa: F403
from amdjax.nn.regularization import *  # noqa: F403
from amdjax.nn.resampling import *  # noqa: F403
from amdjax.nn.rotary import *  # noqa: F403
from amdjax.nn.summaries import *  # noqa: F403
from amdjax.nn.trees import *  # noqa: F403

_complete = True
