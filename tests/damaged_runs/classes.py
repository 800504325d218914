"""Every class of damage, with what tracekit makes of it: a folder of eight good ranks and one damaged file."""

from __future__ import annotations

from tests.damaged_runs.classes_of_events import CLASSES_OF_EVENTS
from tests.damaged_runs.classes_of_text import CLASSES_OF_TEXT
from tests.damaged_runs.damaged_run import DamagedRun

CLASSES: dict[str, DamagedRun] = {**CLASSES_OF_TEXT, **CLASSES_OF_EVENTS}
