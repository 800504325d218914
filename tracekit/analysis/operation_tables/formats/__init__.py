"""How do the files of other tracers become a table of operations?"""
