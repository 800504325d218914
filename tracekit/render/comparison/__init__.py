"""How a comparison of runs is shown: in the terminal, as JSON and as Markdown."""
