"""Where the time of a step goes, and why: a section a question. `sections.py` lists them; `section.py`: what one is."""
