"""The nodes that the master starts itself, where a platform lets it: a Kubernetes cluster, or this machine."""
