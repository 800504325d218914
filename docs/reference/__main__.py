"""Writes the generated parts of the pages in docs/ again: `python -m docs.reference`."""

from __future__ import annotations

from docs.reference.hooks import filled_in, generated_pages

for path in generated_pages():
    path.write_text(filled_in(path.read_text()))
