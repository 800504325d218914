"""The notebook of docs/: runs it, and writes it again with what it shows (`make notebook`)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tests.places import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
_TIMEOUT_S = 300  # of a cell
_PICTURE = "image/png"


def run_notebook(path: Path = NOTEBOOK) -> Any:
    """Return the notebook as it is after its cells have run, in its folder. Raises what a cell raises."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    with tempfile.TemporaryDirectory() as home:
        settings = {"IPYTHONDIR": home, "JUPYTER_CONFIG_DIR": home, "MPLCONFIGDIR": home, "TRACEKIT_CACHE": "0"}
        environment = os.environ | settings | {"PYTHONPATH": str(ROOT)}
        client = NotebookClient(notebook, timeout=_TIMEOUT_S, resources=resources, record_timing=False)
        client.execute(env=environment)
    return notebook


def shown(notebook: Any) -> list[list[dict[str, str]]]:
    """Return what each code cell shows: of each output its text by its type. Of pictures only that there is one."""
    return [[_texts(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def _texts(output: Any) -> dict[str, str]:
    if output.output_type == "stream":
        return {str(output.name): str(output.text)}
    data = output.get("data", {})
    return {kind: "" if kind == _PICTURE else str(text) for kind, text in sorted(data.items())}


if __name__ == "__main__":
    import nbformat

    made = run_notebook()
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    NOTEBOOK.write_text(nbformat.writes(made) + "\n")
