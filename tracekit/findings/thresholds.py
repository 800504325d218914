"""What it takes before something is a finding, in one table.

Below `NOTABLE_SHARE` of a step nothing is worth a word. Advice must save `NOTABLE_SAVING` of it, and more than
`CLEAR_ERRORS` of its standard errors. A finding with another threshold has it here, with what it is compared with.
"""

from __future__ import annotations

from tracekit.findings.finding import Threshold

NOTABLE_SHARE = Threshold(0.05, "share of the step")
NOTABLE_SAVING = Threshold(0.02, "saving, as a share of the step")
LISTED_SAVING = Threshold(0.01, "saving, as a share of the step, to stand in the table of what-if")
CLEAR_ERRORS = Threshold(2.0, "saving, in its standard errors", "errors")
REPLAY_ERROR = Threshold(0.1, "difference of the replayed step from the measured one, for its savings to be unsure")
WAITED_FOR = Threshold(0.2, "what others wait for a rank, as a share of the step, to come before all savings")

IDLE_SHARE = Threshold(0.2, "idle share of the step, without loading, pauses and named waits, if no saving is known")
BLOCKING_LAUNCHES = Threshold(0.95, "share of the launches of long kernels that end behind these")
UNKNOWN_SHARE = Threshold(0.1, "share of the step in which work waits for what is not recorded")
MOSTLY_COMPUTE = Threshold(0.85, "compute, as a share of the step of each rank, for nothing to stand out")
COPY_SHARE = Threshold(0.2, "share of the step in copies that nothing hides")
OVERHEAD_RATIO = Threshold(0.1, "cost of recording, as a share of the step")
UNCLASSIFIED_SHARE = Threshold(0.01, "share of the step in kernels that may communicate")
UNCERTAIN_MEAN = Threshold(0.2, "standard error of the mean step, as a share of it")
SLOW_RATE = Threshold(1.25, "how much longer steps are than those of peers", "times")
WAITING_FOR_SERVER = Threshold(0.2, "waiting for messages of a server, as a share of the step")
FOR_THE_SERVER = Threshold(0.5, "share of that waiting that is for no slow rank")
MOSTLY_FOR_ONE = Threshold(0.5, "share of the waiting at servers that is for one trainer")
LONGER_COMPUTE = Threshold(1.1, "how much longer a rank computes than its peers", "times")
RESTARTS_SHARE = Threshold(0.1, "share of the job's time so far")

SLOW_HOST = Threshold(1.5, "how much longer transfers are than equal ones of other hosts", "times")
EXPERT_RATIO = Threshold(1.5, "load of the busiest rank's experts, against the mean of the others", "times")
BUBBLE_RATIO = Threshold(0.1, "bubbles, as a share of the pipeline's time")
TAIL_SHARE = Threshold(0.05, "share of the step after the last gradient")
BLOCKED_SHARE = Threshold(0.05, "share of the step for which a bucket waits for an earlier one")
UNIT_SHARE = Threshold(0.8, "share of the parameters in one unit")
TINY_UNITS = Threshold(8, "units whose all-gather is mostly latency", "units")
