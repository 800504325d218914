"""How the capture enters a running program: it finds its objects, wraps its functions and opens spans."""
