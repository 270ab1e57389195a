"""The servers that ours is measured against, and ours, all started and driven in the same way: ``bench.peers.peer``."""
