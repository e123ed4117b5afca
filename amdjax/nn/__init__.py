"""Layers of neural networks: functions first, modules over them."""

from amdjax.nn import initializers as initializers
from amdjax.nn import losses as losses
from amdjax.nn.attention import dot_product_attention as dot_product_attention
from amdjax.nn.convolution import *  # noqa: F403
from amdjax.nn.functions import (
    celu as celu,
)
from amdjax.nn.functions import (
    elu as elu,
)
from amdjax.nn.functions import (
    gelu as gelu,
)
from amdjax.nn.functions import (
    glu as glu,
)
from amdjax.nn.functions import (
    hard_sigmoid as hard_sigmoid,
)
from amdjax.nn.functions import (
    hard_silu as hard_silu,
)
from amdjax.nn.functions import (
    hard_swish as hard_swish,
)
from amdjax.nn.functions import (
    hard_tanh as hard_tanh,
)
from amdjax.nn.functions import (
    identity as identity,
)
from amdjax.nn.functions import (
    leaky_relu as leaky_relu,
)
from amdjax.nn.functions import (
    log1mexp as log1mexp,
)
from amdjax.nn.functions import (
    log_sigmoid as log_sigmoid,
)
from amdjax.nn.functions import (
    log_softmax as log_softmax,
)
from amdjax.nn.functions import (
    logmeanexp as logmeanexp,
)
from amdjax.nn.functions import (
    logsumexp as logsumexp,
)
from amdjax.nn.functions import (
    mish as mish,
)
from amdjax.nn.functions import (
    one_hot as one_hot,
)
from amdjax.nn.functions import (
    relu as relu,
)
from amdjax.nn.functions import (
    relu6 as relu6,
)
from amdjax.nn.functions import (
    selu as selu,
)
from amdjax.nn.functions import (
    sigmoid as sigmoid,
)
from amdjax.nn.functions import (
    silu as silu,
)
from amdjax.nn.functions import (
    soft_sign as soft_sign,
)
from amdjax.nn.functions import (
    softmax as softmax,
)
from amdjax.nn.functions import (
    softplus as softplus,
)
from amdjax.nn.functions import (
    sparse_plus as sparse_plus,
)
from amdjax.nn.functions import (
    sparse_sigmoid as sparse_sigmoid,
)
from amdjax.nn.functions import (
    squareplus as squareplus,
)
from amdjax.nn.functions import (
    standardize as standardize,
)
from amdjax.nn.functions import (
    swish as swish,
)
from amdjax.nn.functions import (
    tanh as tanh,
)
from amdjax.nn.layers import *  # noqa: F403
from amdjax.nn.linear import *  # noqa: F403
from amdjax.nn.losses import *  # noqa: F403
from amdjax.nn.module import *  # noqa: F403
from amdjax.nn.normalization import *  # noqa: F403
from amdjax.nn.pooling import *  # noqa: F403
from amdjax.nn.regularization import *  # noqa: F403
