"""A Kubernetes cluster as a platform: a replica is a pod, and one object owns all that belongs to a job."""
