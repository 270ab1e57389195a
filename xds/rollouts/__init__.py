"""Careful rollouts: a push that goes to a few proxies first, and takes itself back."""
