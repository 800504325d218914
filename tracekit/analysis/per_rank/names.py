"""Which names a rank's files have, for the pseudonyms of an anonymised run. Runs in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracekit.model.names.pseudonyms import KindOfName, NameCollector
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import TracePath

__all__ = ["names_in_files"]


def names_in_files(paths: Sequence[TracePath]) -> Mapping[KindOfName, frozenset[str]]:
    """Return the names in these files, by kind. A file that cannot be used has none: reading it again says why."""
    collector = NameCollector()
    for path in paths:
        collector.name("file", path.name)
        try:
            decode(path, extra_args=True, namer=collector)
        except Exception:  # noqa: S112
            continue
    return {kind: frozenset(names) for kind, names in collector.names.items()}
