"""Pipelines. A rank receives, computes and sends, action by action; sends are waited for at the end of the step.

Single sends and receives have a communicator for each direction (`groups.py`). Batched ones share the pipeline's
communicator and thus a stream, on which a send and the receive that follows are one kernel, as in Megatron-LM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.schedules import Action, turns_of
from benchmarks.gpu_jobs.strategies.model import (
    Loop,
    autograd_node,
    backward_layer,
    end_of_step,
    forward_layer,
    load_batch,
    optimizer_step,
    reduce_gradients,
    steps,
)


def train(rank: Rank) -> Loop:
    spec = rank.spec
    pp, _, _ = spec.coordinates(rank.rank)
    turns = turns_of(spec, pp)
    for _ in steps(rank):
        if pp == 0:
            load_batch(rank)
        messages = Messages(rank)
        for turn, following in zip(turns, [*turns[1:], ()], strict=True):
            for action in turn:
                with action_label(rank, action, "microbatch"):
                    messages.receive(action)
                    with action_label(rank, action, "action"):
                        yield from compute(rank, action)
                    messages.send(action)
            messages.exchange_batch(turn, following)
        messages.finish()
        reduce_gradients(rank)
        optimizer_step(rank)
        yield end_of_step(rank)


def stage_layers(rank: Rank, stage: int) -> range:
    spec = rank.spec
    each = spec.layers // (spec.pp * spec.virtual_stages)
    return range(stage * each, (stage + 1) * each)


def compute(rank: Rank, action: Action) -> Loop:
    """Run a stage's layers for a microbatch, tensor parallel if the job is."""
    kind, stage, microbatch = action
    layers = stage_layers(rank, stage)
    for layer in layers if kind == "F" else reversed(layers):
        rank.action = (stage, microbatch, kind)
        run_layer = forward_layer if kind == "F" else backward_layer
        yield run_layer(rank, (microbatch, layer), rank.defect.times_of(stage))
        rank.action = None
        if "tp" in rank.groups:
            with nullcontext() if kind == "F" else autograd_node(rank, "_CopyToModelParallelRegionBackward"):
                rank.collective(rank.groups["tp"], "all_reduce", rank.spec.exchange_us, blocking=True)


@contextmanager
def action_label(rank: Rank, action: Action, style: str, part: str = "") -> Iterator[None]:
    """Name what is done as torch.distributed.pipelining does (schedules.py), if the job has labels of this style.

    Schedules with one stage a rank name a microbatch, with its messages. Others name each action and each message.
    """
    kind, stage, microbatch = action
    if rank.spec.labels != style:
        yield
        return
    names = {
        "microbatch": f"{'Forward' if kind == 'F' else 'Backward'} {microbatch}",
        "action": f"PP:{stage}{part}{kind}{microbatch}",
    }
    with rank.label(names[style]):
        yield


class Messages:
    """The sends and receives of a rank in one step."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.batched = rank.spec.batched_messages
        self.sent: list[Kernel] = []
        self.received: dict[Action, Kernel] = {}

    def receive(self, action: Action) -> None:
        """Let compute wait for the input of an action."""
        if (source := self.peer(action, before=True)) is None:
            return
        with action_label(self.rank, action, "action", "RECV_"):
            if action not in self.received:
                self.received[action] = self.batch([("recv", source)]) if self.batched else self.single("recv", source)
            self.rank.wait(self.received.pop(action))

    def send(self, action: Action) -> None:
        """Send the output of an action, unless messages are batched."""
        destination = self.peer(action, before=False)
        if destination is not None and not self.batched:
            with action_label(self.rank, action, "action", "SEND_"):
                self.sent.append(self.single("send", destination))

    def exchange_batch(self, turn: Sequence[Action], following: Sequence[Action]) -> None:
        """Send what a turn has computed and receive what the following one needs, in one kernel."""
        if not self.batched:
            return
        destinations = [self.peer(action, before=False) for action in turn]
        sources = {action: self.peer(action, before=True) for action in following}
        operations = [("send", peer) for peer in destinations if peer is not None]
        if not operations:
            return
        operations += [("recv", peer) for peer in sources.values() if peer is not None]
        self.sent.append(self.batch(operations))
        self.received |= {action: self.sent[-1] for action, peer in sources.items() if peer is not None}

    def finish(self) -> None:
        """Let compute wait for all sends."""
        self.rank.wait(*self.sent)

    def batch(self, operations: Sequence[tuple[str, int]]) -> Kernel:
        message_us = self.rank.spec.message_us
        return self.rank.batch_isend_irecv(
            self.rank.groups["pp"], [(kind, peer, message_us) for kind, peer in operations]
        )

    def single(self, kind: str, peer: int) -> Kernel:
        rank = self.rank
        source, _, _ = rank.spec.coordinates(rank.rank if kind == "send" else peer)
        call = rank.send if kind == "send" else rank.recv
        return call(rank.groups["pp_odd" if source % 2 else "pp_even"], peer, rank.spec.message_us)

    def peer(self, action: Action, *, before: bool) -> int | None:
        """Return the rank that an action's input comes from, or that its output goes to; None at the ends."""
        kind, stage, _ = action
        stage += -1 if before == (kind == "F") else 1
        if not 0 <= stage < self.rank.spec.pp * self.rank.spec.virtual_stages:
            return None
        _, dp, tp = self.rank.spec.coordinates(self.rank.rank)
        return self.rank.spec.rank_at(stage % self.rank.spec.pp, dp, tp)
