"""Control flow: operations whose operands are programs."""

# ruff: noqa: F403
from amdjax.lax.control_flow import _references as _references
from amdjax.lax.control_flow.associative import *
from amdjax.lax.control_flow.branches import *
from amdjax.lax.control_flow.mapping import *
from amdjax.lax.control_flow.platforms import *
from amdjax.lax.control_flow.scans import *
from amdjax.lax.control_flow.solves import *
from amdjax.lax.control_flow.while_loops import *
