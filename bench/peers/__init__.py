"""Our server and the peers that it is compared with, all started and driven in the same way: ``bench.peers.peer``."""
