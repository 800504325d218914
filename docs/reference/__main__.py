"""Writes the generated parts of the pages in docs/ again: `python -m docs.reference`.

With `--check` it writes nothing, and exits with the names of the pages that are stale.
"""

from __future__ import annotations

import sys

from docs.reference.hooks import filled_in, generated_pages

pages = {path: filled_in(path.read_text()) for path in generated_pages()}
stale = [path for path, text in pages.items() if path.read_text() != text]
if sys.argv[1:] == ["--check"]:
    sys.exit(" ".join(path.name for path in stale) or None)
for path in stale:
    path.write_text(pages[path])
