"""How each section of a report is shown, in the terminal and as JSON: one file for each section."""
