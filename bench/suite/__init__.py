"""The suite: our server side by side with its peers, in one run. Its results are in docs/performance.md."""
