"""`tracekit record`: a program is run as Python runs it, and recorded, also where torch alone is there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.recorded import Launch, read_traces, result_of

RECORD = ("-m", "tracekit", "record")
WORKER = Path(__file__).with_name("plain_training.py")
ANALYSIS = {"click", "fsspec", "google", "msgspec", "numpy", "pandas", "perfetto", "rich"}
WITHOUT_THEM = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: None if name.partition(".")[0] in {ANALYSIS} else find(name, *where)
"""


@pytest.fixture
def torch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes find no package of the analysis."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT_THEM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


def program(folder: Path, text: str) -> Path:
    file = folder / "program.py"
    file.write_text(text)
    return file


@pytest.mark.usefixtures("torch_alone")
def test_ranks_that_have_torch_alone_are_recorded_as_those_of_a_decorated_program(
    torchrun: Launch, tmp_path: Path
) -> None:
    launched = torchrun(*RECORD, "--path", tmp_path / "bare", "--steps", "2", WORKER, "7", anew=True)
    said = [line for line in launched.stderr.splitlines() if line.startswith("tracekit:")]
    decorated = torchrun(WORKER, "7", tmp_path / "decorated")

    (run,) = (tmp_path / "bare").iterdir()
    assert said == [f"tracekit: recorded steps 4 to 5 of 2 ranks; next: tracekit analyze {run}"]
    assert "tracekit: recorded steps 4 to 5 of 2 ranks" in decorated.stderr
    bare, whole = ([trace["tracekit"] for trace in read_traces(tmp_path / name)] for name in ("bare", "decorated"))
    for same in ("strategies", "ddp", "precision", "first_step", "window"):
        assert [each[same] for each in bare] == [each[same] for each in whole], same
    assert [[step["step"] for step in each["steps"]] for each in bare] == [[4, 5], [4, 5]]
    results = [result_of(tmp_path / name) for name in ("bare", "decorated")]
    counts = [[(row["kind"], row["count"]) for row in result["collectives"]] for result in results]
    assert counts[0] == counts[1] != []


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize("code", ["import tracekit; tracekit.analyze", "from tracekit.__main__ import main; main()"])
def test_an_analysis_without_its_packages_says_what_to_install(launch: Launch, code: str) -> None:
    result = launch("-c", code)
    assert result.returncode in {1, 2}
    assert "which is not installed here" in result.stderr.splitlines()[-1]
    assert result.stderr.endswith("pip install torch-tracekit\n") or result.stderr.endswith("torch-tracekit)\n")


def test_a_program_sees_its_own_arguments_file_and_folder(launch: Launch, tmp_path: Path) -> None:
    text = "import sys, __main__; print(sys.argv, __name__, __file__, sys.path[0], vars(__main__) is globals())"
    file = program(tmp_path, text)
    options = ("--steps", "1", "--quiet")

    recorded = launch(*RECORD, *options, file, "--steps", "9", "-m", "--", "x")

    assert recorded.stdout == launch(file, "--steps", "9", "-m", "--", "x").stdout
    assert recorded.stderr == ""


def test_a_module_runs_as_of_python_m(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "other.py").write_text("")
    text = (
        "import sys; from . import other; print(sys.argv, __name__, __file__, __package__, __spec__.name, sys.path[0])"
    )
    program(tmp_path / "package", text)
    (tmp_path / "package" / "__main__.py").write_text(text)
    monkeypatch.chdir(tmp_path)

    for name in ("package.program", "package"):
        assert launch(*RECORD, "-m", name, "x").stdout == launch("-m", name, "x").stdout != ""


@pytest.mark.parametrize("ending", ["sys.exit(3)", "sys.exit('why')", "f()", "f(", "raise KeyboardInterrupt"])
def test_a_program_ends_with_its_own_exit_code_and_traceback(launch: Launch, tmp_path: Path, ending: str) -> None:
    file = program(tmp_path, f"import sys\ndef f():\n    return 1 / 0\n{ending}\n")

    recorded, plain = launch(*RECORD, "--quiet", file), launch(file)

    assert (recorded.returncode, recorded.stderr) == (plain.returncode, plain.stderr)
    assert plain.returncode != 0


def test_sigterm_ends_the_program_and_leaves_what_was_recorded(launch: Launch, tmp_path: Path) -> None:
    result = launch(*RECORD, "--path", tmp_path, "--skip", "0", WORKER, "2", "sigterm")

    assert result.returncode == -signal.SIGTERM
    (trace,) = read_traces(tmp_path)
    assert [(step["step"], step["end_ns"] is None) for step in trace["tracekit"]["steps"]] == [(1, False), (2, True)]


def test_a_step_function_of_the_program_is_a_step_and_one_that_is_not_there_is_refused(
    launch: Launch, tmp_path: Path
) -> None:
    step = ("--step-function", "plain_training:Trainer.step", "--skip", "1", "--steps", "1")
    launch(*RECORD, "--path", tmp_path, *step, WORKER, "4")

    (trace,) = read_traces(tmp_path)
    assert [step["step"] for step in trace["tracekit"]["steps"]] == [2]
    refused = launch(*RECORD, "--step-function", "plain_training:nothing", WORKER, "4")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "defines no nothing" in refused.stderr


def test_a_program_that_nothing_steps_in_says_how_to_name_its_step(launch: Launch, tmp_path: Path) -> None:
    result = launch(*RECORD, program(tmp_path, "print(1)"))

    assert (result.returncode, result.stdout) == (0, "1\n")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tracekit: nothing was recorded: ")
    assert "--step-function" in line
