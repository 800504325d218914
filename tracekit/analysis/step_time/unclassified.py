"""Whether it is known which kernels communicate. Where it is not, nobody may conclude that all is well."""

from __future__ import annotations

import shlex
from collections import Counter

from tracekit.analysis.finding import Finding
from tracekit.analysis.step_time.parts import UNCLASSIFIED_KERNELS
from tracekit.model.run import Run

__all__ = ["unclassified_communication"]

_NOTABLE = 0.01  # of a step
RULE_OPTION = "--communication-rule"


def unclassified_communication(run: Run) -> list[Finding]:
    """Return a finding that asks for a rule where kernels that look like communication take a share of the step.

    And one where a job of several ranks on GPUs shows no communication at all.
    """
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns, comm_ns = sum(step.step_ns for step in steps), sum(step.comm_ns for step in steps)
    if not step_ns:
        return []
    kernels = [kernel for summary in run.ranks for kernel in summary[UNCLASSIFIED_KERNELS]]
    total_ns = sum(kernel.total_ns for kernel in kernels)
    if total_ns >= _NOTABLE * step_ns:
        by_rule: Counter[tuple[str, str]] = Counter()
        for kernel in kernels:
            by_rule[kernel.pattern, kernel.kind] += kernel.total_ns
        (pattern, kind), most_ns = by_rule.most_common(1)[0]
        rule = shlex.join([RULE_OPTION, f"{pattern}={kind}"])
        share = total_ns / step_ns
        text = f"kernels that look like communication and that no rule names take {share:.0%} of the step"
        if len(by_rule) > 1:
            text += f"; {len(by_rule) - 1} more of them have no rule"
        evidence = {"unclassified_share": share, "pattern": pattern, "kind": kind, "total_ns": most_ns}
        action = f"say what they do: {rule}, with another kind, or with compute"
        time_ns = total_ns // len(steps)
        return [
            Finding(
                severity="warning",
                text=text,
                cause="unclassified",
                time_ns=time_ns,
                action=action,
                evidence=evidence,
            )
        ]
    if run.device == "gpu" and (run.world_size or 1) > 1 and not comm_ns:
        text = f"no kernel is known to communicate, in a job of {run.world_size} ranks"
        action = f"if some do, say so with {RULE_OPTION} 'REGEX=KIND' ('tracekit info --kernels' lists all)"
        return [Finding(severity="info", text=text, action=action, evidence={"world_size": run.world_size})]
    return []
