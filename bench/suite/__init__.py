"""The suite: our server side by side with its peers, in one run; what came of it is docs/performance.md."""
