"""The native decoder and encoder. Without a compiler tracekit installs and works without them.

Everything else is in pyproject.toml, where setuptools calls extensions experimental.
"""

from pathlib import Path

from setuptools import Extension, setup

DECODER = Path("tracekit/read/decode/native")
ENCODER = Path("tracekit/render/perfetto")


def extension(module: str, folder: Path, *other_headers: Path) -> Extension:
    """Return the module of all C++ files of a folder."""
    return Extension(
        module,
        sources=sorted(map(str, folder.glob("*.cpp"))),
        depends=sorted(map(str, [*folder.glob("*.hpp"), *other_headers])),
        language="c++",
        extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden"],
        optional=True,
    )


setup(
    ext_modules=[
        extension("tracekit.read.decode.native._scanner", DECODER),
        extension("tracekit.render.perfetto._encoder", ENCODER, DECODER / "main_interpreter.hpp"),
    ]
)
