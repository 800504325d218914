"""Which ranks serve others by messages, such as a parameter server that receives gradients and sends parameters.

A server works on what others send, and has no data of its own: it runs no backward pass, and each rank that it
communicates with runs some. Messages go both ways between it and each of these. A stage of a pipeline has a backward
pass where the others have one, and one without gradients, such as a frozen encoder, gets nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracekit.model.communication import Messages
from tracekit.model.events import ABSENT
from tracekit.model.summary import RankSummary


def ranks_that_serve(ranks: Sequence[RankSummary]) -> frozenset[int]:
    """Return the ranks that serve others by messages."""
    trained = {summary.rank for summary in ranks if summary.is_measured and summary.has_backward}
    present = {summary.rank for summary in ranks}
    return frozenset(
        summary.rank
        for summary in ranks
        if summary.is_measured and summary.rank not in trained and _answers(summary, trained, present)
    )


def _answers(summary: RankSummary, trained: set[int], present: set[int]) -> bool:
    """Return whether a rank exchanges messages with a rank that trains, and communicates with no others.

    present: the ranks that have a recording.
    """
    messages = named_by_answers(summary.messages)
    sent_to, received_from = (set(messages.peer[messages.is_send == side].tolist()) for side in (True, False))
    meets_others = bool((summary.collectives.step != ABSENT).any())
    return (
        bool(sent_to & received_from & trained) and (sent_to | received_from) & present <= trained and not meets_others
    )


def named_by_answers(messages: Messages) -> Messages:
    """Return messages in which receives from any rank, that do not name it, have the peers of the sends that follow.

    They are answered in their order.
    """
    unnamed = np.flatnonzero(~messages.is_send & (messages.peer == ABSENT))
    answers = np.flatnonzero(messages.is_send)
    answers = answers[answers > unnamed[0]] if len(unnamed) else answers[:0]
    peer = messages.peer.copy()
    peer[unnamed[: len(answers)]] = peer[answers[: len(unnamed)]]
    return replace(messages, peer=peer)
