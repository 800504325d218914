"""What programs call an evaluation in a label."""

from __future__ import annotations

import re

__all__ = ["EVALUATION_LABEL"]

EVALUATION_LABEL = re.compile(
    r"[\W_]*(?:eval|evaluate|evaluation|validate|validation)(?:[ _]step)?[\W_]*", re.IGNORECASE
)
"""Matches all of such a label, with any marks around it: `## validation ##`."""
