"""Capture of streams into graphs, and replay, in the emulated HIP runtime."""

from __future__ import annotations

from amdjax.emulator.hip.abi import HipFailure, Status, export, poke
from amdjax.emulator.hip.queues import Capture, Graph, GraphExec
from amdjax.emulator.hip.runtime import Runtime
from amdjax.emulator.hip.streams import stream_of

_UPDATE_SUCCESS, _UPDATE_TOPOLOGY_CHANGED = 0, 2
_ACTIVE, _NONE, _INVALIDATED = 1, 0, 2


@export("hipStreamBeginCapture", "pi")
def begin_capture(rt: Runtime, handle: int, mode: int) -> None:
    stream = stream_of(rt, handle)
    if stream.is_null:
        raise HipFailure(Status.StreamCaptureUnsupported, "the null stream cannot be captured")
    if mode not in (0, 1, 2):
        raise HipFailure(Status.InvalidValue, f"capture mode {mode}")
    if stream.capture is not None:
        raise HipFailure(Status.StreamCaptureUnsupported, "the stream is being captured already")
    Capture(stream)


@export("hipStreamEndCapture", "pp")
def end_capture(rt: Runtime, handle: int, out: int) -> None:
    poke(out, 0)
    stream = stream_of(rt, handle)
    if stream.capture is None or stream.capture.origin is not stream:
        raise HipFailure(Status.StreamCaptureUnmatched)
    poke(out, rt.handles.add(stream.capture.end()))


@export("hipStreamIsCapturing", "pp")
def is_capturing(rt: Runtime, handle: int, out: int) -> None:
    capture = stream_of(rt, handle).capture
    status = _NONE if capture is None else _ACTIVE if capture.is_valid else _INVALIDATED
    poke(out, status, "i")


@export("hipGraphCreate", "pu")
def graph_create(rt: Runtime, out: int, flags: int) -> None:
    poke(out, rt.handles.add(Graph()))


@export("hipGraphDestroy", "p")
def graph_destroy(rt: Runtime, handle: int) -> None:
    rt.handles.get(handle, Graph)
    rt.handles.remove(handle)


@export("hipGraphGetNodes", "ppp")
def graph_get_nodes(rt: Runtime, handle: int, nodes: int, count: int) -> None:
    """Only how many there are: nodes have no handles here."""
    if nodes:
        raise HipFailure(Status.NotSupported)
    poke(count, len(rt.handles.get(handle, Graph).nodes))


@export("hipGraphInstantiate", "ppppz")
def graph_instantiate(
    rt: Runtime, out: int, handle: int, error_node: int, log: int, log_size: int
) -> None:
    poke(out, rt.handles.add(GraphExec(tuple(rt.handles.get(handle, Graph).nodes))))


@export("hipGraphInstantiateWithFlags", "ppZ")
def graph_instantiate_with_flags(rt: Runtime, out: int, handle: int, flags: int) -> None:
    graph_instantiate(rt, out, handle, 0, 0, 0)


@export("hipGraphUpload", "pp")
def graph_upload(rt: Runtime, handle: int, stream: int) -> None:
    rt.handles.get(handle, GraphExec)
    stream_of(rt, stream)


@export("hipGraphLaunch", "pp")
def graph_launch(rt: Runtime, handle: int, stream: int) -> None:
    where = stream_of(rt, stream)
    for node in rt.handles.get(handle, GraphExec).nodes:
        where.submit(node.task, node.kind, node.detail)


@export("hipGraphExecUpdate", "pppp")
def graph_exec_update(rt: Runtime, handle: int, graph: int, error_node: int, result: int) -> None:
    """Replace the arguments of all operations; the operations must be the same."""
    executable, new = rt.handles.get(handle, GraphExec), rt.handles.get(graph, Graph)
    if error_node:
        poke(error_node, 0)
    before, after = ([(n.kind, n.detail) for n in nodes] for nodes in (executable.nodes, new.nodes))
    if before != after:
        poke(result, _UPDATE_TOPOLOGY_CHANGED, "i")
        raise HipFailure(Status.GraphExecUpdateFailure)
    executable.nodes = tuple(new.nodes)
    poke(result, _UPDATE_SUCCESS, "i")


@export("hipGraphExecDestroy", "p")
def graph_exec_destroy(rt: Runtime, handle: int) -> None:
    rt.handles.get(handle, GraphExec)
    rt.handles.remove(handle)
