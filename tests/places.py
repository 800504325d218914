"""Where this repository and its small traces are, for tests in any folder."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
