"""How the results of gates are shown: terminal, JSON, Markdown, JUnit XML, annotations of GitHub."""
