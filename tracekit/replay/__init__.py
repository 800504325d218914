"""Replays of a graph of operations: when would each have run, had others lasted longer or shorter?"""
