"""Sources: each observes one system (files, Consul, Kubernetes, DNS) and hands instances to the catalog."""
