"""Writes traces and manifests, within a budget of disk space."""
