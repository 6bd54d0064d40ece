"""The parameter servers of one node (a wing): its agent keeps those that the job's table of slots wants here.

server_process.py  one server: told of each table, heard, looked at, and registered in the store
server_host.py     those of this node, and what workers are told of all
silence.py         asks a server whether it still answers
"""
