"""Checks that run in a user's job: whether recording works, what it would see, and how fast the links are."""
