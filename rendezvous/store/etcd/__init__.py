"""The store in an etcd cluster; the only room that speaks gRPC."""
