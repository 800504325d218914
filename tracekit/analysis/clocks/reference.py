"""From clock models in one frame to models against the reference, the lowest rank whose clock is known.

A frame is the clock that the probes measured against, or that of the rank to which the others were fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from tracekit.model.clocks import ClockJump, ClockModel
from tracekit.model.summary import RankSummary

_END_NS = 1 << 62
_ALIKE = 1 / 4  # of a jump
ONE_JUMP_NS = 100_000  # jumps of two clocks that are this close together are one

__all__ = ["ONE_JUMP_NS", "ClockPiece", "FrameJump"]
__all__ += ["inverse", "jumps_of", "offset_at_ns", "on_reference", "pieces_of", "relative"]


class ClockPiece(NamedTuple):
    """A stretch of a clock without jumps.

    Attributes:
        begin_ns: when it begins in the frame.
        offset_ns: holds at `at_ns`, which is on the rank's clock.
        between_ns: the moments of the frame between which the jump lies that begins it, in the order of
            `ClockJump.between_ns`.
        at_least, unproven: of that jump, as in `ClockJump`.
    """

    begin_ns: int
    offset_ns: int
    at_ns: int
    between_ns: tuple[int, int]
    at_least: bool = False
    unproven: bool = False

    def offset_at_ns(self, frame_ns: int, drift: float) -> int:
        """Return how far the clock is ahead at a moment of the frame, as if the piece held then."""
        return self.offset_ns + round((frame_ns + self.offset_ns - self.at_ns) * (drift / (1 - drift)))


class FrameJump(NamedTuple):
    """A jump of a clock: the pieces before and behind it, and by how many ns it jumps ahead."""

    before: ClockPiece
    behind: ClockPiece
    by_ns: int

    @property
    def between_ns(self) -> tuple[int, int]:
        """Return the moments of the frame between which it is, ascending."""
        first_ns, last_ns = sorted(self.behind.between_ns)
        return first_ns, last_ns


def on_reference(
    ranks: Sequence[RankSummary],
    models: Mapping[int, ClockModel],
    frame: Mapping[int, int],
    root_error_ns: Mapping[int, int],
) -> tuple[ClockModel, ...]:
    """Return a model against the reference for each of the ranks.

    `frame` says against which rank's clock the model of each rank is; ABSENT for the frame of the probes.
    `root_error_ns` says of such ranks how far the ends that others were fitted to are off.
    """
    fitted = {frame[model.rank] for model in models.values() if model.method in ("collectives", "messages")}
    known = [model.rank for model in models.values() if model.method != "none" or model.rank in fitted]
    ordered = [models[summary.rank] for summary in ranks]
    if not known:
        return tuple(ordered)
    reference = min(known)
    in_frame = {rank: model for rank, model in models.items() if frame[rank] == frame[reference]}
    root = in_frame.get(frame[reference])
    if root is not None and root.method == "none":  # it was not measured, so it is the frame itself
        methods = {model.method for model in in_frame.values()}
        in_frame[root.rank] = replace(
            root,
            method="collectives" if "collectives" in methods else "messages",
            at_ns=models[reference].at_ns - models[reference].offset_ns,
            drift_ppm=0.0,
            error_ns=root_error_ns.get(root.rank, 0),
        )
    return tuple(
        relative(in_frame[model.rank], in_frame[reference])
        if model.rank in in_frame
        else ClockModel(
            rank=model.rank, method="none"
        )  # it is known against other ranks, but not against the reference
        for model in ordered
    )


def relative(model: ClockModel, reference: ClockModel, one_jump_ns: int = ONE_JUMP_NS) -> ClockModel:
    """Return the model of a rank against the reference. Both are given in one frame.

    Jumps of the two are jumps of the frame, which both show at once, if they are at most `one_jump_ns` apart, or are
    alike and may be at one time.
    """
    # Errors of fits are against the ends that all ranks share. Errors of measurements add up.
    error_ns = (model.error_ns or 0) + (reference.error_ns or 0 if reference.method == "probe" else 0)
    if model.rank == reference.rank:
        drift_ppm = None if model.drift_ppm is None else 0.0
        error_ns = 0 if model.method == "probe" else error_ns
        return ClockModel(
            rank=model.rank, method=model.method, at_ns=model.at_ns, drift_ppm=drift_ppm, error_ns=error_ns
        )
    rank_pieces, reference_pieces = pieces_of(model), pieces_of(reference)
    rank_drift, reference_drift = ((clock.drift_ppm or 0.0) * 1e-6 for clock in (model, reference))
    _begin_together(rank_pieces, reference_pieces, rank_drift, reference_drift)
    later = (*rank_pieces[1:], *reference_pieces[1:])
    begins = _merge_close([piece.begin_ns for piece in later], one_jump_ns)
    jumps = []
    for begin_ns, end_ns in pairwise([*begins, _END_NS]):
        after_ns = begin_ns + one_jump_ns
        there = _piece_at(rank_pieces, after_ns)
        moment_ns = max(after_ns, min(end_ns - 1, there.at_ns - there.offset_ns))
        ahead_ns = offset_at_ns(rank_pieces, moment_ns, rank_drift)
        was_ns, is_ns = (offset_at_ns(rank_pieces, ns, rank_drift) for ns in (begin_ns - 1, after_ns))
        begun = [piece for piece in later if begin_ns <= piece.begin_ns <= after_ns]
        first_ns = min((piece.between_ns[0] for piece in begun), default=begin_ns)
        last_ns = max((piece.between_ns[1] for piece in begun), default=begin_ns)
        jumps.append(
            ClockJump(
                from_ns=begin_ns + (was_ns + is_ns) // 2,
                at_ns=moment_ns + ahead_ns,
                offset_ns=ahead_ns - offset_at_ns(reference_pieces, moment_ns, reference_drift),
                between_ns=(first_ns + was_ns, last_ns + is_ns),
                at_least=any(piece.at_least for piece in begun),
                unproven=any(piece.unproven for piece in begun),
            )
        )
    drift = rank_drift - reference_drift * (1 - rank_drift) / (1 - reference_drift)
    unknown = None in (model.drift_ppm, reference.drift_ppm) and not drift
    return ClockModel(
        rank=model.rank,
        method=model.method,
        offset_ns=jumps[0].offset_ns,
        at_ns=jumps[0].at_ns,
        drift_ppm=None if unknown else drift * 1e6,
        error_ns=error_ns,
        jumps=tuple(jumps[1:]),
    )


def _begin_together(rank: list[ClockPiece], reference: list[ClockPiece], drift: float, reference_drift: float) -> None:
    """Let pieces of two clocks, in one frame, begin together if the jumps that begin them are alike and may be one."""
    for i, piece in enumerate(rank[1:], start=1):
        by_ns = _jump_ns(rank[i - 1], piece, drift)
        for j, other in enumerate(reference[1:], start=1):
            (first_ns, last_ns), (other_first_ns, other_last_ns) = sorted(piece.between_ns), sorted(other.between_ns)
            begin_ns, end_ns = max(first_ns, other_first_ns), min(last_ns, other_last_ns)
            apart_ns = abs(by_ns - _jump_ns(reference[j - 1], other, reference_drift))
            if begin_ns <= end_ns and apart_ns <= _ALIKE * abs(by_ns):
                middle_ns, common_ns = (begin_ns + end_ns) // 2, (begin_ns, end_ns)
                rank[i] = piece._replace(begin_ns=middle_ns, between_ns=common_ns)
                reference[j] = other._replace(begin_ns=middle_ns, between_ns=common_ns)
                break


def _jump_ns(before: ClockPiece, behind: ClockPiece, drift: float) -> int:
    """Return by how much a clock jumps ahead between two pieces."""
    return behind.offset_at_ns(behind.begin_ns, drift) - before.offset_at_ns(behind.begin_ns, drift)


def jumps_of(model: ClockModel) -> list[FrameJump]:
    """Return the jumps of a clock, in order of time."""
    drift = (model.drift_ppm or 0.0) * 1e-6
    return [FrameJump(before, behind, _jump_ns(before, behind, drift)) for before, behind in pairwise(pieces_of(model))]


def inverse(model: ClockModel, base: int) -> ClockModel:
    """Return the clock of `base` against another one, whose `model` is against the clock of `base`."""
    return relative(
        ClockModel(rank=base, method=model.method, at_ns=model.at_ns - model.offset_ns, drift_ppm=0.0), model
    )


def pieces_of(model: ClockModel) -> list[ClockPiece]:
    """Return the pieces of a clock. A jump is halfway between two moments of the rank's clock, and so in the frame."""
    pieces = [ClockPiece(-_END_NS, model.offset_ns, model.at_ns, (-_END_NS, -_END_NS))]
    drift = (model.drift_ppm or 0.0) * 1e-6
    for jump in model.jumps:
        before_ns = pieces[-1].offset_ns + round(drift * (jump.from_ns - pieces[-1].at_ns))
        after_ns = jump.offset_ns + round(drift * (jump.from_ns - jump.at_ns))
        begin_ns = jump.from_ns - (before_ns + after_ns) // 2
        first_ns, last_ns = jump.bounds_ns
        between_ns = first_ns - before_ns, last_ns - after_ns
        pieces.append(
            ClockPiece(begin_ns, jump.offset_ns, jump.at_ns, between_ns, at_least=jump.at_least, unproven=jump.unproven)
        )
    return pieces


def _merge_close(begins: Sequence[int], least_ns: int) -> list[int]:
    """Return the beginnings of pieces in order, without those that follow another closely."""
    result = [-_END_NS]
    for begin_ns in sorted(begins):
        if begin_ns - result[-1] > least_ns:
            result.append(begin_ns)
    return result


def _piece_at(pieces: Sequence[ClockPiece], frame_ns: int) -> ClockPiece:
    """Return the piece of a clock at a moment of the frame."""
    begun = (piece for piece in pieces if piece.begin_ns <= frame_ns)
    return max(begun, key=lambda piece: piece.begin_ns, default=pieces[0])


def offset_at_ns(pieces: Sequence[ClockPiece], frame_ns: int, drift: float) -> int:
    """Return how far a clock is ahead at a moment of the frame."""
    return _piece_at(pieces, frame_ns).offset_at_ns(frame_ns, drift)
