"""Layers of neural networks: functions first, modules over them."""

from amdjax.core.docs import complete as _complete
from amdjax.core.errors import public_surface as _public_surface
from amdjax.nn import _docs, data as data, initializers as initializers, losses as losses
from amdjax.nn.accumulation import *  # noqa: F403
from amdjax.nn.activations import *  # noqa: F403
from amdjax.nn.adaptive_pooling import *  # noqa: F403
from amdjax.nn.applying import *  # noqa: F403
from amdjax.nn.attention import dot_product_attention as dot_product_attention
from amdjax.nn.block_scaling import *  # noqa: F403
from amdjax.nn.checkpoints import *  # noqa: F403
from amdjax.nn.convolution import *  # noqa: F403
from amdjax.nn.functions import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    identity as identity,
    kthvalue as kthvalue,
    leaky_relu as leaky_relu,
    log1mexp as log1mexp,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    logmeanexp as logmeanexp,
    logsumexp as logsumexp,
    mish as mish,
    one_hot as one_hot,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softmax as softmax,
    softplus as softplus,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    standardize as standardize,
    swish as swish,
    tanh as tanh,
)
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
from amdjax.nn.summary import *  # noqa: F403
from amdjax.nn.trees import *  # noqa: F403

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_public_surface(globals())
