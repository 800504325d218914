"""Which private names of torch does the capture use, and what happens without each?

`table.py` lists them, `entry.py` describes what an entry says. When a version of torch renames or removes one:

1. `tests/unit/capture/private_names/test_table.py` names the entry. `tracekit doctor` shows what a user loses.
2. To find the code that uses it, search for the name in `capture/hooks` and `capture/observers`, then in the rest of
   `capture`.
3. Let that code use whichever name there is. Versions that tracekit supports may have either.
4. Add an entry for the new name, with the first version that has it as `since`. Give each entry the
   other's path as `instead`: nothing counts as lost while one of them is there.
5. If nothing replaces the name, check that the code does without it what the entry's `fallback` says.
"""
