"""Training on full, small and read-only disks: `disks_worker.py OUT MOUNTS` writes `OUT/facts.json`."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.faulty_training import train
from tracekit.capture.output import packing


def disk(out: Path, mounts: Path) -> dict[str, Any]:
    """Write to full, small and read-only disks; `mounts` contains those that could be mounted."""
    (out / "file").write_text("not a folder")
    pack = packing.with_metadata

    def fill_up(*arguments: Any) -> Any:
        with (mounts / "roomy/ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(b"x" * 4096):
                    pass
            except OSError:
                print("the disk is full", file=sys.stderr)
        return pack(*arguments)

    def limited(soft_bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft_bytes, resource.RLIM_INFINITY))

    def nothing() -> None:
        pass

    everywhere: dict[str, Any] = {"min_free_bytes": 0, "repeat": 3}
    scenarios: dict[str, tuple[Path, dict[str, Any], Callable[[], object], Callable[[], object]]] = {
        "missing folder": (out / "not/yet/there", everywhere, nothing, nothing),
        "below a file": (out / "file/runs", everywhere, nothing, nothing),
        "largest file": (out / "limited", everywhere, lambda: limited(50_000), lambda: limited(resource.RLIM_INFINITY)),
        "bytes in all": (out / "bytes", everywhere | {"max_bytes": 1000}, nothing, nothing),
    }
    if mounts.exists():
        scenarios |= {
            "full in the export": (mounts / "small/runs", everywhere, nothing, nothing),
            "full in the packing": (
                mounts / "roomy/runs",
                everywhere,
                lambda: setattr(packing, "with_metadata", fill_up),
                lambda: setattr(packing, "with_metadata", pack),
            ),
            "too little free": (mounts / "roomy/runs", {"repeat": 3}, nothing, nothing),
            "read-only": (mounts / "readonly/runs", everywhere, nothing, nothing),
        }
    facts: dict[str, Any] = {"bare": {"losses": train(None)}}
    for name, (path, options, before, after) in scenarios.items():
        print(f"== {name}", file=sys.stderr, flush=True)
        before()
        losses = train(path, **options)
        after()
        files = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
        facts[name] = {"losses": losses, "files": files, "bytes": [(path / file).stat().st_size for file in files]}
    return facts


if __name__ == "__main__":
    out, mounts = map(Path, sys.argv[1:])
    (out / "facts.json").write_text(json.dumps(disk(out, mounts)))
    sys.exit(7)
