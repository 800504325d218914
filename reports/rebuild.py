"""Runs the probes of gallery.py, and writes a report of each and the table of README.md. `make reports` calls it.

python reports/rebuild.py              all of them
python reports/rebuild.py ddp fsdp     only these
python reports/rebuild.py --recorded   the reports again, from the runs that the last call recorded
python reports/rebuild.py --table      none: the table again, from the reports as they are
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from entry import Entry, Summary
from gallery import GALLERY

REPORTS = Path(__file__).parent
ROOT = REPORTS.parent
RECORDED = "build/reports"  # below ROOT; the reports name it
TABLE = """\
| run | what it trains | planted | how much | found | where |
|---|---|---|---|---|---|
"""


def record(entry: Entry) -> None:
    """Run the probe."""
    out = f"{RECORDED}/{entry.folder}"
    shutil.rmtree(ROOT / out, ignore_errors=True)
    run([*entry.command, "--device", "cpu", "--out", out], OMP_NUM_THREADS="1", **dict(entry.environment))


def report(entry: Entry) -> None:
    """Write what `analyze` says of the run: the answer, all tables, the page, and JSON."""
    folder = REPORTS / entry.folder
    folder.mkdir(exist_ok=True)
    analyze = ["tracekit", "analyze", f"{RECORDED}/{entry.folder}"]
    for name in ("summary.json", "report.html"):
        run([*analyze, "--force", "-o", str(folder / name)])
    (folder / "terminal.txt").write_text(run(analyze, COLUMNS="80"))
    (folder / "full.txt").write_text(run([*analyze, "--full"], COLUMNS="100"))


def run(command: list[str], **environment: str) -> str:
    """Return what the command prints; it is a program of this Python's environment."""
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [str(program), *command[1:]], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\n{' '.join(command)}: exit code {done.returncode}")
    return done.stdout


def summary_of(entry: Entry) -> Summary:
    summary: Summary = json.loads((REPORTS / entry.folder / "summary.json").read_text())
    return summary


def disagreements() -> list[str]:
    """Return a line for each run without a report, or whose report does not have what was planted."""
    lines = []
    for entry in GALLERY:
        there = (REPORTS / entry.folder / "summary.json").is_file()
        if wrong := entry.planted.check(summary_of(entry)) if there else "not run yet":
            lines.append(f"{entry.folder}: {wrong}")
    return lines


def readme() -> str:
    """Return README.md with the table of these reports."""
    before, _, _ = (REPORTS / "README.md").read_text().partition(TABLE.partition("\n")[0])
    return "".join([before, TABLE, *(f"{entry.row(summary_of(entry))}\n" for entry in GALLERY)])


def main() -> None:
    folders = [entry.folder for entry in GALLERY]
    parser = argparse.ArgumentParser(description="Run the probes again, and rebuild the gallery.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"only these: {', '.join(folders)}")
    parser.add_argument("--recorded", action="store_true", help="run nothing; analyse the recorded runs again")
    parser.add_argument("--table", action="store_true", help="run nothing; write the table again")
    options = parser.parse_args()
    if unknown := [run for run in options.runs if run not in folders]:
        parser.error(f"no such run: {', '.join(unknown)}; there are {', '.join(folders)}")
    for entry in [] if options.table else GALLERY:
        if options.runs and entry.folder not in options.runs:
            continue
        if entry.needs and find_spec(entry.needs) is None:
            print(f"{entry.folder}: skipped, it needs {entry.needs}")
            continue
        print(" ".join(entry.command), flush=True)
        if not options.recorded:
            record(entry)
        report(entry)
    if wrong := disagreements():
        sys.exit(
            "\n".join(["The table stays as it is, as these do not agree; on a busy machine run them again:", *wrong])
        )
    (REPORTS / "README.md").write_text(readme())


if __name__ == "__main__":
    main()
