"""Checks of this machine and of a user's job.

They say what is installed, whether recording works, what a recording would show, and how fast the links are.
"""
