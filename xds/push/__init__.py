"""Desired state becomes content: pushes, groups, history, explanations."""
