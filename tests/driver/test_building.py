"""`compile`, `tune`, `quantize`, and what `read` shows of passes."""

import numpy as np
import onnx as onnx_package
import pytest
from onnx import reference

import amdjax
from amdjax import onnx, quantize
from amdjax.core.config import State
from amdjax.driver import building
from amdjax.driver.look import _after_passes
from amdjax.driver.tables import STAGES
from amdjax.passes import PASSES
from tests.support import model_files


def test_compile_for_several_targets(network, ok, amdjax_command):
    found = ok("compile", network, "--targets", "cpu", "gfx942", "sm_90", "--batch", 2)
    assert [r["target"] for r in found["targets"]] == ["cpu", "gfx942", "sm_90"]
    assert all(r["kernels"] > 2 and r["results"] == 80 for r in found["targets"])
    assert "text" not in found
    said = amdjax_command("compile", network, "--detailed", "--target", "gfx1100").out
    assert "# gfx1100: passes" in said
    assert "# gfx1100: resources" in said
    for words in (["--targets", "gfx94"], ["-o", "m.onnx"], ["--binary"], ["--stage", "lvm"]):
        assert amdjax_command("compile", network, *words).code == 2
    assert "Did you mean 'llvm'?" in amdjax_command("compile", network, "--stage", "lvm").err


def test_compile_for_open_sizes(network, ok, amdjax_command, tmp_path):
    path, words = tmp_path / "open.amdjax", ["--dyn-input-dim", "@x", "b:2..64", 3, 8, 8]
    found = ok("compile", network, *words, "--targets", "cpu", "gfx942", "-o", path)["targets"]
    fixed = ok("compile", network, "--batch", 2)["targets"][0]
    weights = sum(np.asarray(x).nbytes for x in onnx.load(network).params.values())
    for row in found:
        assert row["at"] == {"b": 2}
        taken = [eval(row[name], {"b": 2}) for name in ("arguments", "results", "operations")]
        assert taken[:2] == [fixed["arguments"] + weights, fixed["results"]]
        assert 0 < taken[2] == pytest.approx(fixed["operations"], rel=0.05)
        assert row["kernels"] > 2 and row["workspace"] > 0
    images = np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)
    wanted = np.asarray(onnx.load(network)(images)["probs"])
    kept = amdjax.load_artifact(path)
    for n in (2, 5):
        np.testing.assert_allclose(kept(images[:n])["probs"], wanted[:n], rtol=1e-5, atol=1e-6)
    for n in (1, 65):
        done = amdjax_command("run", path, "--batch", n)
        assert done.code == 1 and "does not hold where batch" in done.err
    said = amdjax_command("compile", network, *words).out
    assert "kernels and workspace at b = 2" in said and "40*b" in said


@pytest.mark.parametrize("command", ["compile", "quantize"])
def test_open_sizes_of_quantized_models(affine, ok, tmp_path, command):
    """Calibrated with samples of the range, and compiled for them; it serves all of it."""
    path = tmp_path / "m.amdjax"
    ok(command, affine, "--dyn-input-dim", "@x", "b:2..18", 4, "--int8", "-o", path)
    artifact = amdjax.load_artifact(path, trust=True)
    assert artifact.manifest["targets"]["cpu"]["sizes"] == [{"n": n} for n in (2, 6, 18)]
    assert artifact.manifest["dimensions"]["constraints"] == ["n >= 2", "n <= 18"]
    x = np.random.default_rng(0).normal(size=(18, 4)).astype(np.float32)
    want = np.asarray(onnx.load(affine)(x)["y"])
    for n in (2, 5, 18):
        assert quantize.sqnr(want[:n], artifact(x[:n])["y"]) > 25


def test_plans_are_searched_at_samples_of_open_sizes(affine, ok, tmp_path, monkeypatch):
    words = "--dyn-input-dim", "@x", "n:1..32", 4
    with State("db_path")(str(tmp_path / "find.db")):
        found = ok("tune", affine, *words, "--budget", "1s")
    assert [x["at"] for x in found["sizes"]] == [{"n": n} for n in (1, 5, 32)]
    assert all(x["solutions"] or x["unsolved"] for x in found["sizes"])
    tuned = []
    monkeypatch.setattr(building, "tune_steps", lambda model, given, *_, **__: tuned.append(given))
    ok("compile", affine, *words, "--exhaustive-tune")
    assert [given["x"].shape for given in tuned] == [(1, 4), (5, 4), (32, 4)]


@pytest.mark.parametrize("stage", STAGES)
def test_stages(affine, amdjax_command, stage):
    target = "sm_90" if stage == "ptx" else "gfx942"
    done = amdjax_command("compile", affine, "--stage", stage, "--targets", target)
    assert done.code == 0, done.err
    assert f"# {target}: {stage}\n" in done.out


def test_stages_that_a_target_does_not_have(affine, amdjax_command):
    done = amdjax_command("compile", affine, "--stage", "ptx")
    assert done.code == 2
    assert "stage must be one of" in done.err


def test_read_shows_what_passes_change(network, ok, amdjax_command):
    text = ok("read", network, "--optimize")["text"]
    assert "# simplify: " in text
    assert "# after all passes" in text
    plain = ok("read", network, "-p", "eliminate_dead_code")["text"]
    simple = ok("read", network, "-p", "simplify", "eliminate_dead_code")["text"]
    assert simple.count("\n") < plain.count("\n")
    for words, said in (
        (["-p", "simplfy"], "Did you mean 'simplify'?"),
        (["-p", "flatten_calls"], "no program can do without"),
        (["-p", "simplify", "-O"], "exclude each other"),
    ):
        done = amdjax_command("read", network, *words)
        assert done.code == 2
        assert said in done.err


def test_passes_of_one_kind_of_machine_are_shown():
    x, w = np.ones((4, 256), np.float32), np.ones((256, 256), np.float16)
    closed = amdjax.make_jaxpr(lambda x, w: x @ w.astype("float32"))(x, w)
    assert "# read_narrow_operands: " in _after_passes(closed, None)
    narrow = _after_passes(closed, ["read_narrow_operands"])
    assert "convert_element_type" not in narrow


def test_read_shows_passes_for_a_machine(network, ok, amdjax_command, tmp_path):
    """Two convolutions with channels first, which a CPU computes with channels last."""
    info = onnx_package.helper.make_tensor_value_info
    kernels = [
        onnx_package.numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float32), f"k{i}")
        for i in range(2)
    ]
    node = lambda x, k, y: onnx_package.helper.make_node("Conv", [x, k], [y], pads=[1, 1, 1, 1])
    graph = onnx_package.helper.make_graph(
        [node("x", "k0", "h"), node("h", "k1", "y")], "g", [info("x", 1, [8, 64, 56, 56])],
        [info("y", 1, [8, 64, 56, 56])], kernels,
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx_package.save(onnx_package.helper.make_model(graph), path)
    cpu, gpu = (ok("read", path, "-O", "--target", t)["text"] for t in ("cpu", "gfx942"))
    assert "# choose_layouts" in cpu and "# choose_layouts" not in gpu
    for words, said in (
        (["-O", "--target", "gfx94"], "--target: unknown GPU target"),
        (["--target", "cpu"], "goes with --optimize or --passes"),
        (["-O", "--target", "cpu", "--dyn-input-dim", "@x", "b", 3, 8, 8], "depends on sizes"),
    ):
        done = amdjax_command("read", network, *words)
        assert done.code == 2 and said in done.err


def test_passes_may_be_left_out(network, ok, amdjax_command):
    names = [p.name for p in PASSES if not p.is_needed]
    whole = ok("compile", network)["targets"][0]["kernels"]
    assert ok("compile", network, "--disable-passes", *names)["targets"][0]["kernels"] > whole
    assert ok("verify", network, "--disable-passes", *names)["equal"]
    assert amdjax_command("run", network, "--disable-passes", "fuze_regions").code == 2


def test_a_limit_of_memory(network, ok, amdjax_command):
    needed = ok("compile", network)["targets"][0]["workspace"]
    same = ok("compile", network, "--memory-limit", needed)["targets"][0]
    assert same["workspace"] == needed > 0
    done = amdjax_command("compile", network, "--memory-limit", 1)
    assert done.code != 0
    assert f"memory_limit is 1 bytes, but intermediates take {needed:,}" in done.err
    assert amdjax_command("compile", network, "--memory-limit", -1).code == 2


def test_parameters_in_the_hosts_memory(ok, tmp_path):
    helper, name = onnx_package.helper, "layers.onnx"
    ws = np.random.default_rng(0).normal(size=(3, 64, 64)).astype(np.float32) / 8
    names = [f"w{i}" for i in range(len(ws))]
    nodes = [
        helper.make_node("MatMul", [f"h{i}" if i else "x", w], [f"h{i + 1}"])
        for i, w in enumerate(names)
    ]
    kind = onnx_package.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(n, kind, [4, 64]) for n in ("x", "h3")]
    stored = [onnx_package.numpy_helper.from_array(w, n) for w, n in zip(ws, names)]
    graph = helper.make_graph(nodes, "layers", values[:1], values[1:], stored)
    onnx_package.save(helper.make_model(graph), tmp_path / name)
    flag = "--enable-offload-copy"
    words = "compile", tmp_path / name, "--targets", "gfx942", "cpu"
    plain, (gpu, cpu) = ok(*words)["targets"], ok(*words, flag)["targets"]
    assert plain[0]["in host"] == cpu["in host"] == 0
    assert gpu["in host"] == ws.nbytes and gpu["arguments"] == 4 * 64 * 4
    assert gpu["constants"] + gpu["workspace"] < plain[0]["constants"]
    for target in (["--cpu"], ["--target", "gfx942"]):
        run = "run", tmp_path / name, *target, "--seed", 3
        found, wanted = ok(*run, flag)["outputs"][0], ok(*run)["outputs"][0]
        assert found["mean"] == pytest.approx(wanted["mean"], rel=1e-4)
        assert found["most"] == pytest.approx(wanted["most"], rel=1e-5)


def test_fast_math(network, ok):
    words = "compile", network, "--stage", "tiles"
    assert "relaxed" not in str(ok(*words))
    assert "relaxed=True" in str(ok(*words, "--fast-math"))
    assert ok("run", network, "--fast-math")


def test_tune(affine, ok, amdjax_command, tmp_path, monkeypatch):
    from amdjax.core.config import config

    before = config.db_path
    config.update("db_path", str(tmp_path / "find.db"))
    try:
        found = ok("tune", affine, "--budget", "2s", "--batch", 16)
        assert found["before"] > 0
        assert found["solutions"] or found["unsolved"]
        assert (tmp_path / "find.db").exists()
        assert "problems measured" in amdjax_command("tune", affine, "--budget", "1s").out
        assert ok("run", affine, "--exhaustive-tune")["outputs"]
    finally:
        config.update("db_path", before)
    assert amdjax_command("tune", affine, "--budget", "soon").code == 2


def test_quantize_reports_and_writes_qdq(network, ok, amdjax_command, tmp_path):
    path = tmp_path / "quantized.onnx"
    found = ok("quantize", network, "-o", path)
    assert {r["name"] for r in found["rows"]} == {"stem.w", "body.w", "head.w"}
    assert found["sqnr"] > 25
    assert len(found["worst"]) == 3
    ops = [n.op_type for n in onnx_package.load(path).graph.node]
    assert (ops.count("QuantizeLinear"), ops.count("DequantizeLinear")) == (3, 6)
    x = np.random.default_rng(7).standard_normal((4, 3, 8, 8), np.float32)
    want, got = (np.asarray(onnx.load(p)(x=x)["probs"]) for p in (network, path))
    assert quantize.sqnr(want, got) > 25
    assert path.stat().st_size < 2 * network.stat().st_size
    said = amdjax_command("quantize", network, "--exclude", "head.w", "--method", "entropy").out
    assert "head.w" in said
    assert "dB" in said


@pytest.mark.parametrize(
    "words, said",
    [
        (["--exclude", "heaad.w"], "heaad.w"),
        (["--fp16", "-o", "x.onnx"], "--int8, --fp8 or --int4-weights"),
        (["-o", "x.bin"], "takes .onnx (QDQ) or .amdjax"),
        (["--method", "max"], "--method takes one of minmax"),
        (["--bf16", "--method", "mse"], "is for --int8 and --fp8"),
        (["--int8", "--fp8"], "exclude each other"),
    ],
)
def test_quantize_refuses(network, amdjax_command, words, said):
    done = amdjax_command("quantize", network, *words)
    assert done.code == 2
    assert said in done.err


def test_qdq_of_shared_inputs_and_products(tmp_path, ok):
    path = model_files.affine(tmp_path / "affine.onnx", shape=("n", 16))
    made = ok("quantize", path, "-o", tmp_path / "q.onnx", "--batch", 32)
    assert made["output"] == str(tmp_path / "q.onnx")
    x = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    want, got = (np.asarray(onnx.load(p)(x=x)["y"]) for p in (path, tmp_path / "q.onnx"))
    assert quantize.sqnr(want, got) > 30


def test_qdq_in_float8(network, ok, tmp_path):
    """Weights are stored in eight bits, and ONNX's reference computes what we do."""
    path = tmp_path / "float8.onnx"
    found = ok("quantize", network, "--fp8", "-o", path)
    assert found["sqnr"] > 15
    graph = onnx_package.load(path).graph
    stored = {t.data_type for t in graph.initializer if t.name.endswith("/quantized")}
    assert stored == {onnx_package.TensorProto.FLOAT8E4M3FN}
    x = np.random.default_rng(7).standard_normal((4, 3, 8, 8), np.float32)
    given, got = (np.asarray(onnx.load(p)(x=x)["probs"]) for p in (network, path))
    (wanted,) = reference.ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert quantize.sqnr(given, got) > 15


def test_qdq_of_weights_in_four_bits(network, ok, tmp_path):
    """Groups of inputs share a scale; activations stay as they are."""
    path = tmp_path / "four.onnx"
    found = ok("quantize", network, "--int4-weights", "-o", path)
    graph = onnx_package.load(path).graph
    assert [n.op_type for n in graph.node].count("QuantizeLinear") == 0
    blocked = [n for n in graph.node if n.op_type == "DequantizeLinear"]
    assert len(blocked) == len(found["rows"]) == 3
    stored = {t.name: t for t in graph.initializer if t.name.endswith("/quantized")}
    assert {t.data_type for t in stored.values()} == {onnx_package.TensorProto.INT4}
    x = np.random.default_rng(7).standard_normal((4, 3, 8, 8), np.float32)
    given, got = (np.asarray(onnx.load(p)(x=x)["probs"]) for p in (network, path))
    (wanted,) = reference.ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert abs(quantize.sqnr(given, got) - found["sqnr"]) < 6


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm with transB", "Conv"])
@pytest.mark.parametrize("depth", [70, 33, 8])
def test_qdq_cuts_what_is_summed_into_groups(tmp_path, ok, op, depth):
    """Errors are half of a step of each group's, which has its own scale."""
    rng, kind = np.random.default_rng(3), op.split()[0]
    w = rng.standard_normal((depth, 5), np.float32) * np.exp(np.arange(depth) // 17)[:, None]
    turned = "transB" in op or kind == "Conv"
    w = np.ascontiguousarray(w.T if turned else w).astype(np.float32)
    w = w[..., None, None] if kind == "Conv" else w
    shape = [2, depth, *([3, 3] if kind == "Conv" else [])]
    info = onnx_package.helper.make_tensor_value_info
    attributes = {"transB": 1} if "transB" in op else {}
    graph = onnx_package.helper.make_graph(
        [onnx_package.helper.make_node(kind, ["x", "w"], ["y"], **attributes)], "g",
        [info("x", 1, shape)], [info("y", 1, [2, 5, *shape[2:]])],
        [onnx_package.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    opsets = [onnx_package.helper.make_opsetid("", 17)]
    model = onnx_package.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx_package.save(model, tmp_path / "m.onnx")
    ok("quantize", tmp_path / "m.onnx", "--int4-weights", "-o", tmp_path / "q.onnx")
    made = onnx_package.load(tmp_path / "q.onnx")
    dequantize = next(n for n in made.graph.node if n.op_type == "DequantizeLinear")
    tensors = {t.name: onnx_package.numpy_helper.to_array(t) for t in made.graph.initializer}
    block = next(a.i for a in dequantize.attribute if a.name == "block_size")
    axis = next(a.i for a in dequantize.attribute if a.name == "axis")
    scale = np.repeat(tensors[dequantize.input[1]], block, axis).take(range(depth), axis)
    got = tensors[dequantize.input[0]].astype(np.float32) * scale
    assert block <= 32 and (np.abs(got - w) <= scale * 0.5001).all()
    x = rng.standard_normal(shape, np.float32)
    (wanted,) = reference.ReferenceEvaluator(made).run(None, {"x": x})
    got = np.asarray(onnx.load(tmp_path / "q.onnx")(x=x)["y"])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def product_model(nodes, outputs, weights, opset=21, functions=(), **inputs):
    """A model of products; inputs and outputs have numpy arrays' types."""
    helper = onnx_package.helper
    of = lambda name, x: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
    )
    tensors = [onnx_package.numpy_helper.from_array(x, n) for n, x in weights.items()]
    ends = [[of(n, x) for n, x in values.items()] for values in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, tensors)
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(f.domain, 1) for f in functions),
    ]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    onnx_package.checker.check_model(model, full_check=True)
    return model


def unusual_model(kind, x, y):
    """A model of products of `x` and 40 by 40 weights, of an unusual form."""
    make, rng = onnx_package.helper.make_node, np.random.default_rng(4)
    w, c = (rng.standard_normal(shape).astype(x.dtype) for shape in ((40, 40), (40,)))
    product, opset, functions = make("MatMul", ["x", "w"], ["y"]), 21, []
    nodes, weights, inputs, outputs = [product], {"w": w}, {"x": x}, {"y": y}
    if kind == "shared":
        product.output[0] = "t"
        nodes = [product, make("MatMul", ["t", "w"], ["y"])]
    elif kind == "shared, turned":
        product.output[0] = "t"
        nodes = [product, make("Gemm", ["t", "w"], ["y"], transB=1)]
    elif kind == "an output":
        outputs = {"y": y, "w": w, "c": c}
        weights["c"] = c
    elif kind == "an input":
        inputs["w"] = w
    elif kind == "names that are taken":
        product.output[0] = "t"
        weights["w/scale"] = w.T.copy()
        nodes = [product, make("MatMul", ["t", "w/scale"], ["y"])]
    elif kind == "constants":
        value = onnx_package.numpy_helper.from_array(w, "")
        nodes, weights = [make("Constant", [], ["w"], value=value), product], {}
    elif kind == "subgraphs":
        of = onnx_package.helper.make_tensor_value_info
        graphs = [
            onnx_package.helper.make_graph(
                [make(op, ["t", "c"], [op])], op, [], [of(op, 1, y.shape)]
            )
            for op in ("Add", "Mul")
        ]
        product.output[0] = "t"
        choice = make("If", ["p"], ["y"], then_branch=graphs[0], else_branch=graphs[1])
        nodes, weights = [product, choice], {"w": w, "c": c, "p": np.array(False)}
    elif kind.startswith("functions"):
        opset = 17 if "old" in kind else 21
        imports = [onnx_package.helper.make_opsetid("", opset)]
        body = [make("MatMul", ["a", "b"], ["c"])]
        functions = [
            onnx_package.helper.make_function("own", "Of", ["a", "b"], ["c"], body, imports)
        ]
        nodes = [make("Of", ["x", "w"], ["y"], domain="own")]
    return product_model(nodes, outputs, weights, opset, functions, **inputs)


@pytest.mark.parametrize("words", [["--int4-weights"], ["--fp8"]], ids=" ".join)
@pytest.mark.parametrize(
    "kind", [
        "float16", "float64", "shared", "shared, turned", "an output", "an input", "constants",
        "names that are taken", "subgraphs", "functions", "functions of an old opset",
    ],
)  # fmt: skip
def test_qdq_of_unusual_models(tmp_path, ok, kind, words):
    """They stay models of the same inputs, outputs and types, as ONNX's reference has it."""
    dtype = kind if kind.startswith("float") else "float32"
    x = np.random.default_rng(5).standard_normal((4, 40)).astype(dtype)
    onnx_package.save(unusual_model(kind, x, np.empty((4, 40), dtype)), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=x)
    given = () if "--int4-weights" in words else ("--calibrate", tmp_path / "x.npz")
    ok("quantize", tmp_path / "m.onnx", *words, *given, "-o", tmp_path / "q.onnx")
    model = onnx_package.load(tmp_path / "q.onnx")
    stored = [t for t in model.graph.initializer if "/quantized" in t.name]
    assert len(stored) == (2 if kind in ("shared, turned", "names that are taken") else 1)
    onnx_package.checker.check_model(model, full_check=True)
    before = reference.ReferenceEvaluator(str(tmp_path / "m.onnx")).run(None, {"x": x})
    after = reference.ReferenceEvaluator(model).run(None, {"x": x})
    ours = onnx.load(tmp_path / "q.onnx")(x=x)
    for info, a, b in zip(model.graph.output, before, after, strict=True):
        assert a.dtype == b.dtype and quantize.sqnr(a, b) > 12
        off = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(ours[info.name], b, rtol=off, atol=off * np.abs(b).max())


def test_qdq_tells_products_of_a_weight_apart(tmp_path, ok, amdjax_command):
    """Where one is left out, the other is quantized; where one is no node, none is taken for it."""
    make = onnx_package.helper.make_node
    x, w = (np.random.default_rng(i).standard_normal((40, 40)).astype(np.float32) for i in (0, 1))
    nodes = [make("MatMul", ["w", "x"], ["t"]), make("MatMul", ["t", "w"], ["y"])]
    onnx_package.save(product_model(nodes, {"y": x}, {"w": w}, x=x), tmp_path / "m.onnx")
    command = "quantize", tmp_path / "m.onnx", "--int4-weights", "-o", tmp_path / "q.onnx"
    assert "'w' is the weight of no" in amdjax_command(*command).err
    assert amdjax_command(*command, "--exclude", "w#2").code == 2
    ok(*command, "--exclude", "w")
    made = onnx_package.load(tmp_path / "q.onnx").graph.node
    assert [list(n.input) for n in made if n.op_type == "MatMul"] == [
        ["w", "x"], ["t", "w/dequantized"],
    ]  # fmt: skip
    nodes = [
        make("Transpose", ["w"], ["v"]), make("MatMul", ["x", "v"], ["t"]),
        make("MatMul", ["t", "w"], ["y"]),
    ]  # fmt: skip
    onnx_package.save(product_model(nodes, {"y": x}, {"w": w}, x=x), tmp_path / "m.onnx")
    assert amdjax_command(*command, "--exclude", "w").code == 2


@pytest.mark.parametrize(
    "op", ["Conv", "Conv with bias", "MatMul", "Gemm", "Gemm with beta", "Gemm with alpha"]
)
def test_qdq_files_have_corrected_means(tmp_path, ok, op):
    """As ONNX's reference computes them: over calibration data to half a step of the sums."""
    rng, kind = np.random.default_rng(3), op.split()[0]
    shape, of_weight = ([8, 6, 5, 5], (4, 6, 1, 1)) if kind == "Conv" else ([40, 6], (6, 4))
    attributes = {op.split()[-1]: 0.5} if kind != op and kind == "Gemm" else {}
    tensors = {"w": rng.standard_normal(of_weight, np.float32), "b": np.ones(4, np.float32)}
    names = ["x", "w", *(["b"] if op not in ("Conv", "MatMul") else [])]
    info = onnx_package.helper.make_tensor_value_info
    graph = onnx_package.helper.make_graph(
        [onnx_package.helper.make_node(kind, names, ["y"], **attributes)], "g",
        [info("x", 1, shape)], [info("y", 1, [shape[0], 4, *shape[2:]])],
        [onnx_package.numpy_helper.from_array(tensors[n], n) for n in names[1:]],
    )  # fmt: skip
    opsets = [onnx_package.helper.make_opsetid("", 19)]
    model = onnx_package.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx_package.save(model, tmp_path / "m.onnx")
    x = rng.standard_normal(shape, np.float32) + 0.3
    np.savez(tmp_path / "x.npz", x=x)
    files = [tmp_path / name for name in ("m.onnx", "q.onnx")]
    ok("quantize", files[0], "--calibrate", tmp_path / "x.npz", "-o", files[1])
    axes = (0, 2, 3) if kind == "Conv" else 0
    want, got = (reference.ReferenceEvaluator(str(f)).run(None, {"x": x})[0] for f in files)
    step = (x.max() - x.min()) / 255 * np.abs(tensors["w"]).max() / 127
    off = np.abs(got.mean(axes) - want.mean(axes)).max()
    assert off <= 0.51 * step and np.abs(got - want).max() > 10 * step
