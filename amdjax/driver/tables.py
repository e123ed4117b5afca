"""What there is to type: the commands, and the flags that they take, as data."""

from __future__ import annotations

from typing import NamedTuple


class Flag(NamedTuple):
    """A flag.

    Args:
      names: as they are typed, the short one last.
      help: what it does.
      metavar: what follows it; "" where nothing does.
      kind: of what follows: `"text"`, `"count"` (1 or more), `"natural"` (0 or more), `"number"`,
        `"time"`, `"choice"`, or `"words"`, of which there may be several.
      choices: what may follow a `"choice"`.
      is_repeated: whether it may be given several times.
    """

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    kind: str = "text"
    choices: tuple[str, ...] = ()
    is_repeated: bool = False

    @property
    def field(self) -> str:
        """The name of its value among the options."""
        return self.names[0].lstrip("-").replace("-", "_")


class Command(NamedTuple):
    """A command.

    Args:
      summary: what it does.
      run: the function, as `module:name` in this package.
      groups: names of groups of flags that it takes.
      flags: those of its own.
      takes_file: whether it is given a file.
    """

    summary: str
    run: str
    groups: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    takes_file: bool = True


GROUPS: dict[str, tuple[Flag, ...]] = {
    "what is read": (
        Flag(("--onnx",), "the file is an ONNX model (else told by its name)"),
        Flag(("--tf",), "the file is a graph of TensorFlow"),
        Flag(("--nhwc",), "images of a graph of TensorFlow are given with channels last"),
        Flag(("--nchw",), "images of a graph of TensorFlow are given with channels first"),
        Flag(("--trust",), "run the machine code of a .amdjax; without, its program is compiled"),
        Flag(("--output-names",), "nodes of a graph of TensorFlow to compute", "NAME", "words"),
    ),
    "sizes": (
        Flag(
            ("--batch",), "size of the first axis where the file leaves it open", "N", "count"
        ),
        Flag(("--input-dim",), "shape of an input: --input-dim @x 1 3 224 224", "WORD", "words",
             is_repeated=True),
        Flag(("--dim-param",), "size of a named dimension: --dim-param @seq 128", "WORD", "words",
             is_repeated=True),
        Flag(("--dyn-input-dim",), "shape with dimensions that stay open, as names or ranges: "
             "--dyn-input-dim @x b:1..64 3 32..512 32..512", "WORD", "words", is_repeated=True),
    ),
    "arguments": (
        Flag(("--fill0",), "an input that is all zeros", "NAME", "words", is_repeated=True),
        Flag(("--fill1",), "an input that is all ones", "NAME", "words", is_repeated=True),
        Flag(("--load-arg",), "an input from a file: --load-arg @x x.npy; all from an .npz",
             "WORD", "words", is_repeated=True),
        Flag(("--seed",), "of random inputs: floats are normal, integers 0 or 1 (default: 0)", "N",
             "natural"),
    ),
    "where": (
        Flag(("--gpu",), "the first GPU"),
        Flag(("--cpu",), "the CPU"),
        Flag(("--target",), "a GPU by its name; one that is not here is emulated where it has to "
             "run", "GFX"),
    ),
    "precision": (
        Flag(("--fp16",), "products of float16"),
        Flag(("--bf16",), "products of bfloat16"),
        Flag(("--fp8",), "products of float8_e4m3fn, scaled"),
        Flag(("--int8",), "products of int8, scaled"),
        Flag(("--int4-weights",), "weights of products in 4 bits"),
        Flag(("--calibrate",), "inputs that scales are taken from: a folder of .npz, an .npz, or "
             "random (the default)", "PATH"),
    ),
    "compiler": (
        Flag(("--disable-passes",), "passes of the compiler that are left out (docs/passes.md)",
             "NAME", "words"),
        Flag(("--memory-limit",), "bytes of intermediates above which values are computed again",
             "N", "natural"),
        Flag(("--enable-offload-copy",),
             "parameters stay in the host's memory, from which a GPU copies them as they are used"),
        Flag(("--fast-math",), "arithmetic may be contracted and approximated (docs/passes.md)"),
        Flag(("--exhaustive-tune",), "search the fastest of all plans of every step first"),
    ),
    "output": (
        Flag(("--output", "-o"), "write to this file", "FILE"),
        Flag(("--json",), "one JSON document on the standard output, nothing else"),
        Flag(("--debug",), "tracebacks of errors"),
    ),
}  # fmt: skip

_READ = ("what is read", "sizes")
_RUN = (*_READ, "arguments", "where", "compiler")
_NARROW = (*_RUN, "precision")
_DETAILED = Flag(("--detailed", "-d"), "tell more")
_RUNS = Flag(("--iterations", "-n"), "how many runs are timed (default: 100, or as many as fit in "
             "10 s)", "N", "count")  # fmt: skip

STAGES = ("jaxpr", "simplified", "fusion", "schedule", "tiles", "passes", "plan", "llvm", "asm",
          "amdgcn", "ptx", "resources")  # fmt: skip

COMMANDS: dict[str, Command] = {
    "read": Command(
        "Print a model: its graph, or the program that it is traced to.", "look:read",
        (*_READ, "output"),
        (
            Flag(("--jaxpr",), "the program that it is traced to"),
            Flag(("--text",), "the graph, a node a line (the default)"),
            Flag(("--optimize", "-O"), "what each pass changes in that program"),
            Flag(("--passes", "-p"), "the program after these passes only", "NAME", "words"),
            Flag(("--target",), "cpu, or a GPU: also the passes for this kind of machine", "NAME"),
            Flag(("--python",), "the model as Python source, with a file of weights beside it: -o"),
            Flag(("--svg",), "draw the graph: -o graph.svg"),
            Flag(("--graphviz",), "the graph as text for Graphviz"),
        ),
    ),
    "params": Command("List inputs, outputs and weights.", "look:params", (*_READ, "output")),
    "compile": Command(
        "Compile a model, for several targets if need be; show stages, save the program.",
        "building:compile_model", (*_NARROW, "output"),
        (
            Flag(("--targets",), "what it is compiled for: cpu, names of GPUs that need not be "
                 "here", "NAME", "words"),
            Flag(("--stage",), "show the program at a stage", "STAGE", "choice", STAGES),
            Flag(("--binary",), "save the compiled program, which -o m.amdjax names"),
            Flag(("--detailed", "-d"), "what each pass changed, and the kernels' resources"),
        ),
    ),
    "run": Command(
        "Compile a model, run it once, and show or save its outputs.", "running:run",
        (*_NARROW, "output"),
    ),
    "perf": Command(
        "Time a model: as a whole, by layers, or by sizes of the batch.", "timing:perf",
        (*_NARROW, "output"),
        (
            _RUNS,
            _DETAILED,
            Flag(("--trace",), "write runs and layers for ui.perfetto.dev", "FILE"),
            Flag(("--best-batch",), "find the batch with the best throughput"),
            Flag(("--max-latency",), "of which p99 is at most this: 20ms", "TIME", "time"),
        ),
    ),
    "verify": Command(
        "Compare a compiled model with NumPy; find the first operation that differs.",
        "checking:verify", (*_READ, "arguments", "where", "precision", "output"),
        (
            GROUPS["compiler"][0],
            Flag(("--each", "-i"), "also each operation, compiled alone"),
            Flag(("--bisect", "-b"), "find the first operation with which the program differs"),
            Flag(("--ref-use-double",), "let the reference keep all floats in float64"),
            Flag(("--rms-tol",), "of the root mean square, over the largest number (default: "
                 "0.001; 0.08 with floats of 16 bits, 0.25 with 8, 0.8 with 4)", "X", "number"),
            Flag(("--atol",), "of an element (0.001, 0.04, 0.125, 0.4)", "X", "number"),
            Flag(("--rtol",), "of an element, relative (as --atol)", "X", "number"),
            _DETAILED,
        ),
    ),
    "quantize": Command(
        "Quantize a model, report what that costs, save it.", "quantizing:quantize_model",
        (*_READ, "arguments", "where", "precision", "output"),
        (
            Flag(("--exclude",), "products that stay as they are: names or patterns of weights",
                 "NAME", "words"),
            Flag(("--method",), "how ranges are taken from calibration", "NAME", "choice",
                 ("minmax", "percentile", "entropy", "mse")),
            Flag(("--targets",), "what -o m.amdjax is compiled for", "NAME", "words"),
        ),
    ),
    "tune": Command(
        "Search the fastest plans of a model's steps; what is found is kept.",
        "building:tune_model", (*_READ, "arguments", "where", "precision", "output"),
        (
            Flag(("--budget",), "how long, such as 60s (the default); a later search goes on from "
                 "there", "TIME", "time"),
            Flag(("--exhaustive",), "try all plans"),
        ),
    ),
    "ops": Command(
        "List the operators that are read.", "look:ops", ("output",),
        (Flag(("--onnx",), "of ONNX"), Flag(("--tf",), "of TensorFlow")), takes_file=False,
    ),
    "targets": Command(
        "List what programs are compiled for, and what is here.", "look:targets", ("output",),
        takes_file=False,
    ),
}  # fmt: skip

#: Flags of MIGraphX's driver that say nothing here, and why.
MEANINGLESS: dict[str, str] = {
    "--disable-fast-math": "arithmetic is relaxed by --fast-math only",
    "--default-dyn-dim": "name the input: --dyn-input-dim @x b 3 224 224",
    "--skip-unknown-operators": "a model with operators that have no rule cannot be computed",
    "--debug-symbols": "the nodes that made an operation are always known",
    "--mlir": "there is no MLIR here; read --jaxpr shows programs",
    "--replace-literals": "weights are parameters already",
    "--strip-context": "artifacts keep nothing of the machine that made them",
    "--migraphx": "its files cannot be read; start from the ONNX model",
    "--migraphx-json": "its files cannot be read; start from the ONNX model",
    "--cpp": "read --python writes a program",
    "--netron": "read --svg draws the graph",
    "--trim": "name the nodes to compute: --output-names",
    "--ort-sha": "ONNX Runtime is no part of this",
}
