"""Replays of a graph of operations: when would each have run, had some lasted otherwise?"""
