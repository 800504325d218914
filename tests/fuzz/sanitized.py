"""Both extensions, built with AddressSanitizer and UndefinedBehaviorSanitizer.

python -m tests.fuzz.sanitized FOLDER       builds them there
python -m tests.fuzz.sanitized FOLDER MODULE ARGUMENT...      builds them and runs a module with them
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.places import ROOT

FOLDER_VARIABLE = "TRACEKIT_SANITIZED"
EXTENSIONS = {
    "tracekit.read.decode.native._scanner": ROOT / "tracekit" / "read" / "decode" / "native",
    "tracekit.render.perfetto._encoder": ROOT / "tracekit" / "render" / "perfetto",
}
_OPTIONS = ["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC"]
_WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def build(compiler: str, folder: Path) -> None:
    """Build both extensions in `folder`. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    include = f"-I{sysconfig.get_paths()['include']}"
    builds = []
    for name, sources in EXTENSIONS.items():
        output = folder / f"{name.rpartition('.')[2]}.so"
        files = [str(source) for source in sorted(sources.glob("*.cpp"))]
        builds.append(subprocess.Popen([compiler, *_OPTIONS, *_WARNINGS, include, *files, "-o", str(output)]))
    for started in builds:
        if started.wait():
            raise subprocess.CalledProcessError(started.returncode, started.args)


def environment(compiler: str, folder: Path) -> dict[str, str]:
    """Return the variables with which Python can load the extensions in `folder`, and `use_sanitized` finds them."""

    def library(name: str) -> str:
        found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        return found.stdout.strip()

    # libstdc++ too, or exceptions are not caught. CPython frees little of what it allocates as it ends.
    return {
        "LD_PRELOAD": " ".join(map(library, ("libasan.so", "libubsan.so", "libstdc++.so.6"))),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        FOLDER_VARIABLE: str(folder),
    }


def use_sanitized() -> bool:
    """Load the extensions of the folder in `FOLDER_VARIABLE`, before anything imports others. False without it."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        return False
    for name in EXTENSIONS:
        spec = importlib.util.spec_from_file_location(name, Path(folder) / f"{name.rpartition('.')[2]}.so")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("module", nargs="?")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    options, arguments = parser.parse_known_args()
    folder = options.folder.absolute()
    build(options.compiler, folder)
    if options.module is None:
        return 0
    variables = os.environ | environment(options.compiler, folder)
    return subprocess.run([sys.executable, "-m", options.module, *arguments], env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
