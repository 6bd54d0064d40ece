"""The store: its contract, a store in this process, and what waits for one."""
