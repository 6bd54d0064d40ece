"""Horovod: its adapter, and the rendezvous that its workers have beside them, without Horovod."""
