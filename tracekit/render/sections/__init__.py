"""How each section of a report looks, in the terminal and as JSON: a file a section."""
