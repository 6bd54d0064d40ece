"""What a host gives to a process: files, sockets, mounts, limits."""
