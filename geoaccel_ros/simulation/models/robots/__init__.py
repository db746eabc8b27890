"""Robots that worlds include."""
