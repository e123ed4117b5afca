"""The inner interfaces that libraries written for JAX build on: programs, primitives, names."""

from amdjax.extend import (
    backend as backend,
    core as core,
    linear_util as linear_util,
    random as random,
    source_info_util as source_info_util,
)
