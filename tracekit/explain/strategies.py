"""How a job is parallel: as its capture says, else as labels of torch and what a rank communicates show.

* Experts: their ranks exchange counts of tokens, then the tokens there and back in a forward pass, or launch kernels
  that dispatch and combine tokens.
* Tensor parallelism: nodes of the autograd graph communicate in backward what was communicated in forward, by the same
  sizes: both all-reduce, or, with sequences, both gather and scatter. In inference, all ranks gather columns of a
  product whose weight only with the columns of all is square.
* Data parallelism: gradients are reduced outside of these nodes, and no label says that DDP or FSDP does that. ZeRO,
  stage 1 (stage 2 looks the same): what was reduced is shared after the update. FSDP: the parts of parameters are
  gathered in forward, and as much is reduced and scattered. Local SGD: as much as gradients is all-reduced after the
  update, and nothing before.
* Context parallelism: in forward, sends and receives of one size alternate, with products between the pairs alone. Or
  an all-to-all or all-gather brings what attention multiplies next, before any layer.

Where several explain what is there, none is claimed. A rank that communicates nothing shows none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np

from tracekit.explain.ddp.micro_batches import gradient_reductions, needed_by_nodes
from tracekit.explain.model_parallel.expert_exchanges import expert_all_to_alls
from tracekit.explain.model_parallel.tables import COUNT_DTYPES
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.summary import RankSummary
from tracekit.rank.groups import strategies_of
from tracekit.rank.phases import PHASES
from tracekit.rank.recorded_steps import RecordedSteps

_DATA_PARALLEL = {"ddp", "dp", "fsdp1", "fsdp2"}
_LEAST_BYTES = 1 << 16  # a step: smaller than the gradients of any model, larger than metrics
_NUMBERS = tuple(i for i, name in enumerate(DTYPES) if "float" in name)
_FORWARD, _BACKWARD = PHASES.index("forward"), PHASES.index("backward")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_dot_product")
_OF_ATTENTION = ("aten::bmm", "aten::baddbmm", "aten::_scaled_dot_product")  # products without weights
_SOFTMAX = ("aten::_softmax", "aten::_scaled_dot_product")
_LAYERS = ("aten::linear", "aten::addmm", "aten::convolution")
_UPDATE = "Optimizer.step#"


def recorded_strategies(recorded: RecordedSteps) -> tuple[tuple[str, ...], bool]:
    """Return the slugs of what one rank shows, and whether they are inferred."""
    found, inferred = strategies_of(recorded.trace)
    added = {"cp"} if {"cp", "pp"}.isdisjoint(found) and _passes_around_a_ring(recorded) else set()
    if inferred:
        if _exchanges_counts_then_tokens(recorded) or _launches(recorded, "dispatch", "combine"):
            added.add("ep")
        if "ep" not in added and _exchanges_for_attention(recorded):
            added.add("cp")
        if _DATA_PARALLEL.isdisjoint(found):
            added |= _by_hand(recorded)
    return (tuple(sorted({*found, *added})) if added else found), inferred


def without_broken_rings(ranks: Sequence[RankSummary]) -> tuple[RankSummary, ...]:
    """Return the summaries without context parallelism if it is not on all ranks with messages.

    The first stage of a pipeline sends and receives in turn, too.
    """
    if all("cp" in summary.strategies for summary in ranks if len(summary.messages)):
        return tuple(ranks)
    return tuple(replace(s, strategies=tuple(slug for slug in s.strategies if slug != "cp")) for s in ranks)


def _exchanges_counts_then_tokens(recorded: RecordedSteps) -> bool:
    communication, tokens = recorded.lanes.communication_events, recorded.once(expert_all_to_alls)
    which = np.flatnonzero(communication.kind == KINDS.index("all_to_all"))
    which = which[np.argsort(communication.launch_ns[which], kind="stable")]
    counts = np.isin(communication.dtype[which], COUNT_DTYPES)
    same_group = communication.group[which][1:] == communication.group[which][:-1]
    first = which[1:][counts[:-1] & ~counts[1:] & same_group]
    return bool(tokens.takes_back.any() and np.isin(tokens.which[~tokens.takes_back], first).any())


def _exchanges_for_attention(recorded: RecordedSteps) -> bool:
    """Return whether what a forward pass gathers, or half of its all-to-alls, is multiplied by attention next.

    The other all-to-alls take the result back, to a layer. Between products without weights attention has a softmax.
    """
    events, communication = recorded.trace.events, recorded.lanes.communication_events
    forward = np.isin(recorded.phases.at(communication.launch_ns), (_FORWARD, ABSENT)) & (recorded.lanes.window >= 0)
    rows = np.flatnonzero(events.named(lambda name: name.startswith(_PRODUCTS)))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    start_ns, is_attention = events.start_ns[rows], events.named(lambda name: name.startswith(_OF_ATTENTION))[rows]
    softmax_ns = np.sort(events.start_ns[events.named(lambda name: name.startswith(_SOFTMAX))])
    if not is_attention.any() or not len(softmax_ns):
        return False
    for kind, least in (("all_gather", 1.0), ("all_to_all", 0.5)):
        launch_ns = communication.launch_ns[forward & (communication.kind == KINDS.index(kind))]
        product, layer = (np.searchsorted(each, launch_ns) for each in (start_ns, start_ns[~is_attention]))
        next_layer_ns = np.append(start_ns[~is_attention], np.iinfo(np.int64).max)[layer]
        softmaxes = np.searchsorted(softmax_ns, next_layer_ns) - np.searchsorted(softmax_ns, launch_ns)
        attends = np.append(is_attention, False)[product] & (softmaxes > 0)
        if len(launch_ns) and attends.mean() >= least:
            return True
    return False


def _launches(recorded: RecordedSteps, *kinds: str) -> bool:
    return set(map(KINDS.index, kinds)) <= set(recorded.lanes.communication_events.kind.tolist())


def _by_hand(recorded: RecordedSteps) -> set[str]:
    """Return the slugs of what the program's own collectives of numbers show."""
    communication, gradients = recorded.lanes.communication_events, np.array(recorded.once(gradient_reductions))
    phase = recorded.phases.at(communication.launch_ns)
    numbers = np.isin(communication.dtype, _NUMBERS) & (communication.size_bytes > 0) & (recorded.lanes.window >= 0)
    forward, node = numbers & np.isin(phase, (_FORWARD, ABSENT)), numbers & recorded.once(needed_by_nodes)
    split = _split_layers(recorded, forward, node)
    found = set().union(*split.values()) if split else set()
    least = _LEAST_BYTES * max(len(recorded.steps), 1)

    def size_bytes(kind: str, where: Bool | Int64) -> int:
        chosen = np.zeros(len(communication), dtype=np.bool_)
        chosen[where] = True
        return int(communication.size_bytes[chosen & (communication.kind == KINDS.index(kind))].sum())

    # Ranks of tensor parallelism reduce the gradients of the few parameters that they share.
    for group in split:
        here = communication.group[gradients] == group
        if (
            communication.size_bytes[gradients[here]].sum()
            <= communication.size_bytes[node & (communication.group == group)].sum()
        ):
            gradients = gradients[~here]
    updated = numbers & _after_update(recorded)
    for reduces, shares in (("reduce", "broadcast"), ("reduce_scatter", "all_gather"), ("all_reduce", "all_gather")):
        reduced = size_bytes(reduces, gradients)
        if reduced >= least and size_bytes(shares, updated) >= least:
            found.add("zero1")
        elif reduces == "reduce_scatter" and least <= reduced == size_bytes(shares, forward):
            found.add("manual_fsdp")
    if "zero1" not in found and size_bytes("all_reduce", gradients) >= least:
        found.add("manual_dp")
    elif not len(gradients) and not found and size_bytes("all_reduce", updated) >= least:
        found.add("local_sgd")
    return found or ({"tp"} if _gathers_columns(recorded) else set())


def _split_layers(recorded: RecordedSteps, forward: Bool, node: Bool) -> dict[int, set[str]]:
    """Return the slugs of tensor parallelism by group. forward, node: bool [n], what was communicated there."""
    communication, result = recorded.lanes.communication_events, {}
    for group in set(communication.group[node].tolist()):
        sizes = [
            {
                kind: set(communication.size_bytes[where & (communication.kind == KINDS.index(kind))].tolist())
                for kind in ("all_reduce", "all_gather", "reduce_scatter")
            }
            for where in (each & (communication.group == group) for each in (forward, node))
        ]
        if all(all(of_phase[kind] for kind in ("all_gather", "reduce_scatter")) for of_phase in sizes):
            result[group] = {"tp", "sp"}
        elif sizes[0]["all_reduce"] & sizes[1]["all_reduce"]:
            result[group] = {"tp"}
    return result


def _after_update(recorded: RecordedSteps) -> Bool:
    """Return which communication a step launched after the last call of its optimizer, bool [n]."""
    events, lanes = recorded.trace.events, recorded.lanes
    rows = np.flatnonzero(events.named(lambda name: name.startswith(_UPDATE)) & events.on_tracks(lanes.threads))
    window = lanes.windows.index_of(events.start_ns[rows])
    last_ns = np.zeros(len(lanes.windows.step) + 1, dtype=np.int64)  # the last is for those in no window
    np.maximum.at(last_ns, window, events.end_ns[rows])
    return np.asarray((last_ns[lanes.window] > 0) & (lanes.communication_events.launch_ns > last_ns[lanes.window]))


def _gathers_columns(recorded: RecordedSteps) -> bool:
    """Return whether what a program of plain tensors gathers is columns of a product, without any backward pass."""
    events, communication = recorded.trace.events, recorded.lanes.communication_events
    gathers = (recorded.lanes.window >= 0) & (communication.kind == KINDS.index("all_gather"))
    arguments = events.operator_arguments
    layers = events.start_ns[events.named(lambda name: name.startswith(_LAYERS))]
    has_layers = (recorded.lanes.windows.index_of(layers) >= 0).any()
    if has_layers or (recorded.phases.launch_phase == _BACKWARD).any() or not gathers.any():
        return False
    rows = arguments.row[events.named("aten::mm".__eq__)[arguments.row]]
    shapes = arguments.input_shapes[np.isin(arguments.row, rows)]
    for which in np.flatnonzero(gathers).tolist():
        before = np.flatnonzero(events.end_ns[rows] <= communication.launch_ns[which])
        group = communication.group[which]
        ranks = recorded.trace.header.world_size if group == ABSENT else len(communication.groups[group].ranks)
        if not len(before) or not ranks:
            return False
        try:
            (length, inner), (_, columns) = msgspec.json.decode(events.strings[shapes[before[-1]]])[:2]
            size_bytes = int(communication.size_bytes[which])
            is_output = size_bytes == ABSENT or size_bytes % (length * columns) == 0
            is_split = columns % inner != 0 == (columns * ranks) % inner
        except (ValueError, TypeError, ZeroDivisionError):  # shapes are not recorded, or empty
            return False
        if not (is_output and is_split):
            return False
    return True


def _passes_around_a_ring(recorded: RecordedSteps) -> bool:
    """Return whether sends and receives in forward come in pairs, with products between pairs and none within one."""
    events, messages = recorded.trace.events, recorded.messages
    forward = messages.rows((recorded.phases.at(messages.issue_ns) == _FORWARD) & (messages.step >= 0))
    if not len(forward.step) or len(forward.step) % 2:
        return False
    rows = np.flatnonzero(events.named(lambda name: name.startswith(_PRODUCTS)))
    products = np.searchsorted(np.sort(events.start_ns[rows]), forward.issue_ns)
    pairs = list(zip(range(0, len(products), 2), range(1, len(products), 2), strict=True))
    return all(
        forward.is_send[i] != forward.is_send[j]
        and forward.size_bytes[i] == forward.size_bytes[j]
        and products[i] == products[j]
        for i, j in pairs
    ) and all(products[j] < products[i] for (_, j), (i, _) in pairwise(pairs))
