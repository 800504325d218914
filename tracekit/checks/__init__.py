"""Checks of this machine and of a user's job.

They say what is installed, whether recording works, and what a recording would show.
"""
