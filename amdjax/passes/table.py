"""The table of passes: what each is called, what it does, how it runs and whether it can be off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn
from amdjax.passes.alignment import align_products
from amdjax.passes.attention import read_views, recognize_attention
from amdjax.passes.barriers import remove_barriers
from amdjax.passes.batch_chains import Caches, run_chains_in_cache
from amdjax.passes.cleanup import eliminate_common_subexpressions, eliminate_dead_code
from amdjax.passes.extended import store_extended
from amdjax.passes.flatten import discharge_refs, flatten_calls
from amdjax.passes.group_sums import join_group_sums
from amdjax.passes.layouts import Nanoseconds, choose_layouts
from amdjax.passes.loop_residuals import Cost, recompute_in_loops
from amdjax.passes.loop_slices import slice_products_in_loops
from amdjax.passes.loop_sums import sum_after_loops
from amdjax.passes.memory_spaces import place_in_memory
from amdjax.passes.narrow_operands import read_narrow_operands
from amdjax.passes.offloading import offload_copy
from amdjax.passes.paddings import pad_in_convolutions
from amdjax.passes.product_chains import LEAST_IN_LOOPS, fuse_product_chains
from amdjax.passes.results import repeat_results
from amdjax.passes.reversals import read_reversed_kernels
from amdjax.passes.rules import relax_functions, simplify, use_one_complex_dtype
from amdjax.passes.scatters import join_scatters
from amdjax.passes.switches import is_on

__all__ = ["PASSES", "Facts", "Note", "Pass"]


@dataclass(frozen=True)
class Facts:
    """What passes are told of where a program will run.

    Attributes:
      has_kernels: whether the machine has kernels for an equation that could be composed.
      cost_again: of computing an element that an equation makes again, in additions; None where
        loops stay as they are.
      nanoseconds: about how long a product or convolution takes by itself, where some variables are
        constants whose packed forms are kept; None where that is not known yet.
      machine: "cpu" or "gpu", where the program is planned for one.
      caches: of a CPU, by what intermediates they hold.
      goes_by_strides: whether a kernel for an equation reads parts of arrays where they lie.
      is_whole: whether it is no body of a loop or branch.
      overwritten: arguments whose memory results may take over.
    """

    has_kernels: Callable[[JaxprEqn], bool] = lambda eqn: True
    cost_again: Cost | None = None
    nanoseconds: Nanoseconds | None = None
    machine: str = ""
    caches: Caches | None = None
    goes_by_strides: Callable[[JaxprEqn], bool] | None = None
    is_whole: bool = False
    overwritten: frozenset[int] = frozenset()


Run = Callable[[ClosedJaxpr, Facts], ClosedJaxpr]
#: Receives the name of a pass, the program before it and the program after it.
Note = Callable[[str, ClosedJaxpr, ClosedJaxpr], None]


@dataclass(frozen=True)
class Pass:
    """A pass of the compiler.

    Attributes:
      name: what it is called, as in `disabled_passes`.
      does: what it does, in a line.
      run: makes a program of a program; None if it works on kernels or on plans, where the file
        asks `is_on`.
      file: where it is, in `amdjax/`.
      only: what it is for, if not for all programs: "cpu", "gpu" or "whole".
      is_needed: whether no program can do without.
    """

    name: str
    does: str
    run: Run | None
    file: str
    only: str = ""
    is_needed: bool = False

    def runs(self, facts: Facts) -> bool:
        """Whether it changes programs, is switched on and is for programs like this one."""
        if self.run is None or not (self.is_needed or is_on(self.name)):
            return False
        return self.only in ("", facts.machine) or (self.only == "whole" and facts.is_whole)


def _plain(run: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Run:
    return lambda closed, facts: run(closed)


def _in_loops(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    return closed if facts.cost_again is None else recompute_in_loops(closed, facts.cost_again)


def _layouts(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    if facts.nanoseconds is None:
        return closed
    keeps = facts.is_whole and is_on("compute_constants_once")
    return choose_layouts(closed, facts.nanoseconds, closed.jaxpr.constvars if keeps else ())


def _paddings(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    return closed if facts.nanoseconds is None else pad_in_convolutions(closed, facts.nanoseconds)


def _views(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    return closed if facts.goes_by_strides is None else read_views(closed, facts.goes_by_strides)


def _chains(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    return closed if facts.caches is None else run_chains_in_cache(closed, facts.caches)


def _product_chains(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    if facts.cost_again is None:
        return closed
    least = 0 if facts.is_whole else LEAST_IN_LOOPS
    return fuse_product_chains(closed, facts.has_kernels, facts.cost_again, least)


def _offload_copy(closed: ClosedJaxpr, facts: Facts) -> ClosedJaxpr:
    return offload_copy(closed, facts.overwritten) if facts.is_whole else closed


_SHARE = Pass(
    "eliminate_common_subexpressions", "what is written twice is computed once",
    _plain(eliminate_common_subexpressions), "passes/cleanup.py",
)  # fmt: skip

#: In order; those that change programs run on the whole program and on every loop body and branch.
#: What is written twice is shared before rules look at it, since some only fit what has one reader,
#: and once more after, since rules make different expressions equal.
PASSES: tuple[Pass, ...] = (
    Pass("place_in_memory", "what computes on values in the host's memory has them on the device",
         lambda closed, facts: place_in_memory(closed, facts.machine == "gpu"),
         "passes/memory_spaces.py", only="whole", is_needed=True),
    Pass("flatten_calls", "calls are inlined, operations without kernels composed of others",
         lambda closed, facts: flatten_calls(closed, facts.has_kernels),
         "passes/flatten.py", is_needed=True),
    Pass("discharge_refs", "references become the values they hold",
         _plain(discharge_refs), "passes/flatten.py", is_needed=True),
    Pass("store_extended", "arrays of keys become arrays of the words they are stored as",
         _plain(store_extended), "passes/extended.py", is_needed=True),
    Pass("use_one_complex_dtype", "operands of complex products get one dtype",
         _plain(use_one_complex_dtype), "passes/rules.py", is_needed=True),
    _SHARE,
    Pass("sum_after_loops", "sums that loops make step by step are made after them at once",
         _plain(sum_after_loops), "passes/loop_sums.py"),
    Pass("choose_layouts", "convolutions and what is between them get channels last if that pays",
         _layouts, "passes/layouts.py", only="cpu"),
    Pass("relax_functions", "`fast_math` writes functions by others that take less",
         _plain(relax_functions), "passes/rules.py"),
    Pass("simplify", "algebra, reshapes, transposes and conversions by a table of rewrites",
         _plain(simplify), "passes/rules.py"),
    Pass("eliminate_dead_code", "what nothing reads is not computed",
         _plain(eliminate_dead_code), "passes/cleanup.py"),
    _SHARE,
    Pass("recognize_attention", "softmax of products times values becomes an attention kernel",
         lambda closed, facts: recognize_attention(closed, facts.has_kernels),
         "passes/attention/rewriting.py"),
    Pass("read_views", "attention reads queries, keys and values that are slices where they lie",
         _views, "passes/attention/views.py", only="gpu"),
    Pass("fuse_product_chains", "products and what lies between them become one kernel",
         _product_chains, "passes/product_chains.py", only="gpu"),
    Pass("join_scatters", "updates of one array, one after the other, become one",
         _plain(join_scatters), "passes/scatters.py"),
    Pass("remove_barriers", "optimization barriers go that keep nothing apart any more",
         _plain(remove_barriers), "passes/barriers.py", is_needed=True),
    Pass("recompute_in_loops", "a loop computes cheaply what another would stack for it",
         _in_loops, "passes/loop_residuals.py"),
    Pass("join_group_sums", "sums of products of few rows by groups or elements are one product",
         _plain(join_group_sums), "passes/group_sums.py", only="cpu"),
    Pass("read_narrow_operands", "products read operands as they are stored, not converted",
         _plain(read_narrow_operands), "passes/narrow_operands.py", only="cpu"),
    Pass("read_reversed_kernels", "convolutions read kernels from the last taps on, not reversed",
         _plain(read_reversed_kernels), "passes/reversals.py"),
    Pass("align_products", "rows of what long products read begin where wide accesses may",
         _plain(align_products), "passes/alignment.py", only="gpu"),
    Pass("pad_in_convolutions", "convolutions of bytes have zeros around them, not zero points",
         _paddings, "passes/paddings.py", only="cpu"),
    Pass("slice_products_in_loops", "loops make the slices of large products that they read",
         _plain(slice_products_in_loops), "passes/loop_slices.py", only="cpu"),
    Pass("run_chains_in_cache", "chains of products over a batch run a few members at a time",
         _chains, "passes/batch_chains.py", only="cpu"),
    Pass("repeat_results", "what several results are is written several times by one kernel",
         _plain(repeat_results), "passes/results.py", only="whole"),
    Pass("offload_copy", "`offload_copy` has arguments in the host's memory, and copies of some",
         _offload_copy, "passes/offloading.py", only="gpu"),
    Pass("checkpoint_loops", "loops compute steps again that `memory_limit` lets them not stack",
         None, "jit/memory_limit.py"),
    Pass("offload_residuals", "`offload_copy` lets values that `memory_limit` lets not stay leave",
         None, "jit/memory_limit.py", only="gpu"),
    Pass("recompute_for_memory", "values are computed again that `memory_limit` lets not stay",
         None, "jit/memory_limit.py"),
    Pass("run_loops_by_element", "loops over single elements run in registers",
         None, "schedule/element_loops.py"),
    Pass("inline_elementwise", "elementwise values are computed where they are read",
         None, "schedule/fusion.py"),
    Pass("compute_operands", "products of few rows compute elementwise what they read once",
         None, "schedule/fusion.py", only="cpu"),
    Pass("fuse_regions", "reductions and elementwise work over one domain share a kernel",
         None, "schedule/fusion.py"),
    Pass("relax_arithmetic", "`fast_math` contracts, multiplies by reciprocals and estimates",
         None, "schedule/arithmetic.py"),
    Pass("split_reductions", "few long rows are summed by several programs each",
         None, "schedule/row_plan.py"),
    Pass("fuse_epilogues", "elementwise work behind a product or convolution is part of it",
         None, "schedule/fusion.py"),
    Pass("fuse_sums", "sums over rows are computed by the kernel that has the rows in registers",
         None, "schedule/row_sums.py", only="gpu"),
    Pass("run_together", "kernels that are independent share a launch",
         None, "schedule/horizontal.py"),
    Pass("copy_near_use", "the host's memory is copied from right before what reads the copy",
         None, "jit/offloading.py", only="gpu"),
    Pass("prefetch_copies", "copies between memories run beside the kernels before or after them",
         None, "jit/offloading.py", only="gpu"),
    Pass("persistent_loops", "loops become one launch whose programs stay resident",
         None, "jit/control.py", only="gpu"),
    Pass("hoist_from_loops", "what loops pack of their constants is packed before them",
         None, "jit/plan.py"),
    Pass("compute_constants_once", "what is computed of constants alone is kept, as packed weights",
         None, "jit/constants.py", only="cpu"),
    Pass("fill_workspace_once", "what several products would pack alike is packed once",
         None, "jit/plan.py", only="cpu"),
    Pass("share_kernels", "kernels of products that differ in numbers alone are compiled once",
         None, "jit/plan.py", only="cpu"),
    Pass("update_in_place", "results take over the memory of values that are dead or donated",
         None, "jit/updates.py"),
    Pass("color_memory", "values that are not alive together share memory",
         None, "jit/plan.py"),
)  # fmt: skip
